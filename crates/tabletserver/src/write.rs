//! The way of a write: admission, gate, latches, batch, sequence number and log, memtable, acknowledgement.
//!
//! Everything a writer holds travels with its log record into the completion, which the log calls when the record is
//! durable: should the caller go away in between, the row stays latched, and the gate shut, until the write has happened.
//!
//! Cost of a small write: one encoding, one checksum, two uncontended lock acquisitions, one queue slot; its share of a
//! group's append and sync; one memtable insertion.

use crate::error::{from_log, from_tablet, not_here};
use crate::latch;
use crate::row_cache::RowKey;
use crate::server::{Served, TabletServer};
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult};
use stele_commitlog::{Append, LogError, Payload, Record, is_no_space};
use stele_tablet::BatchBuilder;
use stele_types::{Durability, ErrorKind, RowWrites, TabletId};
use tokio::sync::{OwnedRwLockReadGuard, oneshot};

/// What a writer holds until its batch is applied.
pub(crate) struct Held {
    _gate: OwnedRwLockReadGuard<()>,
    _latch: Latch,
}

/// The latches of a batch's rows.
pub(crate) enum Latch {
    /// Of a plain write.
    Shared(#[allow(dead_code, reason = "held for its drop")] latch::Shared),
    /// Of a read-modify-write.
    Exclusive(#[allow(dead_code, reason = "held for its drop")] latch::Exclusive),
}

impl TabletServer {
    /// Writes rows of one tablet.
    pub(crate) async fn write_rows(
        &self,
        tablet: TabletId,
        rows: RowWrites,
        durability: Option<Durability>,
    ) -> ServiceResult<()> {
        let served = self.admit(tablet).await?;
        let gate = self.enter(&served).await?;
        check_rows(&served, &rows)?;
        let latch = Latch::Shared(self.latches.share(rows.iter().map(|row| row.row)).await);
        let held = Held {
            _gate: gate,
            _latch: latch,
        };
        let cached = self.row_cache.keys(tablet, rows.iter().map(|row| row.row));
        self.commit(&served, batch_of(&rows), cached, durability, held).await
    }

    /// The tablet, when the server takes writes now.
    pub(crate) async fn admit(&self, tablet: TabletId) -> ServiceResult<Arc<Served>> {
        if self.is_stopping() {
            return Err(not_here(tablet));
        }
        self.admission.admit().await?;
        let served = self.served(tablet)?;
        let files = served.tablet.state().groups.iter().map(|g| g.files.len()).max();
        self.admission.pace(files.unwrap_or(0)).await;
        Ok(served)
    }

    /// Passes the tablet's gate: no split happens until the guard is dropped.
    pub(crate) async fn enter(&self, served: &Served) -> ServiceResult<OwnedRwLockReadGuard<()>> {
        let waiting = served.gate.clone().read_owned();
        let gate = self.env.timeout(self.options.admission_wait_max, waiting).await;
        let gate = gate.map_err(|_| ServiceError::new(ErrorKind::Busy, "the tablet is being split: retry later"))?;
        served.tablet.check_open().map_err(from_tablet)?;
        Ok(gate)
    }

    /// Logs and applies a batch; returns when it is as durable as asked. `cached` are its rows as the row cache knows
    /// them.
    pub(crate) async fn commit(
        &self,
        served: &Served,
        builder: BatchBuilder,
        cached: Vec<RowKey>,
        durability: Option<Durability>,
        held: Held,
    ) -> ServiceResult<()> {
        if builder.is_empty() {
            return Ok(());
        }
        let batch = builder.finish();
        let payload = Payload::new(batch.bytes().clone());
        let count = batch.len();
        let tablet = served.tablet.clone();
        let default = tablet.schema().durability.unwrap_or(self.options.durability);
        let durability = durability.unwrap_or(default);
        let row_cache = self.row_cache.clone();
        let (acknowledge, acknowledged) = oneshot::channel();
        let slot = served.stream.slot(batch.bytes().len()).await.map_err(from_log)?;
        tablet
            .sequence(count, |first| {
                let record = Record {
                    tablet: tablet.id(),
                    first,
                    last: first.plus(count - 1),
                    payload,
                };
                let applied_to = tablet.clone();
                let done = Box::new(move |outcome: Result<(), LogError>| {
                    if outcome.is_ok() {
                        let _writing = row_cache.writing(cached);
                        applied_to.apply(&batch, first);
                    }
                    drop(held);
                    let _ = acknowledge.send(outcome);
                });
                slot.submit(Append {
                    record,
                    durability,
                    done,
                });
            })
            .map_err(from_tablet)?;
        match acknowledged.await {
            Ok(Ok(())) => {
                self.after_write(&tablet);
                Ok(())
            }
            Ok(Err(error)) => {
                if is_no_space(&error) {
                    self.admission.met_full_disk();
                }
                Err(from_log(error))
            }
            Err(_) => Err(ServiceError::new(
                ErrorKind::Aborted,
                "the server stopped before the write was acknowledged",
            )),
        }
    }

    fn after_write(&self, tablet: &stele_tablet::Tablet) {
        let active = tablet.state().active_bytes();
        let full = self.context.memory.bytes() > self.options.memtables.bytes_max() / 2;
        if active > self.options.memtables.tablet_bytes() || full {
            self.work.notify_one();
        }
    }

    pub(crate) fn hold(gate: OwnedRwLockReadGuard<()>, latch: Latch) -> Held {
        Held {
            _gate: gate,
            _latch: latch,
        }
    }
}

/// The rows as the log takes them.
fn batch_of(rows: &RowWrites) -> BatchBuilder {
    let mut builder = BatchBuilder::default();
    for row in rows.iter() {
        row.for_each(|mutation| builder.push(row.row, mutation));
    }
    builder
}

/// Every row must be the tablet's: the caller's view of the catalog may be old.
pub(crate) fn check_rows(served: &Served, rows: &RowWrites) -> ServiceResult<()> {
    let range = served.tablet.range();
    if rows.iter().all(|row| range.contains(row.row)) {
        Ok(())
    } else {
        Err(not_here(served.tablet.id()))
    }
}
