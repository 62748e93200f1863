//! Changes of tables and namespaces, one after another.
//!
//! A change of unknown outcome ends with an exception after which clients do not repeat the call: they would get the error of a
//! change that is made already, or make it once more.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use crate::procedures::{self, Nonce};
use std::future::Future;
use std::sync::Arc;
use stele_client::ServiceError;
use stele_env::Priority;
use stele_types::{ErrorKind, TableName, TableSchema};
use stele_wire::messages::ProcedureResponse;
use stele_wire::{exception, messages, region};

/// Makes a change ([`changed`]), and answers by the number of its procedure.
pub(super) async fn change<F>(
    shared: &Arc<Shared>,
    call: &Call,
    nonce: Nonce,
    work: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
) -> Outcome<Reply>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    call.reply(&changed(shared, call, nonce, work).await?)
}

/// The same for a change whose repetition is recognised by its nonce, on every server and after any outcome.
pub(super) async fn recognised_change<F>(
    shared: &Arc<Shared>,
    call: &Call,
    nonce: Nonce,
    work: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
) -> Outcome<Reply>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    let ended = carry_out(shared, call, nonce, work).await;
    let ended = match procedures::is_set(nonce) {
        true => ended,
        false => ended.map_err(Failure::of_change),
    };
    call.reply(&ended?)
}

/// Makes a change, unless an earlier call with the same nonce has made it.
pub(super) async fn changed<F>(
    shared: &Arc<Shared>,
    call: &Call,
    nonce: Nonce,
    work: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
) -> Outcome<ProcedureResponse>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    carry_out(shared, call, nonce, work).await.map_err(Failure::of_change)
}

/// Makes a change. It has several steps, so a task of its own carries it to its end also if the client goes away. It has the memory of the
/// request. While the change waits for its turn, the end of the connection calls it off. That comes up to two minutes after the client
/// has gone: one that has closed only its own direction may still want the response.
async fn carry_out<F>(
    shared: &Arc<Shared>,
    call: &Call,
    nonce: Nonce,
    work: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
) -> Outcome<ProcedureResponse>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    let turn = Arc::clone(&shared.changes).lock_owned().await;
    if let Some(earlier) = shared.procedures.earlier(nonce) {
        return Ok(earlier);
    }
    let memory = call.memory.split(call.memory.counted());
    let task = {
        let shared = Arc::clone(shared);
        async move {
            let done = work(Arc::clone(&shared)).await;
            let done = done.map(|()| shared.procedures.finished(nonce));
            drop((memory, turn));
            done
        }
    };
    let changed = shared.env.spawn_join(Priority::Foreground, "hbase change", task).await;
    let stopped = |_| Failure::new(exception::HBASE_IO, "the server stopped during the change").once_begun();
    changed.map_err(stopped)?
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
