//! Calls of the active master.
//!
//! The master's response to a long call is the number of a procedure, which is polled until it has ended.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::socket::Method;
use prost::Message;
use std::time::{Duration, Instant};
use stele_wire::messages::{
    GetProcedureResultRequest, GetProcedureResultResponse, ProcedureResponse, ProcedureState, decode,
};

/// Longest time of a procedure: thousands of regions to open, or a slow disk.
const PROCEDURE_TIMEOUT: Duration = Duration::from_secs(600);

/// Pauses between questions for a procedure.
const POLL: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);

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

/// Calls the master, and waits for the procedure in its response.
///
/// # Errors
/// Those of [`call`], and the failure of the procedure.
pub async fn procedure(cluster: &Cluster, method: &'static str, request: &impl Message) -> Result<(), Failure> {
    let answer: ProcedureResponse = call(cluster, method, request).await?;
    let Some(proc_id) = answer.proc_id else { return Ok(()) };
    let began = Instant::now();
    let mut pause = POLL;
    loop {
        let request = GetProcedureResultRequest { proc_id };
        let answer: GetProcedureResultResponse = call(cluster, "getProcedureResult", &request).await?;
        match answer.state() {
            ProcedureState::Finished => return finished(answer),
            ProcedureState::NotFound => return Err(Failure::Protocol(format!("{method}: its procedure is not known"))),
            ProcedureState::Running => {}
        }
        if began.elapsed() > PROCEDURE_TIMEOUT {
            return Err(Failure::Timeout(PROCEDURE_TIMEOUT.as_millis() as u64));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
    }
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
