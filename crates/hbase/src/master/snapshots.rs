//! Snapshots, and procedures that are found by name.
//!
//! Nothing below keeps files for a snapshot, so there are none, and none is made.

use super::tables;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names;
use bytes::Bytes;
use stele_wire::exception;
use stele_wire::messages::{
    ExecProcedureRequest, ExecProcedureResponse, GetCompletedSnapshotsResponse, OneBool, ProcedureDescription,
    SnapshotRequest,
};

/// The procedure by which old clients flush a table.
const FLUSH: &str = "flush-table-proc";

/// Its argument with the names of families, separated by commas; all families without it.
const FAMILIES: &str = "family";

/// There is no such snapshot.
const NO_SUCH_SNAPSHOT: &str = "org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException";

/// Milliseconds that a client waits at most for a procedure that has ended.
const TIMEOUT_MS: i64 = 60_000;

/// Serves a call.
pub(super) async fn snapshots(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    match method {
        b"GetCompletedSnapshots" => call.reply(&GetCompletedSnapshotsResponse { snapshots: Vec::new() }),
        b"DeleteSnapshot" | b"IsSnapshotDone" => {
            let request: SnapshotRequest = call.message("SnapshotRequest")?;
            let name = request.snapshot.map(|snapshot| snapshot.name).unwrap_or_default();
            let message = format!("Snapshot '{name}' doesn't exist on the filesystem");
            Err(Failure::new(NO_SUCH_SNAPSHOT, message))
        }
        b"ExecProcedure" | b"ExecProcedureWithRet" => {
            let (table, families) = procedure(call)?;
            tables::flush_now(shared, &table, &families).await?;
            call.reply(&ExecProcedureResponse {
                expected_timeout: Some(TIMEOUT_MS),
                return_data: None,
            })
        }
        b"IsProcedureDone" => {
            procedure(call)?;
            call.reply(&OneBool { value: true })
        }
        _ => Err(Failure::not_served(format!("MasterService.{}", method.escape_ascii()))),
    }
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
