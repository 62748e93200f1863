//! The commit of a batch: it is logged, applied and released, in this order.
//!
//! Terms: a *placed* batch has its sequence numbers, and with them its place in the commit order of its tablet.
//!
//! Invariant, the order of a commit: the record becomes as durable as asked; the batch is applied; the latches, gate and memory
//! of its writer are released; the writer is told. A queued record takes these along ([`PendingWrite`]), so the row stays
//! latched until the write has happened, also when the caller has gone away.

use crate::admission::Coming;
use crate::latch::Latched;
use crate::read_for_write::RowCells;
use crate::row_cache::RowKey;
use crate::tablets::Served;
use crate::waits::{Cause, Watch};
use std::sync::Arc;
use stele_commitlog::{Append, Completion, Lead, LogError, LogStream, Payload, Record, RecordRef, Slot, Submitted};
use stele_env::PlantedBug;
use stele_memory::Reservation;
use stele_tablet::{Batch, TabletError};
use stele_types::{Durability, SeqNo};
use tokio::sync::oneshot;

/// A stream of the commit log.
pub(crate) type Stream = LogStream<PendingWrite>;

/// Memory that is reserved for a write until it is applied. That may be long after its caller has gone away. The request of a
/// read-modify-write or conditional write says little of how much that is: a byte may be appended to sixty megabytes.
pub(crate) struct Reserved {
    /// For its batch.
    pub(crate) reservation: Option<Reservation>,
    pub(crate) coming: Option<Coming>,
    /// Bytes of memtables that it is for.
    pub(crate) applied: usize,
    /// For more than these.
    pub(crate) excess: Option<Coming>,
    /// With the reservations for the cells that are written.
    pub(crate) rows: Vec<RowCells>,
}

impl Reserved {
    /// The reservation, if it is in any account; of a small write nothing is.
    pub(crate) fn counted(self) -> Option<Box<Reserved>> {
        let has_reservation = self.rows.iter().any(RowCells::has_reservation);
        let is_counted =
            has_reservation || self.reservation.is_some() || self.coming.is_some() || self.excess.is_some();
        is_counted.then(|| Box::new(self))
    }
}

/// Latches, gate and memory that a writer holds until its batch is applied.
pub(crate) struct Held {
    pub(crate) entered: Entered,
    /// Of a write that is not small.
    reserved: Option<Box<Reserved>>,
    pub(crate) latched: Latched,
    /// The rows, as the row cache knows them.
    cached: Vec<RowKey>,
}

impl Held {
    /// Of a writer that has passed the gate and latched its rows.
    pub(crate) fn new(entered: Entered, latched: Latched, cached: Vec<RowKey>) -> Self {
        Held {
            entered,
            reserved: None,
            latched,
            cached,
        }
    }

    /// Keeps a reservation until the batch is applied.
    pub(crate) fn keep(&mut self, reserved: Reserved) {
        assert!(
            self.reserved.is_none(),
            "a write has one reservation, which is returned when it is applied"
        );
        self.reserved = reserved.counted();
    }

    /// Applies a batch whose record is as durable as asked, and releases everything.
    fn apply(mut self, batch: &Batch, first: SeqNo) {
        assert!(
            first > SeqNo::ZERO,
            "a batch has its place in the commit order before it is applied"
        );
        assert!(
            self.entered.gate.is_shared(),
            "the gate is shut to splits from the check of the rows until the batch is applied"
        );
        let tablet = &self.entered.tablet;
        assert!(
            tablet.visible() < first || tablet.env().planted(PlantedBug::ReuseSequence),
            "batches of a tablet are applied in commit order"
        );
        let writing = self.entered.row_cache.writing(std::mem::take(&mut self.cached));
        tablet.apply(batch, first);
        debug_assert!(
            tablet.visible() >= first.plus(batch.len() - 1),
            "an applied batch is visible as a whole"
        );
        // The write is visible before readings may be installed again, and both before the latch is released.
        drop(writing);
        drop(self);
    }
}

/// A tablet whose gate a writer has passed; passed back when dropped.
pub(crate) struct Entered(Arc<Served>);

impl Entered {
    /// For a writer that shares the gate of the tablet.
    pub(crate) fn new(served: Arc<Served>) -> Self {
        assert!(
            served.gate.is_shared(),
            "a writer shares the gate before it enters the tablet"
        );
        Entered(served)
    }
}

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

/// A batch whose record is queued: the log completes it.
pub(crate) struct PendingWrite {
    batch: Batch,
    first: SeqNo,
    held: Held,
    answer: oneshot::Sender<Result<(), LogError>>,
}

impl Completion for PendingWrite {
    fn complete(self, outcome: Result<(), LogError>) {
        match outcome {
            Ok(()) => self.held.apply(&self.batch, self.first),
            Err(_) => drop(self.held),
        }
        // Its caller may have gone away.
        let _ = self.answer.send(outcome);
    }
}

/// The answer that a [`PendingWrite`] gives.
pub(crate) type Answer = oneshot::Receiver<Result<(), LogError>>;

/// Where a submitted batch stands: its writer leads the stream, or waits for the answer, or the stream is closed.
pub(crate) type Step<'a> = Submitted<'a, PendingWrite, Placed, Answer>;

/// A batch that is ready to be logged.
pub(crate) struct Prepared {
    batch: Batch,
    crc: u32,
    durability: Durability,
    held: Held,
}

impl Prepared {
    /// Computes the checksum of the record, outside of all locks but those of `held`.
    pub(crate) fn new(batch: Batch, durability: Durability, held: Held) -> Self {
        assert!(
            !batch.is_empty(),
            "a batch without mutations has no sequence numbers and is not logged"
        );
        Prepared {
            crc: Payload::checksum(batch.first_piece(), batch.other_pieces()),
            batch,
            durability,
            held,
        }
    }

    /// Fixes the place of the batch in the commit order while it is submitted to the log, under the sequencer's lock: so log
    /// order is commit order.
    pub(crate) fn submit(self, slot: Slot<'_, PendingWrite>) -> Result<Step<'_>, TabletError> {
        let (tablet, count) = (self.held.entered.tablet.clone(), self.batch.len());
        let epoch = tablet.epoch();
        let place = |first: SeqNo| {
            assert_eq!(first.epoch(), epoch, "a batch is numbered under the epoch of its owner");
            let durability = self.durability;
            slot.submit(Placed { first, prepared: self }, durability, Placed::pending)
        };
        tablet.sequence(count, place)
    }
}

/// A batch with its place in the commit order.
pub(crate) struct Placed {
    first: SeqNo,
    prepared: Prepared,
}

/// Where the batch of a leading writer stands.
pub(crate) enum Led {
    /// Logged and applied, or failed.
    Done(Result<(), LogError>),
    /// Left to the log's task.
    HandedOver(Answer),
}

impl Placed {
    fn record(&self) -> RecordRef<'_> {
        let Prepared { batch, crc, held, .. } = &self.prepared;
        RecordRef {
            tablet: held.entered.tablet.id(),
            first: self.first,
            last: self.first.plus(batch.len() - 1),
            payload: batch.first_piece(),
            rest: batch.other_pieces(),
            crc: *crc,
        }
    }

    /// Logs and applies the batch on this thread, if that needs no waiting. Otherwise the log's task does.
    pub(crate) fn lead(self, mut lead: Lead<'_, PendingWrite>, mut watch: Option<Watch>) -> Led {
        let mut step = |cause| watch.iter_mut().for_each(|watch| watch.step(cause));
        let Some(outcome) = lead.try_commit(self.record(), self.prepared.durability) else {
            let (append, answer) = self.pending();
            lead.hand_over(append);
            return Led::HandedOver(answer);
        };
        let Prepared { batch, held, .. } = self.prepared;
        match &outcome {
            Ok(()) => {
                step(Cause::Append);
                held.apply(&batch, self.first);
                step(Cause::Apply);
            }
            Err(_) => drop(held),
        }
        // Last: records that queued up behind this batch must find it applied.
        drop(lead);
        step(Cause::Followers);
        Led::Done(outcome)
    }

    fn pending(self) -> (Append<PendingWrite>, Answer) {
        let (answer, answered) = oneshot::channel();
        let RecordRef {
            tablet, first, last, ..
        } = self.record();
        let Prepared {
            batch,
            crc,
            durability,
            held,
        } = self.prepared;
        let payload = Payload::with_crc(batch.shared_first_piece(), batch.other_pieces().to_vec(), crc);
        let append = Append {
            record: Record {
                tablet,
                first,
                last,
                payload,
            },
            durability,
            done: PendingWrite {
                batch,
                first,
                held,
                answer,
            },
        };
        (append, answered)
    }
}
