//! A record enters a stream through a slot, as its leader or in its queue.
//!
//! A *leader* is a writer that found the stream idle (as in RocksDB's write thread). It logs its own record with one append
//! on its own thread and applies it. Then it does the same for a few groups that queued up meanwhile, and releases the
//! stream. It never waits, so a caller that is cancelled cannot leave a commit half done. It hands over to the task all work
//! that must wait: a sync, a new segment, a very large append, more than its share of groups.
//!
//! An append costs a system call, and a connection often has many small writes at the same moment. So a small record that
//! needs no sync is *gathered*: it queues while the stream stays idle, and its writer lets its neighbours queue theirs.
//! Then the first such writer to continue leads for all. Each of them holds a [`Gathered`], which leads when it is dropped
//! and nobody else has. So a writer that is cancelled or slow delays no other.

use crate::error::LogError;
use crate::format::RecordRef;
use crate::group::{Append, Completion, Group};
use crate::queue::{GROUP_RECORDS_MAX, Inner};
use crate::segment::{INLINE_BYTES_MAX, Segments};
use stele_types::Durability;
use tokio::sync::SemaphorePermit;

/// Groups that a leader commits for others. Few, since its own caller waits meanwhile, and one group holds the records that
/// queued up during the one before: with two the followers of a lone leader mostly need no task.
const LEADER_GROUPS_MAX: usize = 2;

/// Groups that a leader commits if they were gathered. Of full groups that is a megabyte, which takes about one
/// millisecond to append and apply.
const GATHERED_GROUPS_MAX: usize = 4;

/// A larger payload is not gathered. Copying it takes about as long as the system call that it would share.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// The right to submit one record.
pub struct Slot<'a, C: Completion> {
    inner: &'a Inner<C>,
    payload_bytes: usize,
    permit: SemaphorePermit<'a>,
}

/// The outcome of a submission.
#[must_use]
pub enum Submitted<'a, C: Completion, T, Q> {
    /// The stream was idle, and is the writer's. Its record is not queued: it must commit it, or hand it over, before it
    /// does anything that waits.
    Lead(Lead<'a, C>, T),
    /// It is queued while the stream is idle; its completion will be told when the first of its group is dropped.
    Gathered(Gathered<'a, C>, Q),
    /// It is queued; its completion will be told.
    Queued(Q),
    /// The stream has been closed; the record will not be written.
    Closed,
}

impl<'a, C: Completion> Slot<'a, C> {
    pub(crate) fn new(inner: &'a Inner<C>, payload_bytes: usize, permit: SemaphorePermit<'a>) -> Self {
        Slot {
            inner,
            payload_bytes,
            permit,
        }
    }

    /// Takes the place of a record in the log: behind all that were submitted before. A writer that leads gets its
    /// record back. Else `queued` makes the queued append from it, and something for the writer to wait with.
    pub fn submit<T, Q>(
        self,
        record: T,
        durability: Durability,
        queued: impl FnOnce(T) -> (Append<C>, Q),
    ) -> Submitted<'a, C, T, Q> {
        let inner = self.inner;
        let mut queue = inner.queue.lock();
        if queue.closed {
            return Submitted::Closed;
        }
        let is_gathered = durability == Durability::Flush && self.payload_bytes <= GATHERED_BYTES_MAX;
        // A leader overtakes no queued record.
        if queue.waiting.is_empty()
            && !is_gathered
            && let Some(segments) = queue.take_idle()
        {
            drop(queue);
            let lead = Lead {
                inner,
                segments: Some(segments),
                permit: self.permit,
            };
            return Submitted::Lead(lead, record);
        }
        let (append, wait) = queued(record);
        assert_eq!(append.durability, durability, "a record is queued as it was submitted");
        queue.waiting.push_back(append);
        self.permit.forget();
        if !queue.is_idle() {
            return Submitted::Queued(wait);
        }
        assert!(
            queue.orders.is_empty(),
            "an order takes the segments from an idle stream to the task"
        );
        if durability == Durability::Sync {
            // The task has to commit this one, and the gathered ones come before it.
            if let Some(segments) = queue.take_idle() {
                inner.hand_over(&mut queue, segments);
            }
            return Submitted::Queued(wait);
        }
        let turn = queue.turns;
        drop(queue);
        Submitted::Gathered(Gathered { inner, turn }, wait)
    }
}

/// A record that is queued while the stream is idle. Dropping this commits it, with all that were gathered meanwhile, if
/// nobody else has. Its writer first lets others run that may write as well.
#[must_use]
pub struct Gathered<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// The turn in which it was queued. Once it is over, the record is committed or another party's to commit.
    turn: u64,
}

impl<C: Completion> Drop for Gathered<'_, C> {
    fn drop(&mut self) {
        let mut queue = self.inner.queue.lock();
        assert!(self.turn <= queue.turns, "a record was queued in a turn that has begun");
        // The queue is empty if the stream was shut.
        if queue.turns != self.turn || queue.waiting.is_empty() {
            return;
        }
        let Some(segments) = queue.take_idle() else { return };
        if std::thread::panicking() {
            self.inner.hand_over(&mut queue, segments);
            return;
        }
        drop(queue);
        let committing = Committing {
            inner: self.inner,
            segments: Some(segments),
        };
        committing.commit_queue(GATHERED_GROUPS_MAX);
    }
}

/// The stream owned by a writer. Dropping it releases the stream: queued records are committed by this thread or the task.
pub struct Lead<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// Present until handed over or released.
    segments: Option<Box<Segments>>,
    /// Returned when the lead is over, or when the record that was handed over is completed.
    permit: SemaphorePermit<'a>,
}

impl<C: Completion> Lead<'_, C> {
    /// Logs the writer's record, if that needs no waiting; `None` when it must be handed over. When this returns `Ok`, the
    /// record must be applied before the lead is dropped.
    pub fn try_commit(&mut self, record: RecordRef<'_>, durability: Durability) -> Option<Result<(), LogError>> {
        let segments = self.segments.as_mut()?;
        match durability {
            Durability::None => Some(Ok(())),
            Durability::Flush => commit_now(segments, std::iter::once(record)),
            Durability::Sync => None,
        }
    }

    /// Leaves the writer's record to the task, ahead of all records that queued up behind it.
    pub fn hand_over(mut self, append: Append<C>) {
        if let Some(segments) = self.segments.take() {
            let mut queue = self.inner.queue.lock();
            queue.waiting.push_front(append);
            self.inner.hand_over(&mut queue, segments);
            drop(queue);
            if let Some(permit) = self.permit.split(self.permit.num_permits()) {
                permit.forget();
            }
        }
    }
}

impl<C: Completion> Drop for Lead<'_, C> {
    fn drop(&mut self) {
        let Some(segments) = self.segments.take() else {
            return;
        };
        let committing = Committing {
            inner: self.inner,
            segments: Some(segments),
        };
        if !std::thread::panicking() {
            committing.commit_queue(LEADER_GROUPS_MAX);
        }
    }
}

/// The segments while completions run. If one of these panics, some logged records may not have been applied. Then
/// dropping this gives the stream up.
struct Committing<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// Present until released or handed over.
    segments: Option<Box<Segments>>,
}

impl<C: Completion> Committing<'_, C> {
    fn commit_queue(mut self, groups_max: usize) {
        for _ in 0..groups_max {
            let Some(segments) = self.segments.as_mut() else { return };
            // Lets the next segment take over from a full one. Where it cannot, the groups of a leader still fit.
            let _ = segments.must_close();
            let group = {
                let mut queue = self.inner.queue.lock();
                if queue.waiting.is_empty() {
                    break;
                }
                let group = Group::gather(&mut queue.waiting, INLINE_BYTES_MAX, GROUP_RECORDS_MAX);
                if !group.bound().0.is_empty() {
                    group.put_back(&mut queue.waiting);
                    break;
                }
                group
            };
            let outcome = if group.free().is_unlogged() {
                Ok(())
            } else {
                match commit_now(segments, group.free().records()) {
                    Some(outcome) => outcome,
                    None => {
                        group.put_back(&mut self.inner.queue.lock().waiting);
                        break;
                    }
                }
            };
            self.inner.complete(group.into_parts().0, &outcome);
        }
        self.release();
    }

    /// Lets the stream rest, or hands over to the task.
    fn release(mut self) {
        let Some(mut segments) = self.segments.take() else {
            return;
        };
        let must_close = segments.must_close();
        let mut queue = self.inner.queue.lock();
        if queue.is_empty() && !must_close {
            queue.rest(segments);
        } else {
            self.inner.hand_over(&mut queue, segments);
        }
    }
}

impl<C: Completion> Drop for Committing<'_, C> {
    fn drop(&mut self) {
        if self.segments.is_some() {
            self.inner.give_up();
        }
    }
}

/// Appends and acknowledges a group that needs no sync; `None` if that would have to wait.
fn commit_now<'r>(
    segments: &mut Segments,
    records: impl Iterator<Item = RecordRef<'r>> + Clone,
) -> Option<Result<(), LogError>> {
    let outcome = segments.try_append(records.clone())?;
    match &outcome {
        Ok(()) => {
            segments.acknowledge(records);
            segments.shared.metrics.inline_groups.inc();
        }
        Err(error) => segments.refuse(error),
    }
    Some(outcome)
}
