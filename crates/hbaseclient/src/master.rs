//! Calls of the active master.
//!
//! The master's response to a long call is the number of a procedure, which is polled until it has ended.
//!
//! A master may not know the number: it has forgotten the procedure, which ended long ago, or it is another one. That is
//! so behind a balancer, where each call may reach another server, and after a failover. As HBase's client does, a caller
//! then waits for the effect of the procedure.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::socket::Method;
use prost::Message;
use std::time::{Duration, Instant};
use stele_wire::exception::{NAMESPACE_NOT_FOUND, TABLE_NOT_FOUND};
use stele_wire::messages::{
    GetProcedureResultRequest, GetProcedureResultResponse, GetTableStateResponse, NamespaceMessage, NamespaceRequest,
    OneTable, ProcedureResponse, ProcedureState, TableName, TableStateKind, decode,
};

#[cfg(test)]
mod tests;

/// Longest time of a procedure: thousands of regions to open, or a slow disk.
const PROCEDURE_TIMEOUT: Duration = Duration::from_secs(600);

/// Pauses between questions for a procedure.
const POLL: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);

/// Time in which the effect of a procedure that the master does not know must be seen. It has ended, so this is the time
/// that one server may be behind another.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The effect of a procedure.
#[derive(Debug, Clone)]
pub enum Effect {
    /// The table is there, and enabled.
    Enabled(TableName),
    /// The table is there, and disabled.
    Disabled(TableName),
    /// The table is not there.
    Dropped(TableName),
    /// The namespace is there.
    Namespace(String),
}

impl Effect {
    /// Whether the master sees it.
    async fn is_seen(&self, cluster: &Cluster) -> Result<bool, Failure> {
        let (table, wanted) = match self {
            Effect::Enabled(table) => (table, Some(TableStateKind::Enabled)),
            Effect::Disabled(table) => (table, Some(TableStateKind::Disabled)),
            Effect::Dropped(table) => (table, None),
            Effect::Namespace(name) => {
                let request = NamespaceRequest {
                    namespace_name: name.clone(),
                    nonce_group: None,
                    nonce: None,
                };
                let found = call::<NamespaceMessage>(cluster, "GetNamespaceDescriptor", &request).await;
                return Ok(unless_absent(found, NAMESPACE_NOT_FOUND)?.is_some());
            }
        };
        let request = OneTable {
            table_name: table.clone(),
        };
        let found = call::<GetTableStateResponse>(cluster, "GetTableState", &request).await;
        let state = unless_absent(found, TABLE_NOT_FOUND)?.map(|found| found.table_state.state);
        Ok(state == wanted.map(|state| state as i32))
    }
}

/// A result; `None` if its failure is of this class.
fn unless_absent<T>(found: Result<T, Failure>, class: &str) -> Result<Option<T>, Failure> {
    match found {
        Err(failure) if failure.is_class(class) => Ok(None),
        found => found.map(Some),
    }
}

/// Calls the active master, with retries while a master is coming up.
///
/// # Errors
/// The failure of the last attempt, or a response that is not such a message.
pub async fn call<M: Message + Default>(
    cluster: &Cluster,
    method: &'static str,
    request: &impl Message,
) -> Result<M, Failure> {
    let answer = cluster.retried(|| async {
        let master = cluster.master().await?;
        master.socket().await?.call(Method::named(method), request, &())?.await
    });
    Ok(decode(method, answer.await?.message)?)
}

/// Calls the master, and waits for the procedure in its response, or for its effect if the procedure is not known.
///
/// # Errors
/// Those of [`call`], and the failure of the procedure. Without an effect, also that it is not known.
pub async fn procedure(
    cluster: &Cluster,
    method: &'static str,
    request: &impl Message,
    effect: Option<Effect>,
) -> Result<(), Failure> {
    let answer: ProcedureResponse = call(cluster, method, request).await?;
    let Some(proc_id) = answer.proc_id else { return Ok(()) };
    let began = Instant::now();
    let mut pause = POLL;
    loop {
        let request = GetProcedureResultRequest { proc_id };
        let answer: GetProcedureResultResponse = call(cluster, "getProcedureResult", &request).await?;
        match (answer.state(), &effect) {
            (ProcedureState::Finished, _) => return finished(answer),
            (ProcedureState::NotFound, Some(effect)) => return wait_for(cluster, method, effect).await,
            (ProcedureState::NotFound, None) => return Err(unknown(method)),
            (ProcedureState::Running, _) => {}
        }
        if began.elapsed() > PROCEDURE_TIMEOUT {
            return Err(Failure::Timeout(PROCEDURE_TIMEOUT.as_millis() as u64));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Waits until the effect of a procedure is seen.
async fn wait_for(cluster: &Cluster, method: &str, effect: &Effect) -> Result<(), Failure> {
    let began = tokio::time::Instant::now();
    let mut pause = POLL;
    while !effect.is_seen(cluster).await? {
        if began.elapsed() > EFFECT_TIMEOUT {
            return Err(unknown(method));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
    }
    Ok(())
}

fn unknown(method: &str) -> Failure {
    Failure::Protocol(format!(
        "{method}: its procedure is not known, and its effect was not seen"
    ))
}

fn finished(answer: GetProcedureResultResponse) -> Result<(), Failure> {
    let Some(e) = answer.exception.and_then(|e| e.generic_exception) else {
        return Ok(());
    };
    let class = e.class_name.unwrap_or_default();
    let text = e.message.unwrap_or_default();
    // A failed procedure stays failed.
    Err(Failure::Exception {
        class,
        text,
        do_not_retry: true,
    })
}
