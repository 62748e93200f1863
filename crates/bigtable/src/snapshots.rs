//! Handlers of `stele.admin.v1.Snapshots`, a service that the Bigtable API does not have.
//!
//! Unlike backups, its snapshots need not expire, and a table can be put back to one in place.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::names::{InstanceName, TableResource, check_table_id};
use crate::pb::own as pb;
use crate::status::{invalid, status};
use stele_client::{NewSnapshot, SnapshotInfo, SnapshotName};
use stele_types::Kept;
use tonic::Status;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// Memory of a snapshot in a response, with its names.
const SNAPSHOT_BYTES: usize = 512;

pub(crate) async fn create_snapshot(
    context: &Context,
    _: &Call,
    request: pb::CreateSnapshotRequest,
) -> Result<pb::Snapshot, Status> {
    let table = TableResource::parse(&request.table)?;
    context.schema(&table)?;
    let new = NewSnapshot {
        name: SnapshotName::new(table.name.namespace.clone(), request.snapshot),
        table: table.name.clone(),
        flush: true,
        only_of_name: false,
        expires_micros: expiry(context.env.wall_micros(), request.ttl_seconds)?,
        front_end_data: Vec::new(),
    };
    let made = context.admin.create_snapshot(new).await;
    Ok(shown(&*made.map_err(|error| table_status(&table, error))?))
}

pub(crate) async fn list_snapshots(
    context: &Context,
    call: &Call,
    request: pb::ListSnapshotsRequest,
) -> Result<pb::ListSnapshotsResponse, Status> {
    let instance = InstanceName::parse(&request.parent)?;
    let found = context
        .admin
        .list_snapshots(Some(&instance.instance))
        .await
        .map_err(status)?;
    call.charge(found.len().saturating_mul(SNAPSHOT_BYTES))?;
    Ok(pb::ListSnapshotsResponse {
        snapshots: found.iter().map(|snapshot| shown(snapshot)).collect(),
    })
}

pub(crate) async fn list_kept_tables(
    context: &Context,
    call: &Call,
    request: pb::ListKeptTablesRequest,
) -> Result<pb::ListKeptTablesResponse, Status> {
    let instance = match request.parent.strip_suffix("/instances/-") {
        Some(_) => None,
        None => Some(InstanceName::parse(&request.parent)?.instance),
    };
    let found = context.admin.kept_tables(instance.as_deref()).await.map_err(status)?;
    call.charge(found.len().saturating_mul(SNAPSHOT_BYTES))?;
    let tables = found.iter().map(|kept| pb::KeptTable {
        table: kept.schema.name.to_string(),
        event: kept.kept.map(Kept::event).unwrap_or_default().to_owned(),
        kept_micros: kept.created_micros,
        expires_micros: kept.expires_micros.unwrap_or(i64::MAX),
        snapshot: kept.name.name.clone(),
        bytes: kept.bytes,
    });
    Ok(pb::ListKeptTablesResponse {
        tables: tables.collect(),
    })
}

pub(crate) async fn restore_snapshot(
    context: &Context,
    _: &Call,
    request: pb::RestoreSnapshotRequest,
) -> Result<(), Status> {
    let name = snapshot_name(&request.parent, request.snapshot)?;
    let table = TableResource::parse(&request.table)?;
    let restored = match request.in_place {
        true => context.admin.restore_snapshot(&name, &table.name).await,
        false => {
            table.instance.check_not_reserved()?;
            check_table_id(&table.name.table)?;
            context.admin.clone_snapshot(&name, &table.name, None).await
        }
    };
    // NOT_FOUND may be about the snapshot or the table, so the service's own message is returned.
    restored.map(drop).map_err(status)
}

pub(crate) async fn delete_snapshot(
    context: &Context,
    _: &Call,
    request: pb::DeleteSnapshotRequest,
) -> Result<(), Status> {
    let name = snapshot_name(&request.parent, request.snapshot)?;
    context.admin.delete_snapshot(&name).await.map_err(status)
}

fn snapshot_name(parent: &str, snapshot: String) -> Result<SnapshotName, Status> {
    let instance = InstanceName::parse(parent)?;
    Ok(SnapshotName::new(instance.instance, snapshot))
}

/// Microseconds since 1970; `None` for a life without end.
fn expiry(now: i64, ttl_seconds: u64) -> Result<Option<i64>, Status> {
    if ttl_seconds == 0 {
        return Ok(None);
    }
    let micros = i64::try_from(ttl_seconds)
        .ok()
        .and_then(|ttl| ttl.checked_mul(MICROS_PER_SECOND));
    let at = micros.and_then(|micros| now.checked_add(micros));
    at.map(Some).ok_or_else(|| invalid("ttl_seconds is out of range"))
}

fn shown(snapshot: &SnapshotInfo) -> pb::Snapshot {
    let table = &snapshot.schema.name;
    pb::Snapshot {
        name: snapshot.name.name.clone(),
        table: match table.namespace == snapshot.name.namespace {
            true => table.table.clone(),
            false => table.to_string(),
        },
        created_micros: snapshot.created_micros,
        expires_micros: snapshot.expires_micros,
        tablets: snapshot.tablets,
        bytes: snapshot.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_an_end_or_none() {
        assert_eq!(expiry(5, 0).unwrap(), None);
        assert_eq!(expiry(5, 2).unwrap(), Some(2_000_005));
        assert!(expiry(5, u64::MAX).is_err() && expiry(i64::MAX, 1).is_err());
    }
}
