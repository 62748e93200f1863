//! The process of a server: it starts the server and answers its requests.

use super::{Fleet, ROOT};
use crate::runtime::Process;
use crate::shared::SharedStorage;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{RowStream, ServiceError, ServiceResult};
use stele_env::{Env, Priority};
use stele_storage::Storage;
use stele_storage::servers::log_root;
use stele_tabletserver::SealedLogs;
use stele_types::{ErrorKind, RowBatch, ServerId};

/// Longest virtual time of a start, and of a call.
const PATIENCE: Duration = Duration::from_secs(60);
/// A bucket is slower than a disk by this factor.
pub(super) const PACE: u32 = 30;

/// The process ended before it responded, or took too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoAnswer;

impl From<NoAnswer> for ServiceError {
    /// The request may have taken effect, so this is no `Unavailable`.
    fn from(_: NoAnswer) -> ServiceError {
        ServiceError::new(ErrorKind::Aborted, "the server did not answer")
    }
}

/// Starts a server in a process, which ends if that fails. Faults of the network may make it fail.
pub(super) async fn start<T: Send + 'static>(
    fleet: &Fleet,
    (process, env): (&Process, &Env),
    starting: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    let starting = env.spawn_join(Priority::Foreground, "start", starting);
    match fleet.env.timeout(PATIENCE, starting).await {
        Ok(Ok(Ok(server))) => Ok(server),
        outcome => {
            process.kill();
            let why = outcome.map(|outcome| outcome.map(Result::err).ok());
            Err(format!("a server did not start: {why:?}"))
        }
    }
}

/// Runs a request in the process with this environment.
pub(super) async fn call<T: Send + 'static>(
    process: &Env,
    caller: &Env,
    request: impl Future<Output = T> + Send + 'static,
) -> Result<T, NoAnswer> {
    let answer = process.spawn_join(Priority::Foreground, "request", request);
    match caller.timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) | Err(_) => Err(NoAnswer),
    }
}

/// A stream of rows of a server, of which each batch is a request of its own.
pub(super) struct Remote {
    process: Env,
    caller: Env,
    /// Absent once a request had no answer.
    rows: Option<Box<dyn RowStream>>,
}

impl Remote {
    /// Begins a read in the process with this environment.
    pub(super) async fn begin<F>(process: &Env, caller: &Env, read: F) -> ServiceResult<Box<dyn RowStream>>
    where
        F: Future<Output = ServiceResult<Box<dyn RowStream>>> + Send + 'static,
    {
        let rows = call(process, caller, read).await??;
        Ok(Box::new(Remote {
            process: process.clone(),
            caller: caller.clone(),
            rows: Some(rows),
        }))
    }
}

#[async_trait]
impl RowStream for Remote {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        let mut rows = self.rows.take().ok_or(NoAnswer)?;
        let next = async move {
            let batch = rows.next().await;
            (rows, batch)
        };
        let (rows, batch) = call(&self.process, &self.caller, next).await?;
        self.rows = Some(rows);
        batch
    }
}

/// The root of a server's log.
pub(super) fn root_of(server: ServerId) -> String {
    format!("{ROOT}/{}", log_root(server))
}

/// The sealed logs of servers, as one process reads them.
pub(super) struct Sealed {
    pub(super) shared: SharedStorage,
    pub(super) env: Env,
}

#[async_trait]
impl SealedLogs for Sealed {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        self.shared.look_sealed(&root_of(server), self.env.clone()).await
    }
}
