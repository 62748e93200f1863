//! Snapshots: taken, listed, deleted; tables are restored from them or cloned.
//!
//! The name of a snapshot is one for all namespaces. The service keeps snapshots by namespace, so a name is looked up in
//! all of them, and a new one is refused if any has it. The description that a client gave is the front end's data of the
//! snapshot. A snapshot of another front end is shown with the properties that it has.
//!
//! Another front end may give a name that is taken, in another namespace. The name then means the snapshot that a client
//! of HBase took, so that it can be restored and deleted as before.

use super::changes::{change, changed, check_disabled, failure};
use super::namespaces;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use prost::Message;
use std::sync::Arc;
use stele_client::{NewSnapshot, ServiceError, SnapshotInfo, SnapshotName};
use stele_types::{ErrorKind, TableName};
use stele_wire::messages::{
    Empty, GetCompletedSnapshotsResponse, IsSnapshotDoneResponse, SnapshotDescription, SnapshotRequest,
    SnapshotResponse, SnapshotType,
};
use stele_wire::{exception, region};

/// Milliseconds that a client waits at most for a snapshot that is complete.
const TIMEOUT_MS: i64 = 300_000;
/// The format of descriptions that HBase 2 writes.
const LAYOUT_VERSION: i32 = 2;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Serves a call.
pub(super) async fn snapshots(shared: &Arc<Shared>, call: &Call, method: &[u8]) -> Outcome<Reply> {
    if method == b"GetCompletedSnapshots" {
        let mut all = visible(shared).await?;
        // Of snapshots with one name a client takes the first.
        all.sort_by_key(|snapshot| !is_of_hbase(snapshot));
        let snapshots = all.iter().map(|snapshot| description(snapshot)).collect();
        return call.reply(&GetCompletedSnapshotsResponse { snapshots });
    }
    let request: SnapshotRequest = call.message("SnapshotRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let wanted = request.snapshot.filter(|snapshot| !snapshot.name.is_empty());
    let Some(wanted) = wanted else {
        let message = "No snapshot name passed in request, can't figure out which snapshot you want to check.";
        return Err(Failure::new(exception::UNKNOWN_SNAPSHOT, message));
    };
    match method {
        b"Snapshot" => take(shared, call, nonce, wanted).await,
        b"IsSnapshotDone" => is_done(shared, call, &wanted).await,
        b"DeleteSnapshot" => {
            let work = move |shared: Arc<Shared>| async move { delete(&shared, wanted).await };
            changed(shared, call, nonce, work).await?;
            call.reply(&Empty {})
        }
        b"RestoreSnapshot" => {
            let work = move |shared: Arc<Shared>| async move { restore(&shared, wanted).await };
            change(shared, call, nonce, work).await
        }
        _ => Err(Failure::not_served(format!("MasterService.{}", method.escape_ascii()))),
    }
}

async fn take(
    shared: &Arc<Shared>,
    call: &Call,
    nonce: crate::procedures::Nonce,
    wanted: SnapshotDescription,
) -> Outcome<Reply> {
    let work = move |shared: Arc<Shared>| async move { take_snapshot(&shared, wanted).await };
    let taken = changed(shared, call, nonce, work).await?;
    call.reply(&SnapshotResponse {
        expected_timeout: TIMEOUT_MS,
        proc_id: taken.proc_id.and_then(|number| i64::try_from(number).ok()),
    })
}

/// Takes a snapshot. The caller has the turn for changes.
pub(super) async fn take_snapshot(shared: &Shared, mut wanted: SnapshotDescription) -> Outcome<()> {
    let text = wanted.table.clone().unwrap_or_default();
    let table = names::from_text(text.as_bytes())?;
    if text == region::META_TABLE {
        return Err(creation("Can't snapshot hbase:meta"));
    }
    // A name is one for all namespaces. The master checks again: the caller may not see all, and another server may take one meanwhile.
    let all = shared.admin.list_snapshots(None).await?;
    if all.iter().any(|snapshot| snapshot.name.name == wanted.name) {
        return Err(exists(&wanted.name));
    }
    let schema = shared.service.schema(&table).map_err(|error| match error.kind {
        ErrorKind::NotFound => creation(format!("Table '{text}' doesn't exist, can't take snapshot.")),
        _ => Failure::from(error),
    })?;
    let kind = match (schema.enabled, wanted.r#type()) {
        (false, _) => SnapshotType::Disabled,
        (true, SnapshotType::SkipFlush) => SnapshotType::SkipFlush,
        (true, _) => SnapshotType::Flush,
    };
    wanted.r#type = Some(kind as i32);
    wanted.version = Some(LAYOUT_VERSION);
    let now = shared.env.wall_micros();
    let expires_micros = match wanted.ttl {
        Some(seconds) if seconds > 0 => seconds
            .checked_mul(MICROS_PER_SECOND)
            .and_then(|micros| now.checked_add(micros)),
        _ => None,
    };
    let new = NewSnapshot {
        name: SnapshotName::new(table.namespace.clone(), wanted.name.clone()),
        table,
        flush: kind != SnapshotType::SkipFlush,
        only_of_name: true,
        expires_micros,
        front_end_data: wanted.encode_to_vec(),
    };
    let taken = shared.admin.create_snapshot(new).await;
    taken.map(drop).map_err(|error| match error.kind {
        ErrorKind::AlreadyExists => exists(&wanted.name),
        ErrorKind::NotFound => creation(format!("Table '{text}' doesn't exist, can't take snapshot.")),
        ErrorKind::InvalidArgument => creation(error.message),
        _ => Failure::from(error),
    })
}

async fn delete(shared: &Shared, wanted: SnapshotDescription) -> Outcome<()> {
    let found = find(shared, &wanted).await?.ok_or_else(|| absent(&wanted.name))?;
    let deleted = shared.admin.delete_snapshot(&found.name).await;
    deleted.map_err(|error| of_snapshot(&wanted.name, error))
}

async fn is_done(shared: &Shared, call: &Call, wanted: &SnapshotDescription) -> Outcome<Reply> {
    let Some(found) = find(shared, wanted).await? else {
        let (name, table) = (&wanted.name, wanted.table.as_deref().unwrap_or_default());
        let message = format!(
            "Snapshot {{ ss={name} table={table} type={:?} ttl={} }} is not currently running or one of the known \
             completed snapshots.",
            wanted.r#type(),
            wanted.ttl.unwrap_or(0)
        );
        return Err(Failure::new(exception::UNKNOWN_SNAPSHOT, message));
    };
    call.reply(&IsSnapshotDoneResponse {
        done: Some(true),
        snapshot: Some(description(&found)),
    })
}

/// Restores a table that exists and is disabled, or clones the snapshot as a new one.
async fn restore(shared: &Shared, wanted: SnapshotDescription) -> Outcome<()> {
    let mut named = all_named(shared, &wanted.name).await?;
    let table = match &wanted.table {
        Some(text) if !text.is_empty() => Some(names::from_text(text.as_bytes())?),
        _ => None,
    };
    // A table that is there is to be as its snapshot: HBase's shell names the one that the listing has. Another one is to be made.
    if table.as_ref().is_some_and(|table| shared.service.schema(table).is_ok()) {
        narrow(&mut named, |snapshot| is_of_table(snapshot, &wanted));
    }
    narrow(&mut named, is_of_hbase);
    narrow(&mut named, |snapshot| is_of_table(snapshot, &wanted));
    let found = only(named, &wanted.name)?.ok_or_else(|| absent(&wanted.name))?;
    let table = table.unwrap_or_else(|| found.schema.name.clone());
    match shared.service.schema(&table) {
        Ok(schema) => {
            check_disabled(&schema)?;
            let restored = shared.admin.restore_snapshot(&found.name, &table).await;
            restored
                .map(drop)
                .map_err(|error| restoring(&wanted.name, &table, error))
        }
        Err(error) if error.kind == ErrorKind::NotFound => {
            crate::descriptors::check_table(&table)?;
            namespaces::check_exists(shared, &table.namespace).await?;
            let cloned = shared.admin.clone_snapshot(&found.name, &table, None).await;
            cloned.map(drop).map_err(|error| restoring(&wanted.name, &table, error))
        }
        Err(error) => Err(Failure::from(error)),
    }
}

/// The snapshots that HBase clients can see: those with legal names. Expired ones are about to be deleted and are not shown,
/// unless an administrator holds them.
async fn visible(shared: &Shared) -> Outcome<Vec<Arc<SnapshotInfo>>> {
    let now = shared.env.wall_micros();
    let has_expired = |snapshot: &SnapshotInfo| snapshot.expires_micros.is_some_and(|at| at <= now);
    let mut all = shared.admin.list_snapshots(None).await?;
    all.retain(|snapshot| names::is_legal(&snapshot.schema.name));
    if all.iter().any(|snapshot| has_expired(snapshot)) && shared.admin.switches().await?.snapshot_cleanup {
        all.retain(|snapshot| !has_expired(snapshot));
    }
    Ok(all)
}

/// The snapshot of a name, and of a table if one is given.
async fn find(shared: &Shared, wanted: &SnapshotDescription) -> Outcome<Option<Arc<SnapshotInfo>>> {
    let mut named = all_named(shared, &wanted.name).await?;
    narrow(&mut named, |snapshot| is_of_table(snapshot, wanted));
    narrow(&mut named, is_of_hbase);
    only(named, &wanted.name)
}

/// The snapshots of a name, of different namespaces.
async fn all_named(shared: &Shared, name: &str) -> Outcome<Vec<Arc<SnapshotInfo>>> {
    let mut named = visible(shared).await?;
    named.retain(|snapshot| snapshot.name.name == name);
    Ok(named)
}

/// Keeps the snapshots with a property, if any has it.
fn narrow(named: &mut Vec<Arc<SnapshotInfo>>, has_property: impl Fn(&SnapshotInfo) -> bool) {
    if named.iter().any(|snapshot| has_property(snapshot)) {
        named.retain(|snapshot| has_property(snapshot));
    }
}

/// Whether a client of HBase took it: its data is a description by its name.
fn is_of_hbase(snapshot: &SnapshotInfo) -> bool {
    let kept = SnapshotDescription::decode(snapshot.front_end_data.clone());
    kept.is_ok_and(|kept| kept.name == snapshot.name.name && kept.version == Some(LAYOUT_VERSION))
}

fn is_of_table(snapshot: &SnapshotInfo, wanted: &SnapshotDescription) -> bool {
    let text = names::to_text(&snapshot.schema.name);
    wanted.table.as_ref().is_some_and(|table| *table == text)
}

/// The only snapshot that a name may mean.
fn only(named: Vec<Arc<SnapshotInfo>>, name: &str) -> Outcome<Option<Arc<SnapshotInfo>>> {
    if named.len() <= 1 {
        return Ok(named.into_iter().next());
    }
    let of: Vec<&str> = named.iter().map(|snapshot| snapshot.name.namespace.as_str()).collect();
    let message = format!("Snapshot '{name}' is ambiguous: namespaces {}", of.join(", "));
    Err(Failure::do_not_retry(message))
}

/// A snapshot as HBase describes it.
pub(crate) fn description(snapshot: &SnapshotInfo) -> SnapshotDescription {
    // Data of another front end has other fields.
    let kept = SnapshotDescription::decode(snapshot.front_end_data.clone()).unwrap_or_default();
    let ttl = snapshot.expires_micros.map_or(0, |at| {
        let micros = at.saturating_sub(snapshot.created_micros).max(0);
        micros.saturating_add(MICROS_PER_SECOND - 1) / MICROS_PER_SECOND
    });
    SnapshotDescription {
        name: snapshot.name.name.clone(),
        table: Some(names::to_text(&snapshot.schema.name)),
        creation_time: Some(snapshot.created_micros / 1_000),
        r#type: Some(kept.r#type.unwrap_or(SnapshotType::Flush as i32)),
        version: Some(LAYOUT_VERSION),
        owner: kept.owner,
        ttl: Some(kept.ttl.filter(|kept| *kept > 0 && ttl > 0).unwrap_or(ttl)),
    }
}

fn exists(name: &str) -> Failure {
    let message = format!("Snapshot '{name}' already stored on the filesystem.");
    Failure::new(exception::SNAPSHOT_EXISTS, message)
}

fn absent(name: &str) -> Failure {
    let message = format!("Snapshot '{name}' doesn't exist on the filesystem");
    Failure::new(exception::NO_SUCH_SNAPSHOT, message)
}

fn creation(message: impl Into<String>) -> Failure {
    Failure::new(exception::SNAPSHOT_CREATION, message.into())
}

/// The exception for an error of a call about a snapshot.
fn of_snapshot(name: &str, error: ServiceError) -> Failure {
    match error.kind {
        ErrorKind::NotFound => absent(name),
        _ => Failure::from(error),
    }
}

/// The exception for an error of a restore or a clone.
fn restoring(name: &str, table: &TableName, error: ServiceError) -> Failure {
    match error.kind {
        ErrorKind::AlreadyExists => failure(table, error),
        ErrorKind::NotFound => absent(name),
        ErrorKind::Corruption => Failure::new(exception::RESTORE_SNAPSHOT, error.message),
        _ => Failure::from(error),
    }
}

#[cfg(test)]
mod tests;
