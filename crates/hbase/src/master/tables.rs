//! Tables as wholes: made, dropped, enabled and disabled, flushed.

use super::changes::{change, check_disabled, existing, failure, recognised_change, state_text};
use super::{groups, namespaces};
use crate::call::{Call, Reply};
use crate::context::table_not_enabled;
use crate::descriptors::{self, Properties};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use crate::procedures::{self, Nonce};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_client::{ChangeAttempts, NewTable, ServiceError, ServiceResult, TableUpdate};
use stele_types::{Compression, DeleteRule, ErrorKind, TableSchema, TimeUnit};
use stele_wire::messages::{CreateTableRequest, FlushTableRequest, TableName, TableRequest, TruncateTableRequest};
use stele_wire::{exception, region};

/// Serves `CreateTable`.
pub(super) async fn create(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: CreateTableRequest = call.message("CreateTableRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move { create_table(&shared, request, nonce).await };
    recognised_change(shared, call, nonce, work).await
}

async fn create_table(shared: &Shared, request: CreateTableRequest, nonce: Nonce) -> Outcome<()> {
    let mut table = request.table_schema;
    let name = table
        .table_name
        .as_ref()
        .ok_or_else(|| Failure::do_not_retry("a table without a name"))?;
    let name = names::from_message(name)?;
    descriptors::check_table(&name)?;
    namespaces::check_exists(shared, &name.namespace).await?;
    let known = shared.service.schema(&name).ok();
    let exists = known.is_some() || names::to_text(&name) == region::META_TABLE;
    let made = known.filter(|known| descriptors::is_made_by(known, nonce));
    if made.is_none() && exists {
        return Err(Failure::new(exception::TABLE_EXISTS, names::to_text(&name)));
    }
    // Families with NEW_VERSION_BEHAVIOR have a rule of their own.
    let delete_rule = DeleteRule::ByTimestamp;
    descriptors::complete(&mut table, delete_rule);
    let mut properties = Properties::of(&table, delete_rule)?;
    check_splits(&request.split_keys)?;
    groups::check_count(1, properties.files.values())?;
    let new = NewTable {
        name: name.clone(),
        time_unit: TimeUnit::Millis,
        granularity: 1,
        delete_rule,
        durability: properties.durability,
        deletion_protection: false,
        families: std::mem::take(&mut properties.families),
        initial_splits: request.split_keys,
        compression: properties
            .files
            .values()
            .next()
            .map_or(Compression::None, |files| files.compression),
        automated_backups: None,
        front_end_data: descriptors::stored_by(&table, nonce),
    };
    let made = match made {
        // An earlier attempt, through another server or before a restart, may have been cut off.
        Some(made) => made,
        None => match shared.admin.create_table(new).await {
            Ok(made) => made,
            Err(error) => made_meanwhile(shared, &name, nonce, error).await?,
        },
    };
    finish(shared, made, &properties).await
}

/// The table that the same call has made through another server since this one looked for it. The error is that of the creation here.
async fn made_meanwhile(
    shared: &Shared,
    name: &stele_types::TableName,
    nonce: Nonce,
    error: ServiceError,
) -> Outcome<Arc<TableSchema>> {
    if error.kind != ErrorKind::AlreadyExists || !procedures::is_set(nonce) {
        return Err(failure(name, error));
    }
    let mut attempts = ChangeAttempts::default();
    loop {
        match shared.service.schema(name) {
            Ok(known) if descriptors::is_made_by(&known, nonce) => return Ok(known),
            Ok(_) => return Err(failure(name, error)),
            // This server has not followed the creation yet.
            Err(absent) => {
                let again = ServiceError::new(ErrorKind::Aborted, absent.message);
                let ended = attempts.again(&shared.env, again).await;
                ended.map_err(|_| failure(name, error.clone()))?;
            }
        }
    }
}

/// Gives a table that has been made the properties that the creation does not take. The same call may do so through another server: then
/// each makes the changes that are left. A change after the creation, by a client of HBase, ends that.
async fn finish(shared: &Shared, mut made: Arc<TableSchema>, properties: &Properties) -> Outcome<()> {
    let mut attempts = ChangeAttempts::default();
    loop {
        let error = match try_finish(shared, &made, properties).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let again = match error.kind {
            ErrorKind::AlreadyExists => ServiceError::new(ErrorKind::Aborted, error.message),
            _ => error,
        };
        attempts.again(&shared.env, again.clone()).await?;
        let now = shared.service.schema(&made.name)?;
        // Without a newer version the change is made, and a server does not follow it: each attempt would wait as long for that server.
        let has_advanced = now.id == made.id && now.version > made.version;
        // The descriptor has the nonce of the creation until it is replaced.
        if !has_advanced || now.front_end_data != made.front_end_data {
            return Err(again.into());
        }
        made = now;
    }
}

async fn try_finish(shared: &Shared, made: &TableSchema, properties: &Properties) -> ServiceResult<()> {
    let has = (made.tablet_bytes_max, made.read_only);
    if has != (properties.tablet_bytes_max, properties.read_only) {
        let update = TableUpdate {
            former: Some((made.id, made.version)),
            tablet_bytes_max: Some(properties.tablet_bytes_max),
            read_only: Some(properties.read_only),
            ..TableUpdate::default()
        };
        shared.admin.update_table(&made.name, update).await?;
    }
    let changes = groups::changes(made, &properties.files, true);
    if !changes.is_empty() {
        shared.admin.modify_groups(&made.name, changes).await?;
    }
    Ok(())
}

/// The rules that HBase's own client checks before it sends split keys.
fn check_splits(keys: &[Bytes]) -> Outcome<()> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if key.is_empty() {
            return Err(Failure::do_not_retry(
                "Empty split key must not be passed in the split keys.",
            ));
        }
        if !seen.insert(key) {
            let message = format!("All split keys must be unique, found duplicate: {}", key.escape_ascii());
            return Err(Failure::do_not_retry(message));
        }
    }
    Ok(())
}

/// Serves `DeleteTable`.
pub(super) async fn delete(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: TableRequest = call.message("DeleteTableRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        check_disabled(&schema)?;
        let deleted = shared.admin.delete_table(&schema.name).await;
        deleted.map_err(|error| failure(&schema.name, error))
    };
    change(shared, call, nonce, work).await
}

/// Serves `EnableTable` and `DisableTable`.
pub(super) async fn set_enabled(shared: &Arc<Shared>, call: &Call, enabled: bool) -> Outcome<Reply> {
    let request: TableRequest = call.message("EnableTableRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    if !enabled && names::to_text(&names::from_message(&request.table_name)?) == region::META_TABLE {
        return Err(Failure::new(exception::CONSTRAINT, "Cannot disable hbase:meta"));
    }
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        if schema.enabled == enabled {
            let class = if enabled {
                exception::TABLE_NOT_DISABLED
            } else {
                exception::TABLE_NOT_ENABLED
            };
            return Err(Failure::new(class, state_text(&schema)));
        }
        let update = TableUpdate {
            enabled: Some(enabled),
            ..TableUpdate::default()
        };
        let updated = shared.admin.update_table(&schema.name, update).await;
        updated.map(drop).map_err(|error| failure(&schema.name, error))
    };
    change(shared, call, nonce, work).await
}

/// Serves `truncateTable`, after which the table is enabled.
pub(super) async fn truncate(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: TruncateTableRequest = call.message("TruncateTableRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let schema = existing(shared, &request.table_name)?;
        check_disabled(&schema)?;
        let of_table = |error| failure(&schema.name, error);
        let keeps = request.preserve_splits.unwrap_or(false);
        shared.admin.truncate(&schema.name, keeps).await.map_err(of_table)?;
        let update = TableUpdate {
            enabled: Some(true),
            ..TableUpdate::default()
        };
        let enabled = shared.admin.update_table(&schema.name, update).await;
        // A repetition would keep the table without rows for undoing, and give the copy with rows up.
        enabled.map(drop).map_err(|error| of_table(error).once_begun())
    };
    change(shared, call, nonce, work).await
}

/// Serves `FlushTable`.
pub(super) async fn flush(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: FlushTableRequest = call.message("FlushTableRequest")?;
    flush_now(shared, &request.table_name, &request.column_family).await?;
    call.reply(&shared.procedures.finished((request.nonce_group, request.nonce)))
}

/// Flushes a table. All families are flushed when one is to be: they share memtables.
pub(super) async fn flush_now(shared: &Shared, table: &TableName, families: &[Bytes]) -> Outcome<()> {
    let schema = existing(shared, table)?;
    if !schema.enabled {
        return Err(table_not_enabled(&schema.name));
    }
    for family in families {
        if !schema
            .families
            .values()
            .any(|known| known.name.as_bytes() == &family[..])
        {
            let (family, table) = (family.escape_ascii(), names::to_text(&schema.name));
            let message = format!("Column families [{family}] don't exist in table {table}");
            return Err(Failure::new(exception::NO_SUCH_FAMILY, message));
        }
    }
    let flushed = shared.admin.flush(&schema.name, None).await;
    flushed.map_err(|error| failure(&schema.name, error))
}

#[cfg(test)]
mod tests;
