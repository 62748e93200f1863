//! Reads are answered only while no other server can own their tablets.
//!
//! The session of a server ends, and a new owner may be chosen, when the server is silent for too long. Writes need no
//! protection: a sealed log takes none. A read of memory does. While the session certainly lives, nothing is to be done.
//! Afterwards, as when the coordinator is not reachable, storage confirms each read: the owner of the log root is still this
//! process. So the log was not sealed before, and the read was of the newest rows. One confirmation serves all reads that wait
//! for it.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_client::{
    BatchReservation, LoadSource, Loaded, RowOutcome, RowStream, ServiceError, ServiceResult, TabletFigures,
    TabletRead, TabletRowOperation, TabletRowsOperation, TabletSample, TabletService,
};
use stele_env::{Env, PlantedBug};
use stele_filter::Filter;
use stele_storage::Storage;
use stele_types::{Durability, ErrorKind, RowBatch, RowWrites, TabletId};
use tokio::sync::Mutex;

/// Longest wait for a confirmation.
const CONFIRMATION_WAIT: Duration = Duration::from_secs(10);

/// The right to answer reads.
pub struct Lease {
    env: Env,
    log: Arc<dyn Storage>,
    /// Nanoseconds of the environment's clock up to which the session certainly lives.
    certain_until: AtomicU64,
    /// Confirmations that were begun.
    begun: AtomicU64,
    /// The newest confirmation that succeeded. Held while one runs.
    confirmed: Mutex<u64>,
}

impl Lease {
    /// Of a server with this log, not certain yet.
    pub fn new(env: Env, log: Arc<dyn Storage>) -> Arc<Lease> {
        Arc::new(Lease {
            env,
            log,
            certain_until: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            confirmed: Mutex::new(0),
        })
    }

    /// The session lives up to a time, or may have ended.
    pub fn extend(&self, until: Option<Duration>) {
        let until = until.unwrap_or_default().as_nanos();
        self.certain_until
            .store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Whether a read on the calling thread may be answered.
    pub fn is_certain(&self) -> bool {
        let now = self.env.now().as_nanos();
        now < u128::from(self.certain_until.load(Ordering::Acquire))
    }

    /// Completes when a read that has been made may be answered.
    pub async fn confirm(&self) -> ServiceResult<()> {
        if self.is_certain() || self.env.planted(PlantedBug::SkipLease) {
            return Ok(());
        }
        match self.env.timeout(CONFIRMATION_WAIT, self.confirm_by_storage()).await {
            Ok(done) => done,
            Err(_) => Err(unavailable("storage does not answer")),
        }
    }

    async fn confirm_by_storage(&self) -> ServiceResult<()> {
        // One that was begun earlier says nothing about a read that was made since.
        let needed = self.begun.load(Ordering::Acquire) + 1;
        let mut confirmed = self.confirmed.lock().await;
        if *confirmed >= needed {
            return Ok(());
        }
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let owner = self.log.confirm_owner().await;
        owner.map_err(|error| unavailable(&error.to_string()))?;
        *confirmed = begun;
        Ok(())
    }
}

fn unavailable(why: &str) -> ServiceError {
    let message =
        format!("the server has lost its session with the coordinator, and its ownership is not confirmed: {why}");
    ServiceError::new(ErrorKind::Unavailable, message)
}

/// The tablets of this server under its lease.
pub(crate) struct Leased {
    pub(crate) tablets: Arc<dyn TabletService>,
    pub(crate) lease: Arc<Lease>,
}

#[async_trait]
impl TabletService for Leased {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        let rows = self.tablets.read(tablet, request).await?;
        Ok(Box::new(LeasedRows {
            rows,
            lease: self.lease.clone(),
        }))
    }

    fn try_read_row(
        &self,
        tablet: TabletId,
        row: &Bytes,
        filter: Option<&Arc<Filter>>,
    ) -> ServiceResult<Option<RowBatch>> {
        let row = self.tablets.try_read_row(tablet, row, filter)?;
        // Checked after the read: the process may have been stopped in between.
        Ok(row.filter(|_| self.lease.is_certain()))
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        self.tablets.mutate(tablet, rows, durability).await?;
        // A write that needs no log is acknowledged on the same terms as a read.
        match durability {
            Some(Durability::Flush | Durability::Sync) => Ok(()),
            _ => self.lease.confirm().await.map_err(unknown),
        }
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        let outcome = self.tablets.row_operation(tablet, request).await?;
        // Its condition may have failed: then it was a read.
        self.lease.confirm().await.map_err(unknown)?;
        Ok(outcome)
    }

    async fn rows_operation(&self, tablet: TabletId, request: TabletRowsOperation) -> ServiceResult<bool> {
        let held = self.tablets.rows_operation(tablet, request).await?;
        // As above.
        self.lease.confirm().await.map_err(unknown)?;
        Ok(held)
    }

    /// Needs no lease: a load counts when its manifest is written, which another owner's claim prevents.
    async fn bulk_load(&self, tablet: TabletId, sources: Vec<LoadSource>) -> ServiceResult<Loaded> {
        self.tablets.bulk_load(tablet, sources).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.tablets.sample(tablet, every).await
    }

    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        self.tablets.figures(tablet).await
    }
}

/// The write may have happened.
fn unknown(error: ServiceError) -> ServiceError {
    ServiceError::new(ErrorKind::Aborted, format!("the outcome is unknown: {}", error.message))
}

struct LeasedRows {
    rows: Box<dyn RowStream>,
    lease: Arc<Lease>,
}

#[async_trait]
impl RowStream for LeasedRows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        let batch = self.rows.next().await?;
        self.lease.confirm().await?;
        Ok(batch)
    }

    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        let batch = self.rows.next_within(room).await?;
        self.lease.confirm().await?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;

    /// A server whose lease may end during a read, as that of a process that is stopped does.
    struct Stopped {
        lease: Arc<Lease>,
        ends: bool,
    }

    fn unused<T>() -> ServiceResult<T> {
        Err(ServiceError::new(ErrorKind::Internal, "the test does not call it"))
    }

    #[async_trait]
    impl TabletService for Stopped {
        async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
            unused()
        }

        fn try_read_row(&self, _: TabletId, _: &Bytes, _: Option<&Arc<Filter>>) -> ServiceResult<Option<RowBatch>> {
            if self.ends {
                self.lease.extend(None);
            }
            Ok(Some(RowBatch::default()))
        }

        async fn mutate(&self, _: TabletId, _: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
            unused()
        }

        async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
            unused()
        }

        async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
            unused()
        }
    }

    #[tokio::test]
    async fn a_row_that_was_read_while_the_lease_ended_is_not_answered() {
        for ends in [false, true] {
            let env = TokioRuntime::current();
            let lease = Lease::new(env.clone(), MemoryStorage::new());
            lease.extend(Some(env.now() + Duration::from_secs(3600)));
            assert!(lease.is_certain());
            let tablets = Arc::new(Stopped {
                lease: lease.clone(),
                ends,
            });
            let leased = Leased { tablets, lease };
            let row = leased.try_read_row(TabletId(1), &Bytes::from_static(b"r"), None);
            assert_eq!(row.unwrap().is_some(), !ends);
        }
    }
}
