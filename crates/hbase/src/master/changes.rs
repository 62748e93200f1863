//! Changes of tables and namespaces, one after another.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use crate::procedures::Nonce;
use std::future::Future;
use std::sync::Arc;
use stele_client::ServiceError;
use stele_types::{ErrorKind, TableName, TableSchema};
use stele_wire::{exception, messages, region};

/// Makes a change, unless an earlier call with the same nonce has made it.
pub(super) async fn change(
    shared: &Shared,
    call: &Call,
    nonce: Nonce,
    work: impl Future<Output = Outcome<()>>,
) -> Outcome<Reply> {
    let _turn = shared.changes.lock().await;
    if let Some(earlier) = shared.procedures.earlier(nonce) {
        return call.reply(&earlier);
    }
    work.await?;
    call.reply(&shared.procedures.finished(nonce))
}

/// A table that may be changed.
pub(super) fn existing(shared: &Shared, name: &messages::TableName) -> Outcome<Arc<TableSchema>> {
    let name = names::from_message(name)?;
    if names::to_text(&name) == region::META_TABLE {
        return Err(Failure::do_not_retry("Can't modify catalog tables"));
    }
    shared.service.schema(&name).map_err(|error| failure(&name, error))
}

/// Fails unless a table is disabled.
pub(super) fn check_disabled(schema: &TableSchema) -> Outcome<()> {
    if schema.enabled {
        let message = format!("Not DISABLED; {}", state_text(schema));
        return Err(Failure::new(exception::TABLE_NOT_DISABLED, message));
    }
    Ok(())
}

/// The exception for an error of a call about a table.
pub(super) fn failure(name: &TableName, error: ServiceError) -> Failure {
    match error.kind {
        ErrorKind::NotFound => names::table_not_found(name),
        ErrorKind::AlreadyExists => Failure::new(exception::TABLE_EXISTS, names::to_text(name)),
        _ => Failure::from(error),
    }
}

/// The state of a table in messages of exceptions.
pub(super) fn state_text(schema: &TableSchema) -> String {
    let state = if schema.enabled { "ENABLED" } else { "DISABLED" };
    format!("tableName={}, state={state}", names::to_text(&schema.name))
}
