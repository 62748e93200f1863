//! Tables: `google.bigtable.admin.v2.BigtableTableAdmin`.

use crate::accounting::{account_current, charge_current};
use crate::context::{Context, table_status};
use crate::mutations::check_row_key;
use crate::names::{InstanceName, TableResource};
use crate::operations::Typed;
use crate::pb::admin;
use crate::pb::admin::drop_row_range_request::Target;
use crate::pb::admin::table::cluster_state::ReplicationState;
use crate::pb::admin::table::{ClusterState, View};
use crate::pb::longrunning::Operation;
use crate::pb::stubs::bigtable_table_admin_server::BigtableTableAdmin;
use crate::status::{invalid, status};
use crate::table_protos::{family_change, new_table, shown_bytes, table_proto, table_update};
use std::sync::Arc;
use stele_types::{RowRange, TableSchema};
use tonic::{Request, Response, Status};
use xxhash_rust::xxh3::xxh3_64;

/// What the state of a cluster takes of an answer beside its name: a place in a map that may be half empty, and the message.
const CLUSTER_STATE_BYTES: usize = 160;

/// Serves table administration.
pub(crate) struct TableAdminService(pub Arc<Context>);

#[tonic::async_trait]
impl BigtableTableAdmin for TableAdminService {
    async fn create_table(
        &self,
        request: Request<admin::CreateTableRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        let request = request.into_inner();
        let instance = InstanceName::parse(&request.parent)?;
        let new_table = new_table(&instance, request)?;
        let schema = self.0.admin.create_table(new_table).await.map_err(status)?;
        account_current(shown_bytes(&schema));
        Ok(Response::new(table_proto(&instance, &schema)))
    }

    async fn list_tables(
        &self,
        request: Request<admin::ListTablesRequest>,
    ) -> Result<Response<admin::ListTablesResponse>, Status> {
        let request = request.into_inner();
        let instance = InstanceName::parse(&request.parent)?;
        let view = view_of(request.view, View::NameOnly)?;
        let schemas = self.0.admin.list_tables(&instance.instance).await.map_err(status)?;
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
            tables.push(self.viewed(&instance, &schema, view).await?);
        }
        if rest.peek().is_none() {
            next_page_token.clear();
        }
        Ok(Response::new(admin::ListTablesResponse {
            tables,
            next_page_token,
        }))
    }

    async fn get_table(&self, request: Request<admin::GetTableRequest>) -> Result<Response<admin::Table>, Status> {
        let request = request.into_inner();
        let table = TableResource::parse(&request.name)?;
        let view = view_of(request.view, View::SchemaView)?;
        let schema = self.0.schema(&table)?;
        Ok(Response::new(self.viewed(&table.instance, &schema, view).await?))
    }

    async fn update_table(&self, request: Request<admin::UpdateTableRequest>) -> Result<Response<Operation>, Status> {
        let request = request.into_inner();
        let proto = request
            .table
            .ok_or_else(|| invalid("UpdateTableRequest.table must be set"))?;
        let table = TableResource::parse(&proto.name)?;
        let paths = request.update_mask.unwrap_or_default().paths;
        let update = table_update(&proto, &paths)?;
        let start_time = Some(self.0.timestamp());
        let updated = self.0.admin.update_table(&table.name, update).await;
        let schema = updated.map_err(|error| table_status(&table, error))?;
        account_current(shown_bytes(&schema));
        let metadata = admin::UpdateTableMetadata {
            name: table.to_string(),
            start_time,
            end_time: Some(self.0.timestamp()),
        };
        Ok(Response::new(self.0.done(
            &proto.name,
            Typed {
                name: "Table",
                message: &table_proto(&table.instance, &schema),
            },
            Typed {
                name: "UpdateTableMetadata",
                message: &metadata,
            },
        )))
    }

    async fn delete_table(&self, request: Request<admin::DeleteTableRequest>) -> Result<Response<()>, Status> {
        let table = TableResource::parse(&request.get_ref().name)?;
        let deleted = self.0.admin.delete_table(&table.name).await;
        deleted.map(Response::new).map_err(|error| table_status(&table, error))
    }

    async fn modify_column_families(
        &self,
        request: Request<admin::ModifyColumnFamiliesRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        let request = request.into_inner();
        let table = TableResource::parse(&request.name)?;
        let schema = self.0.schema(&table)?;
        let changes = request
            .modifications
            .into_iter()
            .map(|modification| family_change(&schema, modification))
            .collect::<Result<Vec<_>, _>>()?;
        if changes.is_empty() {
            charge_current(shown_bytes(&schema))?;
            return Ok(Response::new(table_proto(&table.instance, &schema)));
        }
        // NOT_FOUND may be about a family here, so the service's own words are kept.
        let schema = self
            .0
            .admin
            .modify_families(&table.name, changes)
            .await
            .map_err(status)?;
        account_current(shown_bytes(&schema));
        Ok(Response::new(table_proto(&table.instance, &schema)))
    }

    async fn drop_row_range(&self, request: Request<admin::DropRowRangeRequest>) -> Result<Response<()>, Status> {
        let request = request.into_inner();
        let table = TableResource::parse(&request.name)?;
        let range = match request.target {
            Some(Target::RowKeyPrefix(prefix)) if prefix.is_empty() => {
                return Err(invalid("row_key_prefix must not be empty"));
            }
            Some(Target::RowKeyPrefix(prefix)) => {
                // No row begins with a longer one, and it would be a bound of files, in every manifest from then on.
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
        let dropped = self.0.admin.drop_row_range(&table.name, range).await;
        dropped.map(Response::new).map_err(|error| table_status(&table, error))
    }

    async fn generate_consistency_token(
        &self,
        request: Request<admin::GenerateConsistencyTokenRequest>,
    ) -> Result<Response<admin::GenerateConsistencyTokenResponse>, Status> {
        let table = TableResource::parse(&request.get_ref().name)?;
        self.0.schema(&table)?;
        let consistency_token = consistency_token(&table);
        Ok(Response::new(admin::GenerateConsistencyTokenResponse {
            consistency_token,
        }))
    }

    /// Every write is visible everywhere when it is acknowledged, so a token that was made here is always consistent.
    async fn check_consistency(
        &self,
        request: Request<admin::CheckConsistencyRequest>,
    ) -> Result<Response<admin::CheckConsistencyResponse>, Status> {
        let request = request.into_inner();
        let table = TableResource::parse(&request.name)?;
        self.0.schema(&table)?;
        if request.consistency_token != consistency_token(&table) {
            return Err(invalid(format!("token {:?} not valid", request.consistency_token)));
        }
        Ok(Response::new(admin::CheckConsistencyResponse { consistent: true }))
    }
}

impl TableAdminService {
    /// A table with the fields of a view. Its families are in the accounts until it is sent: there may be thousands, and a client
    /// need not take the answer.
    async fn viewed(&self, instance: &InstanceName, schema: &TableSchema, view: View) -> Result<admin::Table, Status> {
        let mut table = match view {
            View::SchemaView | View::Full => {
                charge_current(shown_bytes(schema))?;
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
        let clusters = self.0.cluster_ids(&instance.instance).await?;
        // As many as an instance has, for every table of an answer.
        let shown = |id: &String| id.len() + CLUSTER_STATE_BYTES;
        charge_current(clusters.iter().map(shown).sum())?;
        table.cluster_states = clusters.into_iter().map(|id| (id, state.clone())).collect();
        Ok(table)
    }
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
