//! The way of a write: admission, gate, latches, batch, sequence number and log, memtable, acknowledgement.
//!
//! Two ways through the log (`stele_commitlog`): a writer that finds the stream idle and wants no sync logs and applies
//! its batch itself, without waiting anywhere in between. In every other case all it holds travels with its log record into
//! the completion ([`PendingWrite`]), which the log calls when the record is durable: should the caller go away in
//! between, the row stays latched, and the gate shut, until the write has happened.
//!
//! Budget of a small write of the first kind, beside the encoding of its batch and its insertion into the memtable: one
//! system call (the append), no allocation, five uncontended locks (tablets, gate, latch, sequencer, stream), no clock (a
//! batch looks at it four times, see [`crate::waits`]).
//! Of the second kind: one allocation (the answer), a place in the stream's queue, its share of a group's append and
//! sync, two wake-ups.

use crate::error::{from_log, from_tablet, not_here};
use crate::latch::Latched;
use crate::memory::WriteMemory;
use crate::rmw::Reserved;
use crate::row_cache::RowKey;
use crate::server::{Served, TabletServer};
use crate::waits::{Cause, Watch};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stele_client::{ServiceError, ServiceResult};
use stele_commitlog::{Append, Completion, Lead, LogError, Payload, Record, RecordRef, Submitted, is_no_space};
use stele_tablet::{Batch, BatchBuilder, WriteSize};
use stele_types::{Durability, ErrorKind, RowWrites, SeqNo, TabletId};
use tokio::sync::oneshot;

/// What a writer holds until its batch is applied.
pub(crate) struct Held {
    pub(crate) entered: Entered,
    /// Of a read-modify-write or conditional write that is not small.
    pub(crate) _reserved: Option<Box<Reserved>>,
    pub(crate) _latched: Latched,
    /// The rows, as the row cache knows them.
    pub(crate) cached: Vec<RowKey>,
}

impl Held {
    fn apply(&mut self, batch: &Batch, first: SeqNo) {
        let _writing = self.entered.row_cache.writing(std::mem::take(&mut self.cached));
        self.entered.tablet.apply(batch, first);
    }
}

/// A tablet whose gate a writer has passed; passed back when dropped.
pub(crate) struct Entered(Arc<Served>);

impl std::ops::Deref for Entered {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.gate.unshare();
    }
}

/// A batch that the log is to tell about.
pub(crate) struct PendingWrite {
    batch: Batch,
    first: SeqNo,
    held: Held,
    answer: oneshot::Sender<Result<(), LogError>>,
}

impl Completion for PendingWrite {
    fn complete(mut self, outcome: Result<(), LogError>) {
        if outcome.is_ok() {
            self.held.apply(&self.batch, self.first);
        }
        drop(self.held);
        // Whoever asked may have gone away.
        let _ = self.answer.send(outcome);
    }
}

/// The answer that a [`PendingWrite`] gives.
type Answer = oneshot::Receiver<Result<(), LogError>>;

/// A batch with its place in the log.
struct Placed {
    batch: Batch,
    crc: u32,
    first: SeqNo,
    durability: Durability,
    held: Held,
}

impl Placed {
    fn record(&self) -> RecordRef<'_> {
        RecordRef {
            tablet: self.held.entered.tablet.id(),
            first: self.first,
            last: self.first.plus(self.batch.len() - 1),
            payload: self.batch.first_piece(),
            rest: self.batch.other_pieces(),
            crc: self.crc,
        }
    }

    /// Logs and applies the batch here and now, or leaves it to the log.
    fn commit(mut self, mut lead: Lead<'_, PendingWrite>, mut watch: Option<Watch>) -> Committed {
        let mut step = |cause| watch.iter_mut().for_each(|watch| watch.step(cause));
        let Some(outcome) = lead.try_commit(self.record(), self.durability) else {
            let (append, answer) = self.pending();
            lead.hand_over(append);
            return Committed::Later(answer);
        };
        if outcome.is_ok() {
            step(Cause::Append);
            self.held.apply(&self.batch, self.first);
            step(Cause::Apply);
        }
        // Before the lead: what queued up behind this batch must find it applied.
        drop(self.held);
        drop(lead);
        step(Cause::Followers);
        Committed::Now(outcome)
    }

    fn pending(self) -> (Append<PendingWrite>, Answer) {
        let (answer, answered) = oneshot::channel();
        let RecordRef {
            tablet, first, last, ..
        } = self.record();
        let append = Append {
            record: Record {
                tablet,
                first,
                last,
                payload: Payload::with_crc(
                    self.batch.shared_first_piece(),
                    self.batch.other_pieces().to_vec(),
                    self.crc,
                ),
            },
            durability: self.durability,
            done: PendingWrite {
                batch: self.batch,
                first,
                held: self.held,
                answer,
            },
        };
        (append, answered)
    }
}

/// Where a submitted batch stands.
enum Committed {
    Now(Result<(), LogError>),
    Later(Answer),
}

/// How much memory a write takes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    /// Of its own, until it is applied.
    pub(crate) copied: usize,
    /// Of memtables.
    pub(crate) applied: usize,
}

impl TabletServer {
    /// Writes rows of one tablet; returns when they are as durable as asked.
    pub async fn write(&self, tablet: TabletId, rows: &RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        let size = WriteSize::of(rows);
        let Extent { copied, applied } = self.extent_of(tablet, &size)?;
        // No future is made for small writes: making and dropping it is what they would notice.
        let _room = match WriteMemory::is_needed(copied) {
            true => Some(self.waited(Cause::SpaceLimit, self.admission.batches.take(copied)).await?),
            false => None,
        };
        let mut builder = BatchBuilder::default();
        builder.push_rows_within(rows, size.batch());
        let batch = builder.finish();
        let served = self.admit(tablet, applied).await?;
        let _coming = match self.admission.is_large(applied) {
            true => Some(self.admission.let_in(applied, || self.work.notify_one()).await?),
            false => None,
        };
        let entered = self.enter(served).await?;
        check_rows(&entered, rows)?;
        let at_once = match (rows.get(0), rows.len()) {
            (Some(row), 1) => self.latches.try_share(row.row),
            _ => None,
        };
        let latched = match at_once {
            Some(latched) => latched,
            None => {
                let latched = self.latches.share(rows.iter().map(|row| row.row));
                self.waited(Cause::Latch, latched).await
            }
        };
        let held = Held {
            entered,
            // Who asked has what its request takes, and carries a large one out.
            _reserved: None,
            _latched: latched,
            cached: self.row_cache.keys(tablet, rows.iter().map(|row| row.row)),
        };
        self.commit(batch, durability, held).await
    }

    /// What a write of this size takes. Refused is one of which memtables would have to hold, in keys of rows that the
    /// request has once, more than all of them may: a megabyte of mutations of one row can come to gigabytes.
    pub(crate) fn extent_of(&self, tablet: TabletId, size: &WriteSize) -> ServiceResult<Extent> {
        let groups = match size.marks_rows() {
            true => self.served(tablet)?.tablet.with_schema(|schema| schema.groups.len()),
            false => 1,
        };
        let (repeated, most) = (size.repeated(groups), self.options.memtables.bytes_max());
        if repeated as u64 > most {
            let message = format!(
                "Keys of rows, which are kept with each of their mutations, would take {repeated} bytes of memory, of which \
                 there are {most} for writes: write fewer mutations of a row at once"
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        Ok(Extent {
            copied: size.without_apart(groups),
            applied: size.in_memtables(groups),
        })
    }

    /// The tablet, when the server takes a write of about so many bytes now.
    pub(crate) async fn admit(&self, tablet: TabletId, bytes: usize) -> ServiceResult<Arc<Served>> {
        if self.is_stopping() {
            return Err(not_here(tablet));
        }
        self.admission.check_accepting()?;
        let served = self.served(tablet)?;
        self.admission.check_unflushable(tablet, || served.memtable_bytes())?;
        let load = served.tablet.write_load();
        if self.presses(tablet, load.active_bytes) {
            self.work.notify_one();
        }
        self.admission.pace(bytes, load.compaction_pressure).await?;
        Ok(served)
    }

    /// Whether there may be something to flush that the flush loop has not seen, when a tablet has so many `active_bytes`. Memory
    /// grows by chunks, which hold thousands of small rows: as long as it is what the loop has looked at, the loop would decide
    /// the same, and waking it costs as much as a small write.
    pub(crate) fn presses(&self, tablet: TabletId, active_bytes: u64) -> bool {
        let bytes = self.context.memory.bytes();
        let is_new = bytes != self.probed_bytes.load(Ordering::Relaxed);
        let full = bytes > self.options.memtables.bytes_max() / 2;
        let ripe = active_bytes > self.options.memtables.tablet_bytes();
        // Stays in while it is being flushed; when that ends the loop looks by itself.
        let is_riper = ripe && self.ripe.lock().insert(tablet);
        is_riper || (full && is_new)
    }

    /// Passes the tablet's gate: no split happens until the guard is dropped.
    pub(crate) async fn enter(&self, served: Arc<Served>) -> ServiceResult<Entered> {
        if !served.gate.try_share() {
            let waiting = self.env.timeout(self.options.admission_wait_max, served.gate.share());
            self.waited(Cause::Gate, waiting)
                .await
                .map_err(|_| ServiceError::new(ErrorKind::Busy, "the tablet is being split: retry later"))?;
        }
        let entered = Entered(served);
        entered.tablet.check_open().map_err(from_tablet)?;
        Ok(entered)
    }

    /// Waits, and notes what for.
    pub(crate) async fn waited<F: Future>(&self, cause: Cause, future: F) -> F::Output {
        self.metrics.waits.until(&self.env, cause, future).await
    }

    /// What the log has to do for a durability: where an append does not outlive the process, `flush` takes a sync.
    fn kept(&self, asked: Durability) -> Durability {
        match asked {
            Durability::Flush if !self.context.storage.keeps_appends() => Durability::Sync,
            asked => asked,
        }
    }

    /// Logs and applies a batch; returns when it is as durable as asked.
    pub(crate) async fn commit(&self, batch: Batch, durability: Option<Durability>, held: Held) -> ServiceResult<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let (count, payload_bytes) = (batch.len(), batch.byte_len());
        // Keeps tablet and stream while the batch, which holds the tablet too, is on its way.
        let served = held.entered.0.clone();
        let default = served.tablet.durability().unwrap_or(self.options.durability);
        let slot = self.waited(Cause::LogQueue, served.stream.slot(payload_bytes));
        let slot = slot.await.map_err(from_log)?;
        let mut placed = Placed {
            crc: Payload::checksum(batch.first_piece(), batch.other_pieces()),
            batch,
            first: SeqNo::ZERO,
            durability: self.kept(durability.unwrap_or(default)),
            held,
        };
        let place = |first| {
            placed.first = first;
            slot.submit(placed, Placed::pending)
        };
        let committed = match served.tablet.sequence(count, place).map_err(from_tablet)? {
            Submitted::Lead(lead, placed) => {
                let watch = self.metrics.waits.watch(&self.env, payload_bytes);
                placed.commit(lead, watch)
            }
            Submitted::Queued(answer) => Committed::Later(answer),
            Submitted::Closed => Committed::Now(Err(LogError::Closed)),
        };
        let outcome = match committed {
            Committed::Now(outcome) => outcome,
            Committed::Later(answer) => self.waited(Cause::Log, answer).await.map_err(|_| stopped())?,
        };
        outcome.map_err(|error| {
            if is_no_space(&error) {
                self.admission.met_full_disk();
            }
            from_log(error)
        })
    }
}

fn stopped() -> ServiceError {
    let message = "the server stopped before the write was acknowledged";
    ServiceError::new(ErrorKind::Aborted, message)
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
