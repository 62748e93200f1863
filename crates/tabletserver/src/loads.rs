//! Bulk loads: their place among the other work of the server.
//!
//! A load writes files in the background, and then stops the writers of its tablet for a moment: to flush the rest of the
//! memtables, and to add the files. A tablet has one load at a time, and the server a few.
//!
//! A load goes on when its caller goes away: the caller repeats the call, waits for its turn, and finds the cells loaded.

use crate::admission::Admission;
use crate::error::{from_log, from_tablet};
use crate::log::CommitLog;
use crate::parts::Parts;
use crate::row_cache::RowCache;
use crate::stopping::Stopping;
use crate::tablets::{Served, Shut, Tablets};
use crate::work::{Compactions, FlushDemand};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{LoadSource, Loaded, ServiceError, ServiceResult, SortedCells};
use stele_commitlog::BarrierCause;
use stele_env::{Env, Priority};
use stele_tablet::{CellSource, NewCells, TabletError};
use stele_types::{ErrorKind, Mutation, TabletId};
use tokio::sync::Semaphore;

/// Loads that write files concurrently. Each reads, decodes and encodes as fast as a core can, and holds a few blocks of each
/// of its sources.
const LOADS_MAX: usize = 4;

/// Sources of a load at most: each holds a few blocks while it is read.
const SOURCES_MAX: usize = 1_000;

/// Loads cells into tablets.
pub(crate) struct Loads {
    env: Env,
    log: Arc<CommitLog>,
    tablets: Arc<Tablets>,
    row_cache: Arc<RowCache>,
    compactions: Arc<Compactions>,
    flushes: Arc<FlushDemand>,
    admission: Arc<Admission>,
    stopping: Stopping,
    slots: Semaphore,
}

/// A failure of a load, or of a source of it.
enum Failure {
    Tablet(TabletError),
    Source(ServiceError),
}

impl From<TabletError> for Failure {
    fn from(error: TabletError) -> Self {
        Failure::Tablet(error)
    }
}

impl From<Failure> for ServiceError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Tablet(error) => from_tablet(error),
            Failure::Source(error) => error,
        }
    }
}

/// A source as tablets see it.
struct Source(Box<dyn SortedCells>);

#[async_trait]
impl CellSource<Failure> for Source {
    async fn next(&mut self) -> Result<Option<Vec<(Bytes, Mutation)>>, Failure> {
        self.0.next().await.map_err(Failure::Source)
    }
}

impl Loads {
    /// Of the tablets of a server.
    pub(crate) fn new(parts: &Parts) -> Self {
        Loads {
            env: parts.context.env.clone(),
            log: parts.log.clone(),
            tablets: parts.tablets.clone(),
            row_cache: parts.row_cache.clone(),
            compactions: parts.compactions.clone(),
            flushes: parts.flushes.clone(),
            admission: parts.admission.clone(),
            stopping: parts.stopping.clone(),
            slots: Semaphore::new(LOADS_MAX),
        }
    }

    /// Loads the cells of some sources into a tablet.
    pub(crate) async fn load(self: &Arc<Self>, tablet: TabletId, sources: Vec<LoadSource>) -> ServiceResult<Loaded> {
        if sources.len() > SOURCES_MAX {
            let message = format!(
                "{} files in one bulk load; at most {SOURCES_MAX} are accepted",
                sources.len()
            );
            return Err(ServiceError::new(ErrorKind::InvalidArgument, message));
        }
        let served = self.tablets.served(tablet)?;
        let loads = self.clone();
        let load = async move { loads.run(&served, sources).await };
        let loaded = self.env.spawn_join(Priority::Background, "bulk load", load).await;
        loaded.unwrap_or_else(|_| Err(stopped()))
    }

    async fn run(&self, served: &Arc<Served>, sources: Vec<LoadSource>) -> ServiceResult<Loaded> {
        let tablet = &served.tablet;
        let loading = tablet.begin_load().await;
        let _slot = self.slots.acquire().await.map_err(|_| stopped())?;
        if self.stopping.is_stopping() {
            return Err(stopped());
        }
        self.admission.check_accepting()?;
        let known = tablet.schema();
        if let Some(unknown) = sources
            .iter()
            .find(|source| !known.families.contains_key(&source.family))
        {
            let family = unknown.family;
            let message = format!("the tablet does not know family {family} yet, or not any more");
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        let sources = sources.into_iter().map(|source| NewCells {
            family: source.family,
            token: source.token,
            cells: Box::new(Source(source.cells)) as Box<dyn CellSource<Failure>>,
        });
        let runs = match tablet.write_runs(loading, sources.collect()).await {
            Err(Failure::Tablet(TabletError::OtherRow { .. })) => return Ok(Loaded::DoesNotFit),
            written => written?,
        };
        if runs.is_empty() {
            // An earlier call has loaded them, behind its barrier.
            return Ok(Loaded::All);
        }
        // As for a split: most of the memtables goes before writes are stopped for the rest.
        tablet.flush().await.map_err(from_tablet)?;
        let gate = Shut::shut(served).await;
        tablet.check_open().map_err(from_tablet)?;
        tablet.flush().await.map_err(from_tablet)?;
        let barring = served.barring.lock().await;
        let barred = self.log.bar(tablet.id(), BarrierCause::BulkLoad).await;
        barred.map_err(from_log)?;
        let clearing = self.row_cache.clearing(tablet.id());
        let added = tablet.add_runs(runs).await;
        drop((clearing, barring));
        drop(gate);
        self.flushes.wake();
        self.compactions.announce(tablet.id());
        added.map_err(from_tablet)?;
        Ok(Loaded::All)
    }
}

fn stopped() -> ServiceError {
    let message = "the server stopped before the cells were loaded";
    ServiceError::new(ErrorKind::Aborted, message)
}
