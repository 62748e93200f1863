//! Handlers of the calls for backups. A backup is a snapshot of the service below.
//!
//! A backup id is unique within its instance, not within its cluster: clusters are records and place no data. A snapshot that
//! another front end took is shown as a backup in the first cluster. It may never expire.
//!
//! Operations are done when their call returns. Their records need no storage of their own: they are made again from the
//! backup, or from the table that a backup was restored to (`operations`).

mod filter;
pub(crate) mod operations;
mod order;
mod times;

use crate::accounting::Call;
use crate::backup_data::{BackupData, RestoredFrom, StoredBackupName, TableData};
use crate::context::{Context, micros_of, timestamp_of};
use crate::masks;
use crate::names::{BackupName, InstanceName, TableResource, check_backup_id, check_table_id, parse_child};
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::status::{already_exists, invalid, not_found, status};
use crate::table_protos::shown_bytes;
use admin::backup::{BackupType, State};
use admin::restore_table_request::Source;
use filter::Filter;
use prost::Message as _;
use std::sync::Arc;
use stele_client::{NewSnapshot, ServiceError, SnapshotCopy, SnapshotInfo, SnapshotName, SnapshotUpdate};
use stele_types::{ErrorKind, TableName};
use tonic::Status;

const COLLECTION: &str = "clusters";
/// Stands for all clusters of an instance.
const ANY_CLUSTER: &str = "-";
/// Memory of a backup in a response, in addition to its names.
const BACKUP_BYTES: usize = 512;

pub(crate) async fn create_backup(
    context: &Context,
    call: &Call,
    request: admin::CreateBackupRequest,
) -> Result<Operation, Status> {
    let name = new_name(context, &request.parent, request.backup_id).await?;
    let backup = request.backup.ok_or_else(|| invalid("backup must be set"))?;
    let table = TableResource::parse(&backup.source_table)?;
    if table.instance != name.instance {
        return Err(invalid(format!(
            "backup.source_table must be in instance {}, but is '{}'",
            name.instance, backup.source_table
        )));
    }
    let now = context.env.wall_micros();
    let expires = times::expiry(backup.expire_time.as_ref(), now, times::BACKUP_LIFE_MAX)?;
    let kind = times::kind(backup.backup_type)?;
    let data = BackupData {
        cluster: name.cluster.clone(),
        backup_type: kind as i32,
        hot_to_standard_micros: times::hot_to_standard(backup.hot_to_standard_time.as_ref(), kind, now)?,
        ..BackupData::default()
    };
    context.schema(&table)?;
    let new = NewSnapshot {
        name: snapshot_name(&name),
        table: table.name.clone(),
        flush: true,
        only_of_name: false,
        expires_micros: Some(expires),
        front_end_data: data.encode_to_vec(),
    };
    let made = context.admin.create_snapshot(new).await;
    let made = made.map_err(|error| match error.kind {
        ErrorKind::NotFound => crate::status::table_not_found(&table.to_string()),
        _ => new_status(&name, error),
    })?;
    Ok(context.keep(call, operations::created(&name, &made)))
}

pub(crate) async fn copy_backup(
    context: &Context,
    call: &Call,
    request: admin::CopyBackupRequest,
) -> Result<Operation, Status> {
    let name = new_name(context, &request.parent, request.backup_id).await?;
    let source_name = BackupName::parse(&request.source_backup)?;
    let (source, data) = existing(context, &source_name).await?;
    if data.source.is_some() {
        let message = format!("Backup {source_name} is a copy, and copies cannot be copied");
        return Err(Status::failed_precondition(message));
    }
    let now = context.env.wall_micros();
    let expires = times::expiry(request.expire_time.as_ref(), now, times::COPY_LIFE_MAX)?;
    let data = BackupData {
        cluster: name.cluster.clone(),
        backup_type: BackupType::Standard as i32,
        source: Some(StoredBackupName::of(&source_name)),
        copied_micros: Some(now),
        ..BackupData::default()
    };
    let copy = SnapshotCopy {
        source: source.name.clone(),
        name: snapshot_name(&name),
        expires_micros: Some(expires),
        front_end_data: data.encode_to_vec(),
    };
    let made = context.admin.copy_snapshot(copy).await;
    let made = made.map_err(|error| match error.kind {
        ErrorKind::NotFound => missing(&source_name),
        _ => new_status(&name, error),
    })?;
    Ok(context.keep(call, operations::created(&name, &made)))
}

pub(crate) async fn get_backup(
    context: &Context,
    call: &Call,
    request: admin::GetBackupRequest,
) -> Result<admin::Backup, Status> {
    let name = BackupName::parse(&request.name)?;
    let (snapshot, data) = existing(context, &name).await?;
    call.charge(BACKUP_BYTES)?;
    Ok(backup_proto(&name, &snapshot, &data, context.env.wall_micros()))
}

pub(crate) async fn update_backup(
    context: &Context,
    call: &Call,
    request: admin::UpdateBackupRequest,
) -> Result<admin::Backup, Status> {
    let backup = request.backup.ok_or_else(|| invalid("backup must be set"))?;
    let paths = masks::some_paths(request.update_mask)?;
    let name = BackupName::parse(&backup.name)?;
    let (snapshot, mut data) = existing(context, &name).await?;
    let now = context.env.wall_micros();
    let mut update = SnapshotUpdate::default();
    for path in &paths {
        match path.as_str() {
            "expire_time" => {
                let most = match data.source {
                    Some(_) => times::COPY_LIFE_MAX,
                    None => times::BACKUP_LIFE_MAX,
                };
                let created = data.copied_micros.unwrap_or(snapshot.created_micros);
                let expires = times::expiry(backup.expire_time.as_ref(), created, most)?;
                update.expires_micros = Some(Some(expires));
            }
            "hot_to_standard_time" => {
                let kind = times::kind(data.backup_type)?;
                let time = backup.hot_to_standard_time.as_ref();
                data.hot_to_standard_micros = times::hot_to_standard(time, kind, snapshot.created_micros)?;
                update.front_end_data = Some(with_data(&snapshot, &data));
            }
            other => return Err(invalid(format!("incorrect path in update_mask; got: {other}"))),
        }
    }
    let updated = context.admin.update_snapshot(&snapshot.name, update).await;
    let updated = updated.map_err(|error| of_backup(&name, error))?;
    call.charge_response(BACKUP_BYTES);
    Ok(backup_proto(&name, &updated, &data, now))
}

pub(crate) async fn delete_backup(
    context: &Context,
    _: &Call,
    request: admin::DeleteBackupRequest,
) -> Result<(), Status> {
    let name = BackupName::parse(&request.name)?;
    let (snapshot, _) = existing(context, &name).await?;
    let deleted = context.admin.delete_snapshot(&snapshot.name).await;
    deleted.map_err(|error| of_backup(&name, error))
}

pub(crate) async fn list_backups(
    context: &Context,
    call: &Call,
    request: admin::ListBackupsRequest,
) -> Result<admin::ListBackupsResponse, Status> {
    let (instance, cluster) = parse_child(&request.parent, COLLECTION)?;
    let filter = Filter::parse(&request.filter)?;
    let mut backups = backups_of(context, call, &instance).await?;
    backups.retain(|(name, backup)| (cluster == ANY_CLUSTER || name.cluster == cluster) && filter.passes(backup));
    let mut backups: Vec<admin::Backup> = backups.into_iter().map(|(_, backup)| backup).collect();
    order::sort(&mut backups, &request.order_by)?;
    order::page(backups, request.page_size, &request.page_token)
}

pub(crate) async fn restore_table(
    context: &Context,
    call: &Call,
    request: admin::RestoreTableRequest,
) -> Result<Operation, Status> {
    let instance = InstanceName::parse(&request.parent)?;
    instance.check_not_reserved()?;
    check_table_id(&request.table_id)?;
    let Some(Source::Backup(source)) = request.source else {
        return Err(invalid("backup must be set"));
    };
    let source = BackupName::parse(&source)?;
    let (snapshot, data) = existing(context, &source).await?;
    let restored = RestoredFrom {
        backup: Some(StoredBackupName::of(&source)),
        start_micros: snapshot.created_micros,
        end_micros: snapshot.completed_micros,
        source_table: snapshot.schema.name.table.clone(),
        source_backup: data.source,
        operation: context.env.random_u64().max(1),
        requested_micros: context.env.wall_micros(),
    };
    let front_end_data = TableData::with_restored(&snapshot.schema.front_end_data, restored.clone());
    let table = TableName::new(instance.instance.clone(), request.table_id);
    let cloned = context
        .admin
        .clone_snapshot(&snapshot.name, &table, Some(front_end_data))
        .await;
    let schema = cloned.map_err(|error| match error.kind {
        ErrorKind::AlreadyExists => already_exists(format!("table {:?} already exists", instance.table(&table.table))),
        _ => of_backup(&source, error),
    })?;
    call.charge_response(shown_bytes(&schema));
    let [operation, optimizing] = operations::restored_and_optimized(&instance, &schema, &restored);
    context.operations.add(optimizing);
    Ok(context.keep(call, operation))
}

/// The backups of an instance with their names, charged to the call.
async fn backups_of(
    context: &Context,
    call: &Call,
    instance: &InstanceName,
) -> Result<Vec<(BackupName, admin::Backup)>, Status> {
    let now = context.env.wall_micros();
    let snapshots = context
        .admin
        .list_snapshots(Some(&instance.instance))
        .await
        .map_err(status)?;
    call.charge(snapshots.len().saturating_mul(BACKUP_BYTES))?;
    let first = first_cluster(context, &instance.instance).await?;
    let live = snapshots.iter().filter(|snapshot| is_live(snapshot, now));
    let shown = live.map(|snapshot| {
        let data = BackupData::of(snapshot);
        let name = name_of(instance, snapshot, &data, &first);
        let backup = backup_proto(&name, snapshot, &data, now);
        (name, backup)
    });
    Ok(shown.collect())
}

/// An expired backup is gone, also while the server has not deleted it yet.
fn is_live(snapshot: &SnapshotInfo, now: i64) -> bool {
    snapshot.expires_micros.is_none_or(|at| now < at)
}

/// The name of a snapshot as a backup.
fn name_of(instance: &InstanceName, snapshot: &SnapshotInfo, data: &BackupData, first_cluster: &str) -> BackupName {
    BackupName {
        instance: instance.clone(),
        cluster: match data.cluster.as_str() {
            "" => first_cluster.to_owned(),
            cluster => cluster.to_owned(),
        },
        backup: snapshot.name.name.clone(),
    }
}

async fn first_cluster(context: &Context, instance: &str) -> Result<String, Status> {
    let clusters = context.cluster_ids(instance).await?;
    Ok(clusters.into_iter().next().unwrap_or_default())
}

fn snapshot_name(name: &BackupName) -> SnapshotName {
    SnapshotName::new(name.instance.instance.clone(), name.backup.clone())
}

/// The name of a backup to be made, in a cluster that exists.
async fn new_name(context: &Context, parent: &str, backup: String) -> Result<BackupName, Status> {
    let (instance, cluster) = parse_child(parent, COLLECTION)?;
    check_backup_id(&backup)?;
    let clusters = context.cluster_ids(&instance.instance).await?;
    if !clusters.contains(&cluster) {
        return Err(not_found(format!("cluster {parent:?} not found")));
    }
    Ok(BackupName {
        instance,
        cluster,
        backup,
    })
}

/// A backup that exists, in the cluster of its name.
async fn existing(context: &Context, name: &BackupName) -> Result<(Arc<SnapshotInfo>, BackupData), Status> {
    let found = context.admin.snapshot(&snapshot_name(name)).await;
    let found = found.map_err(|error| of_backup(name, error))?;
    let data = BackupData::of(&found);
    let first = first_cluster(context, &name.instance.instance).await?;
    let is_there = name_of(&name.instance, &found, &data, &first).cluster == name.cluster;
    match is_there && is_live(&found, context.env.wall_micros()) {
        true => Ok((found, data)),
        false => Err(missing(name)),
    }
}

/// The front end's data of a snapshot with the fields of this API replaced. Bytes of another front end are kept before them,
/// and the last value of a field counts.
fn with_data(snapshot: &SnapshotInfo, data: &BackupData) -> Vec<u8> {
    let is_own = BackupData::of(snapshot).encode_to_vec() == snapshot.front_end_data;
    let mut bytes = match is_own {
        true => Vec::new(),
        false => snapshot.front_end_data.to_vec(),
    };
    bytes.extend(data.encode_to_vec());
    bytes
}

/// A backup as the API shows it.
fn backup_proto(name: &BackupName, snapshot: &SnapshotInfo, data: &BackupData, now: i64) -> admin::Backup {
    // Once its time has come, a hot backup is a standard one.
    let hot_until = data.hot_to_standard_micros.filter(|at| now < *at);
    let is_hot =
        data.backup_type == BackupType::Hot as i32 && (data.hot_to_standard_micros.is_none() || hot_until.is_some());
    let source_table = match &data.source {
        Some(source) => InstanceName {
            project: name.instance.project.clone(),
            instance: source.instance.clone(),
        }
        .table(&snapshot.schema.name.table),
        None => name.instance.table(&snapshot.schema.name.table),
    };
    admin::Backup {
        name: name.to_string(),
        source_table,
        source_backup: data
            .source
            .as_ref()
            .map(|source| source.shown(&name.instance.project))
            .unwrap_or_default(),
        expire_time: snapshot.expires_micros.map(timestamp_of),
        start_time: Some(timestamp_of(snapshot.created_micros)),
        end_time: Some(timestamp_of(snapshot.completed_micros)),
        size_bytes: i64::try_from(snapshot.bytes).unwrap_or(i64::MAX),
        state: State::Ready as i32,
        backup_type: if is_hot { BackupType::Hot } else { BackupType::Standard } as i32,
        hot_to_standard_time: hot_until.filter(|_| is_hot).map(timestamp_of),
        // Google's Go client panics over a backup in a list that says nothing of its encryption.
        encryption_info: Some(admin::EncryptionInfo::default()),
    }
}

fn missing(name: &BackupName) -> Status {
    not_found(format!("backup {:?} not found", name.to_string()))
}

fn of_backup(name: &BackupName, error: ServiceError) -> Status {
    match error.kind {
        ErrorKind::NotFound => missing(name),
        _ => status(error),
    }
}

fn new_status(name: &BackupName, error: ServiceError) -> Status {
    match error.kind {
        ErrorKind::AlreadyExists => already_exists(format!("backup {:?} already exists", name.to_string())),
        _ => status(error),
    }
}
