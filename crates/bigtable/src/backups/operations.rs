//! Operations on backups. They are made again from the backup or the restored table, so they outlive the process.
//!
//! The number of an operation is that of the snapshot, or is stored with the restored table. A client that deletes an
//! operation has it forgotten there.

use super::{backup_proto, first_cluster, is_live, name_of, with_data};
use crate::accounting::Call;
use crate::backup_data::{BackupData, RestoredFrom, TableData};
use crate::context::{Context, timestamp_of};
use crate::names::{BackupName, InstanceName, TableResource};
use crate::operation_log::{Typed, done, done_with};
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::status::status;
use crate::table_protos::{shown_bytes, table_proto};
use stele_client::{ChangeAttempts, SnapshotInfo, SnapshotUpdate, TableUpdate};
use stele_types::TableSchema;
use tonic::Status;

/// Most operations that are made again for one list.
const LISTED_MAX: usize = 1_000;
const COMPLETE: i32 = 100;
/// The bit by which the number of the operation that optimizes a table differs from that of its restore.
const OPTIMIZES: u64 = 1 << 63;

/// The operation that made a backup.
pub(super) fn created(name: &BackupName, snapshot: &SnapshotInfo) -> Operation {
    let data = BackupData::of(snapshot);
    let backup = backup_proto(name, snapshot, &data, snapshot.completed_micros);
    let operation = operation_name(&name.to_string(), snapshot.id.0);
    let response = Typed {
        name: "Backup",
        message: &backup,
    };
    let Some(source) = &data.source else {
        let metadata = admin::CreateBackupMetadata {
            name: backup.name.clone(),
            source_table: backup.source_table.clone(),
            start_time: backup.start_time,
            end_time: backup.end_time,
        };
        let metadata = Typed {
            name: "CreateBackupMetadata",
            message: &metadata,
        };
        return done(operation, response, metadata);
    };
    let copied = data.copied_micros.map(timestamp_of);
    let metadata = admin::CopyBackupMetadata {
        name: backup.name.clone(),
        source_backup_info: Some(admin::BackupInfo {
            backup: source.shown(&name.instance.project),
            start_time: backup.start_time,
            end_time: backup.end_time,
            source_table: backup.source_table.clone(),
            source_backup: String::new(),
        }),
        progress: Some(progress(copied)),
    };
    let metadata = Typed {
        name: "CopyBackupMetadata",
        message: &metadata,
    };
    done(operation, response, metadata)
}

/// The operations that restored a table and, as clients expect it afterwards, optimized it.
pub(super) fn restored_and_optimized(
    instance: &InstanceName,
    schema: &TableSchema,
    from: &RestoredFrom,
) -> [Operation; 2] {
    [restored(instance, schema, from), optimized(instance, schema, from)]
}

/// The operation that restored a table.
fn restored(instance: &InstanceName, schema: &TableSchema, from: &RestoredFrom) -> Operation {
    let table = table_proto(instance, schema);
    let operation = operation_name(&table.name, from.operation);
    let source = admin::restore_table_metadata::SourceInfo::BackupInfo(from.backup_info(&instance.project));
    let metadata = admin::RestoreTableMetadata {
        name: table.name.clone(),
        source_type: admin::RestoreSourceType::Backup as i32,
        optimize_table_operation_name: operation_name(&table.name, from.operation ^ OPTIMIZES),
        progress: Some(progress(Some(timestamp_of(from.requested_micros)))),
        source_info: Some(source),
    };
    let response = Typed {
        name: "Table",
        message: &table,
    };
    let metadata = Typed {
        name: "RestoreTableMetadata",
        message: &metadata,
    };
    done(operation, response, metadata)
}

/// The operation that optimized a restored table. It is done from the beginning: a clone reads the files of its source, as
/// fast as the source does, and compactions rewrite them in their time.
fn optimized(instance: &InstanceName, schema: &TableSchema, from: &RestoredFrom) -> Operation {
    let name = instance.table(&schema.name.table);
    let operation = operation_name(&name, from.operation ^ OPTIMIZES);
    let metadata = admin::OptimizeRestoredTableMetadata {
        name,
        progress: Some(progress(Some(timestamp_of(from.requested_micros)))),
    };
    let metadata = Typed {
        name: "OptimizeRestoredTableMetadata",
        message: &metadata,
    };
    let empty = prost_types::Any {
        type_url: "type.googleapis.com/google.protobuf.Empty".to_owned(),
        value: Vec::new(),
    };
    done_with(operation, empty, metadata)
}

fn operation_name(resource: &str, number: u64) -> String {
    format!("operations/{resource}/operations/{number:016x}")
}

/// Complete, and since when. The end is the beginning: no row is copied.
fn progress(time: Option<prost_types::Timestamp>) -> admin::OperationProgress {
    admin::OperationProgress {
        progress_percent: COMPLETE,
        start_time: time,
        end_time: time,
    }
}

/// The resource and the number of an operation's name.
fn parse(name: &str) -> Option<(&str, u64)> {
    let (resource, number) = name.strip_prefix("operations/")?.rsplit_once("/operations/")?;
    Some((resource, u64::from_str_radix(number, 16).ok()?))
}

/// A recorded operation of this name.
pub(crate) async fn find(context: &Context, call: &Call, name: &str) -> Result<Option<Operation>, Status> {
    let Some((resource, number)) = parse(name) else {
        return Ok(None);
    };
    let operation = if let Ok(backup) = BackupName::parse(resource) {
        let found = super::existing(context, &backup).await.ok();
        let found = found.filter(|(snapshot, data)| snapshot.id.0 == number && !data.operation_deleted);
        found.map(|(snapshot, _)| created(&backup, &snapshot))
    } else if let Ok(table) = TableResource::parse(resource) {
        let schema = context.service.schema(&table.name).ok();
        let operations = schema.map(|schema| of_table(&table.instance, &schema));
        operations
            .into_iter()
            .flatten()
            .find(|operation| operation.name == name)
    } else {
        None
    };
    let operation = operation.filter(|operation| operation.name == name);
    if let Some(operation) = &operation {
        call.charge(prost::Message::encoded_len(operation))?;
    }
    Ok(operation)
}

/// Those of a restored table.
fn of_table(instance: &InstanceName, schema: &TableSchema) -> Vec<Operation> {
    let from = TableData::of(&schema.front_end_data).restored;
    let recorded = from.filter(|from| from.operation != 0);
    recorded.map_or_else(Vec::new, |from| restored_and_optimized(instance, schema, &from).into())
}

/// The recorded operations whose names begin with a prefix. It names a project at least, because an operation names one.
pub(crate) async fn list(context: &Context, call: &Call, prefix: &str) -> Result<Vec<Operation>, Status> {
    let mut segments = prefix.strip_prefix("operations/").unwrap_or(prefix).split('/');
    let (Some("projects"), Some(project)) = (segments.next(), segments.next().filter(|project| !project.is_empty()))
    else {
        return Ok(Vec::new());
    };
    let wanted = match (segments.next(), segments.next()) {
        (Some("instances"), Some(instance)) if !instance.is_empty() => Some(instance.to_owned()),
        _ => None,
    };
    let now = context.env.wall_micros();
    let instance_of = |instance: &str| InstanceName {
        project: project.to_owned(),
        instance: instance.to_owned(),
    };
    let mut found = Vec::new();
    for snapshot in context.admin.list_snapshots(wanted.as_deref()).await.map_err(status)? {
        let data = BackupData::of(&snapshot);
        if data.operation_deleted || !is_live(&snapshot, now) || found.len() == LISTED_MAX {
            continue;
        }
        let first = first_cluster(context, &snapshot.name.namespace).await?;
        let name = name_of(&instance_of(&snapshot.name.namespace), &snapshot, &data, &first);
        found.push(created(&name, &snapshot));
    }
    if let Some(instance) = &wanted {
        for schema in context.admin.list_tables(instance).await.map_err(status)? {
            let mut operations = of_table(&instance_of(instance), &schema);
            operations.truncate(LISTED_MAX - found.len());
            if !operations.is_empty() {
                call.charge(shown_bytes(&schema))?;
                found.append(&mut operations);
            }
        }
    }
    found.retain(|operation| operation.name.starts_with(prefix));
    call.charge(found.iter().map(prost::Message::encoded_len).sum())?;
    Ok(found)
}

/// Forgets a recorded operation; whether there was one.
pub(crate) async fn delete(context: &Context, call: &Call, name: &str) -> Result<bool, Status> {
    if find(context, call, name).await?.is_none() {
        return Ok(false);
    }
    let Some((resource, number)) = parse(name) else {
        return Ok(false);
    };
    if let Ok(backup) = BackupName::parse(resource) {
        let (snapshot, mut data) = super::existing(context, &backup).await?;
        data.operation_deleted = true;
        let update = SnapshotUpdate {
            front_end_data: Some(with_data(&snapshot, &data)),
            ..SnapshotUpdate::default()
        };
        context
            .admin
            .update_snapshot(&snapshot.name, update)
            .await
            .map_err(status)?;
        return Ok(true);
    }
    forget_restore(context, &TableResource::parse(resource)?, number).await?;
    Ok(true)
}

/// Forgets the operations of a restored table, of which one has this number. The data of the table has fields of other front
/// ends, so only the data that was read is replaced.
async fn forget_restore(context: &Context, table: &TableResource, number: u64) -> Result<(), Status> {
    let mut attempts = ChangeAttempts::default();
    loop {
        let schema = context.schema(table)?;
        let restored = TableData::of(&schema.front_end_data).restored;
        let is_named = |from: &RestoredFrom| (from.operation ^ number) & !OPTIMIZES == 0;
        let Some(mut from) = restored.filter(|from| from.operation != 0 && is_named(from)) else {
            return Ok(());
        };
        from.operation = 0;
        let update = TableUpdate {
            former: Some((schema.id, schema.version)),
            front_end_data: Some(TableData::with_restored(&schema.front_end_data, from)),
            ..TableUpdate::default()
        };
        match context.admin.update_table(&table.name, update).await {
            Ok(_) => return Ok(()),
            Err(error) => attempts.again(&context.env, error).await.map_err(status)?,
        }
    }
}
