//! A record enters a stream through a slot, as its leader or in its queue.
//!
//! A *leader* is a writer that found the stream idle (as in RocksDB's write thread). It logs its own record with one append
//! on its own thread and applies it. Then it does the same for at most [`LEADER_GROUPS_MAX`] groups that queued up
//! meanwhile, and releases the stream. It never waits, so a caller that is cancelled cannot leave a commit half done. It
//! hands over to the task all work that must wait: a sync, a new segment, a very large append, more than its share of groups.

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

/// The right to submit one record.
pub struct Slot<'a, C: Completion> {
    inner: &'a Inner<C>,
    permit: SemaphorePermit<'a>,
}

/// The outcome of a submission.
#[must_use]
pub enum Submitted<'a, C: Completion, T, Q> {
    /// The stream was idle, and is the writer's. Its record is not queued: it must commit it, or hand it over, before it
    /// does anything that waits.
    Lead(Lead<'a, C>, T),
    /// It is queued; its completion will be told.
    Queued(Q),
    /// The stream has been closed; the record will not be written.
    Closed,
}

impl<'a, C: Completion> Slot<'a, C> {
    pub(crate) fn new(inner: &'a Inner<C>, permit: SemaphorePermit<'a>) -> Self {
        Slot { inner, permit }
    }

    /// Takes the place of a record in the log: behind all that were submitted before. A writer that leads gets its
    /// record back. Else `queued` makes the queued append from it, and something for the writer to wait with.
    pub fn submit<T, Q>(self, record: T, queued: impl FnOnce(T) -> (Append<C>, Q)) -> Submitted<'a, C, T, Q> {
        let mut queue = self.inner.queue.lock();
        if queue.closed {
            return Submitted::Closed;
        }
        match queue.idle.take() {
            Some(segments) => {
                assert!(queue.waiting.is_empty(), "a leader overtakes no queued record");
                drop(queue);
                let lead = Lead {
                    inner: self.inner,
                    segments: Some(segments),
                    permit: self.permit,
                };
                Submitted::Lead(lead, record)
            }
            None => {
                let (append, wait) = queued(record);
                queue.waiting.push_back(append);
                self.permit.forget();
                Submitted::Queued(wait)
            }
        }
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
            committing.commit_followers();
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
    fn commit_followers(mut self) {
        for _ in 0..LEADER_GROUPS_MAX {
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
