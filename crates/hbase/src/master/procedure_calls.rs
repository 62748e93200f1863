//! Procedures that are found by name. The flush of a table by old clients is the only one.

use super::tables;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use bytes::Bytes;
use stele_wire::exception;
use stele_wire::messages::{ExecProcedureRequest, ExecProcedureResponse, OneBool, ProcedureDescription};

/// The procedure by which old clients flush a table.
const FLUSH: &str = "flush-table-proc";

/// Its argument with the names of families, separated by commas; all families without it.
const FAMILIES: &str = "family";

/// Milliseconds that a client waits at most for a procedure that has ended.
const TIMEOUT_MS: i64 = 60_000;

/// Serves `ExecProcedure` and `ExecProcedureWithRet`.
pub(super) async fn execute(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let (table, families) = procedure(call)?;
    tables::flush_now(shared, &table, &families).await?;
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

/// The table and the families of a flush; other procedures do not exist.
fn procedure(call: &Call) -> Outcome<(stele_wire::messages::TableName, Vec<Bytes>)> {
    let request: ExecProcedureRequest = call.message("ExecProcedureRequest")?;
    let procedure: ProcedureDescription = request.procedure.unwrap_or_default();
    if procedure.signature != FLUSH {
        let message = format!("The procedure is not registered: {}", procedure.signature);
        return Err(Failure::new(exception::DO_NOT_RETRY, message));
    }
    let table = procedure.instance.unwrap_or_default();
    let arguments = procedure.configuration.iter();
    let named = arguments.filter(|argument| argument.name == FAMILIES);
    let families = named.flat_map(|argument| argument.value.split(','));
    let families = families.map(|name| Bytes::copy_from_slice(name.as_bytes()));
    Ok((
        names::to_message(&names::from_text(table.as_bytes())?),
        families.collect(),
    ))
}
