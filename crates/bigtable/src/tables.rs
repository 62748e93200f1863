//! Handlers of `google.bigtable.admin.v2.BigtableTableAdmin`.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::masks;
use crate::mutations::check_row_key;
use crate::names::{InstanceName, TableResource};
use crate::operation_log::Typed;
use crate::pb::admin;
use crate::pb::admin::drop_row_range_request::Target;
use crate::pb::admin::table::cluster_state::ReplicationState;
use crate::pb::admin::table::{ClusterState, View};
use crate::pb::longrunning::Operation;
use crate::status::{invalid, not_found, status};
use crate::table_protos::{changes_policy, family_change, new_table, shown_bytes, table_proto, table_update};
use stele_types::{ErrorKind, RowRange, TableSchema};
use tonic::Status;
use xxhash_rust::xxh3::xxh3_64;

/// Memory of a cluster's state in a response in addition to its name: an entry in a map that may be half empty, and the
/// message.
const CLUSTER_STATE_BYTES: usize = 160;

pub(crate) async fn create_table(
    context: &Context,
    call: &Call,
    request: admin::CreateTableRequest,
) -> Result<admin::Table, Status> {
    let instance = InstanceName::parse(&request.parent)?;
    let new_table = new_table(&instance, request)?;
    let schema = context.admin.create_table(new_table).await.map_err(status)?;
    call.charge_response(shown_bytes(&schema));
    Ok(table_proto(&instance, &schema))
}

pub(crate) async fn list_tables(
    context: &Context,
    call: &Call,
    request: admin::ListTablesRequest,
) -> Result<admin::ListTablesResponse, Status> {
    let instance = InstanceName::parse(&request.parent)?;
    let view = view_of(request.view, View::NameOnly)?;
    let schemas = context.admin.list_tables(&instance.instance).await.map_err(status)?;
    let mut rest = schemas
        .into_iter()
        .skip_while(|schema| schema.name.table <= request.page_token)
        .peekable();
    let page = match usize::try_from(request.page_size) {
        Ok(0) => usize::MAX,
        Ok(page) => page,
        Err(_) => return Err(invalid("page_size must not be negative")),
    };
    let mut tables = Vec::new();
    let mut next_page_token = String::new();
    for schema in rest.by_ref().take(page) {
        next_page_token.clone_from(&schema.name.table);
        tables.push(viewed(context, call, &instance, &schema, view).await?);
    }
    if rest.peek().is_none() {
        next_page_token.clear();
    }
    Ok(admin::ListTablesResponse {
        tables,
        next_page_token,
    })
}

pub(crate) async fn get_table(
    context: &Context,
    call: &Call,
    request: admin::GetTableRequest,
) -> Result<admin::Table, Status> {
    let table = TableResource::parse(&request.name)?;
    let view = view_of(request.view, View::SchemaView)?;
    let schema = context.schema(&table)?;
    viewed(context, call, &table.instance, &schema, view).await
}

pub(crate) async fn update_table(
    context: &Context,
    call: &Call,
    request: admin::UpdateTableRequest,
) -> Result<Operation, Status> {
    let proto = request
        .table
        .ok_or_else(|| invalid("UpdateTableRequest.table must be set"))?;
    let table = TableResource::parse(&proto.name)?;
    let paths = masks::paths(request.update_mask)?;
    let policy = match changes_policy(&paths) {
        true => context.schema(&table)?.automated_backups,
        false => None,
    };
    let update = table_update(&proto, &paths, policy)?;
    let start_time = Some(context.timestamp());
    let updated = context.admin.update_table(&table.name, update).await;
    let schema = updated.map_err(|error| table_status(&table, error))?;
    call.charge_response(shown_bytes(&schema));
    let metadata = admin::UpdateTableMetadata {
        name: table.to_string(),
        start_time,
        end_time: Some(context.timestamp()),
    };
    Ok(context.done(
        call,
        &proto.name,
        Typed {
            name: "Table",
            message: &table_proto(&table.instance, &schema),
        },
        Typed {
            name: "UpdateTableMetadata",
            message: &metadata,
        },
    ))
}

pub(crate) async fn delete_table(
    context: &Context,
    _: &Call,
    request: admin::DeleteTableRequest,
) -> Result<(), Status> {
    let table = TableResource::parse(&request.name)?;
    let deleted = context.admin.delete_table(&table.name).await;
    deleted.map_err(|error| table_status(&table, error))
}

/// Makes a deleted table again. The operation is done when it is returned.
pub(crate) async fn undelete_table(
    context: &Context,
    call: &Call,
    request: admin::UndeleteTableRequest,
) -> Result<Operation, Status> {
    let table = TableResource::parse(&request.name)?;
    table.instance.check_not_reserved()?;
    let start_time = Some(context.timestamp());
    let made = context.admin.undelete_table(&table.name).await;
    let schema = made.map_err(|error| match error.kind {
        ErrorKind::NotFound => not_found(format!("table {table} was not deleted, or is not kept any more")),
        _ => status(error),
    })?;
    call.charge_response(shown_bytes(&schema));
    let metadata = admin::UndeleteTableMetadata {
        name: table.to_string(),
        start_time,
        end_time: Some(context.timestamp()),
    };
    Ok(context.done(
        call,
        &request.name,
        Typed {
            name: "Table",
            message: &table_proto(&table.instance, &schema),
        },
        Typed {
            name: "UndeleteTableMetadata",
            message: &metadata,
        },
    ))
}

pub(crate) async fn modify_column_families(
    context: &Context,
    call: &Call,
    request: admin::ModifyColumnFamiliesRequest,
) -> Result<admin::Table, Status> {
    let table = TableResource::parse(&request.name)?;
    let schema = context.schema(&table)?;
    let changes = request
        .modifications
        .into_iter()
        .map(|modification| family_change(&schema, modification))
        .collect::<Result<Vec<_>, _>>()?;
    if changes.is_empty() {
        call.charge(shown_bytes(&schema))?;
        return Ok(table_proto(&table.instance, &schema));
    }
    // NOT_FOUND may be about a family here, so the service's own message is returned.
    let schema = context
        .admin
        .modify_families(&table.name, changes)
        .await
        .map_err(status)?;
    call.charge_response(shown_bytes(&schema));
    Ok(table_proto(&table.instance, &schema))
}

pub(crate) async fn drop_row_range(
    context: &Context,
    _: &Call,
    request: admin::DropRowRangeRequest,
) -> Result<(), Status> {
    let table = TableResource::parse(&request.name)?;
    let range = match request.target {
        Some(Target::RowKeyPrefix(prefix)) if prefix.is_empty() => {
            return Err(invalid("row_key_prefix must not be empty"));
        }
        Some(Target::RowKeyPrefix(prefix)) => {
            // No row begins with a longer prefix. It would become a bound of files, in every manifest from then on.
            check_row_key(&prefix)?;
            RowRange::prefix(&prefix)
        }
        Some(Target::DeleteAllDataFromTable(true)) => RowRange::all(),
        Some(Target::DeleteAllDataFromTable(false)) | None => {
            return Err(invalid(
                "Either row_key_prefix or delete_all_data_from_table must be set",
            ));
        }
    };
    let dropped = context.admin.drop_row_range(&table.name, range).await;
    dropped.map_err(|error| table_status(&table, error))
}

pub(crate) async fn generate_consistency_token(
    context: &Context,
    _: &Call,
    request: admin::GenerateConsistencyTokenRequest,
) -> Result<admin::GenerateConsistencyTokenResponse, Status> {
    let table = TableResource::parse(&request.name)?;
    context.schema(&table)?;
    let consistency_token = consistency_token(&table);
    Ok(admin::GenerateConsistencyTokenResponse { consistency_token })
}

/// Every write is visible everywhere when it is acknowledged, so a token that was issued here is always consistent.
pub(crate) async fn check_consistency(
    context: &Context,
    _: &Call,
    request: admin::CheckConsistencyRequest,
) -> Result<admin::CheckConsistencyResponse, Status> {
    let table = TableResource::parse(&request.name)?;
    context.schema(&table)?;
    if request.consistency_token != consistency_token(&table) {
        return Err(invalid(format!("token {:?} not valid", request.consistency_token)));
    }
    Ok(admin::CheckConsistencyResponse { consistent: true })
}

/// A table with the fields of a view. Its families are charged until the response is sent: there may be thousands of
/// them, and a client need not read the response.
async fn viewed(
    context: &Context,
    call: &Call,
    instance: &InstanceName,
    schema: &TableSchema,
    view: View,
) -> Result<admin::Table, Status> {
    let mut table = match view {
        View::SchemaView | View::Full => {
            call.charge(shown_bytes(schema))?;
            table_proto(instance, schema)
        }
        View::Unspecified | View::NameOnly | View::ReplicationView | View::EncryptionView => admin::Table {
            name: instance.table(&schema.name.table),
            ..admin::Table::default()
        },
    };
    let state = match view {
        View::ReplicationView | View::Full => ReplicationState::Ready,
        View::EncryptionView => ReplicationState::StateNotKnown,
        View::Unspecified | View::NameOnly | View::SchemaView => return Ok(table),
    };
    let state = ClusterState {
        replication_state: state as i32,
        encryption_info: Vec::new(),
    };
    let clusters = context.cluster_ids(&instance.instance).await?;
    // Each table of the response has all clusters of the instance.
    let shown = |id: &String| id.len() + CLUSTER_STATE_BYTES;
    call.charge(clusters.iter().map(shown).sum())?;
    table.cluster_states = clusters.into_iter().map(|id| (id, state.clone())).collect();
    Ok(table)
}

fn view_of(view: i32, default: View) -> Result<View, Status> {
    match View::try_from(view) {
        Ok(View::Unspecified) => Ok(default),
        Ok(view) => Ok(view),
        Err(_) => Err(invalid(format!("unknown table view {view}"))),
    }
}

/// The same for every project and process, so that any of them can check it.
fn consistency_token(table: &TableResource) -> String {
    format!("stele-{:016x}", xxh3_64(table.name.to_string().as_bytes()))
}
