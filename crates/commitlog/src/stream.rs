//! One stream: the handle through which records are submitted and segments are deleted.
//!
//! At any time at most one party owns the stream's segments and commits ([`queue`](crate::queue)):
//! * a leader, a writer that found the stream idle ([`lead`](crate::lead)); it never waits;
//! * the stream's task, until the queue is empty ([`task`](crate::task)).
//!
//! A panic in either (where it does not end the process) ends the stream. Then every writer is refused whose record may not
//! have been applied.
//!
//! Cost of a write: one permit, one place in the queue, one channel for the outcome, its share of an append and of a sync.
//! Small writes to an idle stream that need no sync are gathered and need no task; the others take one wake-up of it.
//!
//! A writer first takes a [`Slot`], then fixes its sequence number, then submits into the slot. Submission never waits. So a
//! tablet can hold its sequencer lock across it, and records of one tablet queue in sequence order.

use crate::error::LogError;
use crate::format::PAYLOAD_BYTES_MAX;
use crate::group::Completion;
use crate::lead::Slot;
use crate::mark::Mark;
use crate::metrics::LogMetrics;
use crate::queue::{Inner, LogOptions, Order, Queue};
use crate::retention::{LogPosition, Retention, SegmentInfo};
use crate::segment::{SegmentNumbers, Segments, Shared};
use crate::task;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stele_env::Env;
use stele_storage::Storage;
use stele_types::{SeqNo, TabletId};
use tokio::sync::{Notify, Semaphore, oneshot};

/// A handle to a running stream. Dropping it closes the stream.
pub struct LogStream<C: Completion> {
    inner: Arc<Inner<C>>,
}

/// Prevents deletion of a stream's segments while it is held.
pub struct HeldSegments(Arc<Shared>);

impl Drop for HeldSegments {
    fn drop(&mut self) {
        let readers = self.0.readers.fetch_sub(1, Ordering::Relaxed);
        assert!(readers > 0, "each reader of the log is counted once");
    }
}

impl<C: Completion> LogStream<C> {
    /// Starts stream number `stream`. `replayed` are the segments that recovery found, to be deleted when flushed.
    pub fn start(
        storage: Arc<dyn Storage>,
        env: Env,
        stream: u32,
        options: LogOptions,
        next_segment: SegmentNumbers,
        replayed: Vec<(u64, SegmentInfo)>,
        metrics: LogMetrics,
    ) -> Self {
        let mut retention = Retention::default();
        for (number, info) in replayed {
            metrics.retained_bytes.add(info.len as i64);
            retention.add(number, info);
        }
        let shared = Arc::new(Shared::new(storage, metrics, retention));
        let segment_bytes = options.segment_bytes;
        let segments = Segments::new(env.clone(), stream, segment_bytes, next_segment, shared.clone())
            .with_clock(options.clock.clone());
        let inner = Arc::new(Inner {
            queue: Mutex::new(Queue::new(segments)),
            capacity: Semaphore::new(options.queue_bytes.min(u32::MAX as usize)),
            wake: Notify::new(),
            shared,
            options,
            env: env.clone(),
        });
        env.spawn("commit-log", task::run(inner.clone()));
        LogStream { inner }
    }

    /// Waits until the queue has capacity for a payload of this size. Refuses a record that the format cannot hold.
    pub async fn slot(&self, payload_bytes: usize) -> Result<Slot<'_, C>, LogError> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(LogError::TooLarge {
                bytes: payload_bytes,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let inner = &*self.inner;
        let cost = inner.cost(payload_bytes);
        let permit = match inner.capacity.try_acquire_many(cost) {
            Ok(permit) => permit,
            Err(_) => inner.capacity.acquire_many(cost).await.map_err(|_| LogError::Closed)?,
        };
        Ok(Slot::new(inner, payload_bytes, permit))
    }

    /// Bytes on storage, open segment included.
    pub fn retained_bytes(&self) -> u64 {
        let shared = &self.inner.shared;
        shared.retention.lock().bytes() + shared.open_bytes.load(Ordering::Relaxed)
    }

    /// Closed segments that are not synced.
    #[cfg(test)]
    pub(crate) fn unsynced_segments(&self) -> usize {
        self.inner.shared.unsynced.lock().len()
    }

    /// Deletes the segments that are no longer needed; their number. `is_flushed(tablet, seq)` says whether the tablet's files
    /// hold everything up to `seq`, or the tablet no longer exists. If the future is dropped half-way, or fails, the next call
    /// goes on where it ended.
    pub async fn delete_unneeded(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Result<usize, LogError> {
        let shared = &self.inner.shared;
        let _deleting = shared.deleting.lock().await;
        if shared.readers.load(Ordering::Relaxed) > 0 {
            return Ok(0);
        }
        let segments = shared.retention.lock().take_unneeded(is_flushed).into();
        let mut unneeded = Unneeded { shared, segments };
        let mut count = 0;
        while let Some((_, info)) = unneeded.segments.front() {
            // Those behind one that cannot be deleted stay as well: the header of each states where the one before ends.
            shared.storage.delete(&info.path).await?;
            let Some((number, info)) = unneeded.segments.pop_front() else {
                break;
            };
            shared.metrics.retained_bytes.sub(info.len as i64);
            count += 1;
            let file = shared.unsynced.lock().remove(&number);
            if file.is_some() {
                // The last close of a deleted file waits until its blocks are freed: 30 ms and more where the device is
                // told to discard them. So it happens neither under the lock nor on a thread that runs tasks. An error
                // means that the runtime ends.
                let _ = self.inner.env.blocking(move || drop(file)).await;
            }
        }
        Ok(count)
    }

    /// Bytes of segments that cannot be deleted while a caller `needs` a record in them.
    pub fn bytes_kept_by(&self, needs: impl Fn(TabletId, SeqNo) -> bool) -> u64 {
        self.inner.shared.retention.lock().bytes_kept_by(needs)
    }

    /// The tablets that keep the oldest closed segment, or the oldest one of an earlier process.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        self.inner.shared.retention.lock().oldest_holders(is_flushed)
    }

    /// The tablets with records that were acknowledged, are not flushed, and will never be synced, because a sync has failed.
    /// Power loss may take these records until their tablets are flushed.
    pub fn forsaken_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> BTreeSet<TabletId> {
        self.inner.shared.retention.lock().forsaken_holders(is_flushed)
    }

    /// For a reader of the log: no segment is deleted while the result is held.
    pub async fn hold_segments(&self) -> HeldSegments {
        let shared = self.inner.shared.clone();
        // After a deletion that is under way.
        let _deleting = self.inner.shared.deleting.lock().await;
        shared.readers.fetch_add(1, Ordering::Relaxed);
        HeldSegments(shared)
    }

    /// Closes the open segment, so that flushes can free it.
    pub async fn rotate(&self) {
        let (done, rotated) = oneshot::channel();
        if self.inner.order(Order::Rotate(done)) {
            let _ = rotated.await;
        }
    }

    /// Writes a mark; returns when it survives power loss.
    pub async fn mark(&self, mark: Mark) -> Result<(), LogError> {
        let (done, marked) = oneshot::channel();
        match self.inner.order(Order::Mark(mark, done)) {
            true => marked.await.unwrap_or(Err(LogError::Closed)),
            false => Err(LogError::Closed),
        }
    }

    /// The acknowledged parts of the segments that wait for the archive, oldest first, the open one included.
    pub fn positions(&self) -> Vec<LogPosition> {
        self.inner.shared.retention.lock().positions()
    }

    /// Notes that a closed segment need not stay for the archive any more.
    pub fn archived(&self, number: u64) {
        self.inner.shared.retention.lock().archived(number);
    }

    /// Bytes of closed segments that stay for the archive alone.
    pub fn bytes_kept_for_archive(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> u64 {
        self.inner.shared.retention.lock().bytes_kept_for_archive(is_flushed)
    }

    /// Completes the queued records, then refuses all others.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.inner.order(Order::Close(Some(done))) {
            let _ = closed.await;
        }
    }
}

/// Segments on their way out, oldest first. Each leaves when it is deleted; dropping this keeps the others. The first of them may be
/// gone from storage, if its deletion was not waited for: deleting it again does no harm.
struct Unneeded<'a> {
    shared: &'a Shared,
    segments: VecDeque<(u64, SegmentInfo)>,
}

impl Drop for Unneeded<'_> {
    fn drop(&mut self) {
        if self.segments.is_empty() {
            return;
        }
        let mut retention = self.shared.retention.lock();
        for (number, info) in self.segments.drain(..) {
            let other = retention.add(number, info);
            debug_assert!(other.is_none(), "a segment that is being deleted is not listed");
        }
    }
}

impl<C: Completion> Drop for LogStream<C> {
    fn drop(&mut self) {
        self.inner.order(Order::Close(None));
    }
}
