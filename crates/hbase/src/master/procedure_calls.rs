//! Procedures that clients call by name.
//!
//! There are two, for old clients: the flush of a table, and the snapshot of an enabled one.

use super::changes::changed;
use super::{snapshots, tables};
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use crate::procedures::Nonce;
use bytes::Bytes;
use std::sync::Arc;
use stele_wire::exception;
use stele_wire::messages::{
    ExecProcedureRequest, ExecProcedureResponse, OneBool, ProcedureDescription, SnapshotDescription, SnapshotType,
};

/// The procedure by which old clients flush a table.
const FLUSH: &str = "flush-table-proc";

/// The procedure by which old clients take a snapshot.
const SNAPSHOT: &str = "online-snapshot";

/// Its argument with the name of the table.
const TABLE: &str = "table";

/// The argument of a flush with the names of families, separated by commas; all families without it.
const FAMILIES: &str = "family";

/// Milliseconds that a client waits at most for a procedure that has ended.
const TIMEOUT_MS: i64 = 60_000;

/// These calls have none.
const NO_NONCE: Nonce = (None, None);

/// Serves `ExecProcedure` and `ExecProcedureWithRet`.
pub(super) async fn execute(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    match procedure(call)? {
        Procedure::Flush { table, families } => tables::flush_now(shared, &table, &families).await?,
        Procedure::Snapshot(wanted) => {
            let work = move |shared: Arc<Shared>| async move { snapshots::take_snapshot(&shared, wanted).await };
            changed(shared, call, NO_NONCE, work).await?;
        }
    }
    call.reply(&ExecProcedureResponse {
        expected_timeout: Some(TIMEOUT_MS),
        return_data: None,
    })
}

/// Serves `IsProcedureDone`.
pub(super) fn is_done(call: &Call) -> Outcome<Reply> {
    procedure(call)?;
    call.reply(&OneBool { value: true })
}

/// A procedure, with its arguments.
enum Procedure {
    Flush {
        table: stele_wire::messages::TableName,
        families: Vec<Bytes>,
    },
    Snapshot(SnapshotDescription),
}

/// The procedure of a call; others do not exist.
fn procedure(call: &Call) -> Outcome<Procedure> {
    let request: ExecProcedureRequest = call.message("ExecProcedureRequest")?;
    let procedure: ProcedureDescription = request.procedure.unwrap_or_default();
    match procedure.signature.as_str() {
        FLUSH => flush(procedure),
        SNAPSHOT => Ok(Procedure::Snapshot(snapshot(procedure))),
        other => {
            let message = format!("The procedure is not registered: {other}");
            Err(Failure::new(exception::DO_NOT_RETRY, message))
        }
    }
}

fn snapshot(procedure: ProcedureDescription) -> SnapshotDescription {
    let mut arguments = procedure.configuration.into_iter();
    SnapshotDescription {
        name: procedure.instance.unwrap_or_default(),
        table: arguments
            .find(|argument| argument.name == TABLE)
            .map(|argument| argument.value),
        r#type: Some(SnapshotType::Flush as i32),
        ..SnapshotDescription::default()
    }
}

fn flush(procedure: ProcedureDescription) -> Outcome<Procedure> {
    let table = procedure.instance.unwrap_or_default();
    let arguments = procedure.configuration.iter();
    let named = arguments.filter(|argument| argument.name == FAMILIES);
    let families = named.flat_map(|argument| argument.value.split(','));
    let families = families.map(|name| Bytes::copy_from_slice(name.as_bytes()));
    Ok(Procedure::Flush {
        table: names::to_message(&names::from_text(table.as_bytes())?),
        families: families.collect(),
    })
}
