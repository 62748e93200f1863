//! One stream: a queue, and whoever turns what is queued into groups.
//!
//! At any time at most one party has the stream's [`Segments`] and commits: the *leader*, a writer that found the stream
//! idle, or the stream's task. (Leader and followers as in RocksDB's write thread.)
//!
//! * A leader logs its own record with one append on its own thread, applies it, then does the same for at most
//!   [`LEADER_GROUPS_MAX`] groups that queued up meanwhile, and lets go. It never waits, so that a caller that goes away
//!   cannot leave a commit half done. Whatever must wait (a sync, a new segment, a very large append, more than its share) it
//!   hands over to the task, and is from there on a writer like all others.
//! * The task goes on until the queue is empty (`task`).
//!
//! A panic on the way (where it does not end the process) ends the stream: nobody is told of success, or kept waiting,
//! whose record may not have been applied.
//!
//! Cost of a small write in the idle case: two locks of the queue, one permit, one append, no allocation, no task. In
//! the other case: one place in the queue, one answer channel, its share of an append and of a sync, one wake-up.
//!
//! A writer first takes a [`Slot`], then fixes its sequence number, then submits into the slot: submission never waits,
//! so a tablet can hold its sequencer lock across it, and records of one tablet queue in sequence order.

use crate::error::LogError;
use crate::format::{PAYLOAD_BYTES_MAX, RecordRef};
use crate::group::{Append, Completion, Group, complete, queue_cost};
use crate::metrics::LogMetrics;
use crate::retention::{Retention, SegmentInfo};
use crate::segment::{INLINE_BYTES_MAX, Next, Previous, SegmentNumbers, Segments, Shared};
use crate::task;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::Env;
use stele_storage::{Storage, StorageError};
use stele_types::{Durability, SeqNo, TabletId};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

/// Settings of a stream.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// A segment is closed when it grows past this. 32 MiB: large enough that its creation (two syncs) is noise, small
    /// enough that space comes back soon after a flush.
    pub segment_bytes: u64,
    /// Payload bytes that may wait; more makes writers wait.
    pub queue_bytes: usize,
    /// Payload bytes of one group. Bounds how long a small write waits behind large ones.
    pub group_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 32 << 20,
            queue_bytes: 64 << 20,
            group_bytes: 4 << 20,
        }
    }
}

/// Records of one group; bounds the slices of one vectored append, and how long a leader works for others.
pub(crate) const GROUP_RECORDS_MAX: usize = 1024;
/// Groups that a leader commits for others. Few, since its own caller waits meanwhile, and one group holds what was
/// queued during the one before: with two the followers of a lone leader mostly need no task.
const LEADER_GROUPS_MAX: usize = 2;

/// A handle to a running stream.
pub struct LogStream<C: Completion> {
    inner: Arc<Inner<C>>,
}

/// Keeps a stream's segments where they are.
pub struct HeldSegments(Arc<Shared>);

impl Drop for HeldSegments {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the handle and the task share.
pub(crate) struct Inner<C> {
    /// Held for moments, by writers with their tablet's sequencer locked.
    pub(crate) queue: Mutex<Queue<C>>,
    /// Bytes of the queue; see [`queue_cost`].
    pub(crate) room: Semaphore,
    /// Tells the task that segments were handed over.
    pub(crate) wake: Notify,
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: LogOptions,
    pub(crate) env: Env,
}

pub(crate) struct Queue<C> {
    pub(crate) waiting: VecDeque<Append<C>>,
    pub(crate) orders: VecDeque<Order>,
    /// Here while nobody commits.
    pub(crate) idle: Option<Box<Segments>>,
    /// On their way to the task.
    pub(crate) handed: Option<Box<Segments>>,
    pub(crate) closed: bool,
}

/// Done by the task when everything queued before is.
pub(crate) enum Order {
    /// Closes the open segment so that it can be deleted once flushed.
    Rotate(oneshot::Sender<()>),
    /// Closes the stream.
    Close(Option<oneshot::Sender<()>>),
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
        let shared = Arc::new(Shared {
            storage,
            metrics,
            retention: Mutex::new(retention),
            deleting: tokio::sync::Mutex::default(),
            readers: AtomicU64::new(0),
            unsynced: Mutex::default(),
            open_bytes: AtomicU64::new(0),
        });
        let segments = Segments {
            env: env.clone(),
            stream,
            segment_bytes: options.segment_bytes,
            next_segment,
            shared: shared.clone(),
            open: None,
            previous: Previous::default(),
            tail: None,
            since_demand: u32::MAX,
            next: Next::default(),
            frame: Vec::new(),
            told_at: None,
        };
        let queue = Queue {
            waiting: VecDeque::new(),
            orders: VecDeque::new(),
            idle: Some(Box::new(segments)),
            handed: None,
            closed: false,
        };
        let inner = Arc::new(Inner {
            queue: Mutex::new(queue),
            room: Semaphore::new(options.queue_bytes.min(u32::MAX as usize)),
            wake: Notify::new(),
            shared,
            options,
            env: env.clone(),
        });
        env.spawn("commit-log", task::run(inner.clone()));
        LogStream { inner }
    }

    /// Waits for room for a payload of this size. Refuses a record that the format cannot hold.
    pub async fn slot(&self, payload_bytes: usize) -> Result<Slot<'_, C>, LogError> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(LogError::TooLarge {
                bytes: payload_bytes,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let inner = &*self.inner;
        let cost = inner.cost(payload_bytes);
        let room = match inner.room.try_acquire_many(cost) {
            Ok(room) => room,
            Err(_) => inner.room.acquire_many(cost).await.map_err(|_| LogError::Closed)?,
        };
        Ok(Slot { inner, room })
    }

    /// Bytes on the medium, open segment included.
    pub fn retained_bytes(&self) -> u64 {
        let shared = &self.inner.shared;
        shared.retention.lock().bytes() + shared.open_bytes.load(Ordering::Relaxed)
    }

    /// Closed segments that would be lost with the power.
    #[cfg(test)]
    pub(crate) fn unsynced_segments(&self) -> usize {
        self.inner.shared.unsynced.lock().len()
    }

    /// Deletes the segments that nobody needs. `is_flushed(tablet, seq)` says whether the tablet's files hold everything
    /// up to `seq`, or the tablet is no more.
    pub async fn delete_unneeded(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Result<usize, LogError> {
        let shared = &self.inner.shared;
        let _deleting = shared.deleting.lock().await;
        if shared.readers.load(Ordering::Relaxed) > 0 {
            return Ok(0);
        }
        let mut unneeded = shared.retention.lock().take_unneeded(is_flushed).into_iter();
        let mut count = 0;
        while let Some((number, info)) = unneeded.next() {
            if let Err(error) = shared.storage.delete(&info.path).await {
                // Those behind it stay as well: the header of each says what counts of the one before.
                let mut retention = shared.retention.lock();
                retention.add(number, info);
                unneeded.for_each(|(number, info)| retention.add(number, info));
                return Err(error.into());
            }
            let file = shared.unsynced.lock().remove(&number);
            if file.is_some() {
                // The last to close a deleted file waits until its blocks are freed, 30 ms and more where the device is told
                // to discard them: not under the lock, nor on a thread that others need. Only a runtime that ends says no.
                let _ = self.inner.env.blocking(move || drop(file)).await;
            }
            shared.metrics.retained_bytes.sub(info.len as i64);
            count += 1;
        }
        Ok(count)
    }

    /// Bytes that cannot be deleted as long as somebody `needs` a record of theirs.
    pub fn bytes_kept_by(&self, needs: impl Fn(TabletId, SeqNo) -> bool) -> u64 {
        self.inner.shared.retention.lock().bytes_kept_by(needs)
    }

    /// The tablets that keep the oldest closed segment, or the oldest that another process has left.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        self.inner.shared.retention.lock().oldest_holders(is_flushed)
    }

    /// The tablets with records that were acknowledged, are not flushed, and will never be synced, because that has failed: until
    /// they are flushed, power loss takes them.
    pub fn forsaken_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> BTreeSet<TabletId> {
        self.inner.shared.retention.lock().forsaken_holders(is_flushed)
    }

    /// No segment is deleted as long as this is held: for who reads the log.
    pub async fn hold_segments(&self) -> HeldSegments {
        let shared = self.inner.shared.clone();
        // Behind a deletion that is under way.
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

    /// Completes what is queued, then refuses everything.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.inner.order(Order::Close(Some(done))) {
            let _ = closed.await;
        }
    }
}

impl<C: Completion> Drop for LogStream<C> {
    fn drop(&mut self) {
        self.inner.order(Order::Close(None));
    }
}

impl<C> Inner<C> {
    pub(crate) fn cost(&self, payload_bytes: usize) -> u32 {
        // The options' limit bounds it, and the format's bounds a payload: half a gigabyte.
        u32::try_from(queue_cost(payload_bytes, self.options.queue_bytes)).unwrap_or(u32::MAX)
    }

    /// Leaves the segments to the task.
    fn hand_over(&self, queue: &mut Queue<C>, segments: Box<Segments>) {
        queue.handed = Some(segments);
        self.wake.notify_one();
    }

    /// Gives the task something to do; whether it is there to do it.
    fn order(&self, order: Order) -> bool {
        let mut queue = self.queue.lock();
        if queue.closed {
            return false;
        }
        if matches!(order, Order::Close(_)) {
            queue.closed = true;
            self.room.close();
        }
        queue.orders.push_back(order);
        if let Some(segments) = queue.idle.take() {
            self.hand_over(&mut queue, segments);
        }
        true
    }
}

impl<C: Completion> Inner<C> {
    /// Takes no more, and gives back what waits.
    pub(crate) fn shut(&self) -> VecDeque<Append<C>> {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.room.close();
        // Whoever gave one learns of it by its answer's end.
        queue.orders.clear();
        std::mem::take(&mut queue.waiting)
    }

    /// Ends the stream after a panic, on whose way the segments got lost: what waits is refused, and all that would come.
    pub(crate) fn give_up(&self) {
        tracing::error!("a commit panicked: the commit log takes no more writes");
        let waiting = self.shut();
        // What asked for no log as well: it would be applied to what the panic left behind.
        waiting
            .into_iter()
            .for_each(|append| append.done.complete(Err(LogError::Closed)));
    }

    /// Tells records their outcome and gives back their room.
    pub(crate) fn complete(&self, appends: Vec<Append<C>>, outcome: &Result<(), LogError>) {
        let cost = |append: &Append<C>| self.cost(append.record.payload.len()) as usize;
        let room = appends.iter().map(cost).sum();
        complete(appends.into_iter(), outcome);
        self.room.add_permits(room);
    }
}

/// The right to submit one record.
pub struct Slot<'a, C: Completion> {
    inner: &'a Inner<C>,
    room: SemaphorePermit<'a>,
}

/// What became of a record that was submitted.
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
    /// Takes the place of a record in the log: behind all that were submitted before. A writer that leads gets its
    /// record back; else `queued` makes of it what is queued, and something for the writer to wait with.
    pub fn submit<T, Q>(self, record: T, queued: impl FnOnce(T) -> (Append<C>, Q)) -> Submitted<'a, C, T, Q> {
        let mut queue = self.inner.queue.lock();
        if queue.closed {
            return Submitted::Closed;
        }
        match queue.idle.take() {
            Some(segments) => {
                drop(queue);
                let lead = Lead {
                    inner: self.inner,
                    segments: Some(segments),
                    room: self.room,
                };
                Submitted::Lead(lead, record)
            }
            None => {
                let (append, wait) = queued(record);
                queue.waiting.push_back(append);
                self.room.forget();
                Submitted::Queued(wait)
            }
        }
    }
}

/// The stream in the hands of a writer. Dropping it lets go: what has queued up is committed here or by the task.
pub struct Lead<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// Here until handed over or let go.
    segments: Option<Box<Segments>>,
    /// Given back when the lead is over, or when the record that was handed over is completed.
    room: SemaphorePermit<'a>,
}

impl<C: Completion> Lead<'_, C> {
    /// Logs the writer's record, if that can be done at once; `None` when it must be handed over. When this says `Ok`, the
    /// record must be applied before the lead is dropped.
    pub fn try_commit(&mut self, record: RecordRef<'_>, durability: Durability) -> Option<Result<(), LogError>> {
        let segments = self.segments.as_mut()?;
        match durability {
            Durability::None => Some(Ok(())),
            Durability::Flush => commit_now(segments, std::iter::once(record)),
            Durability::Sync => None,
        }
    }

    /// Leaves the writer's record to the task, ahead of all that queued up behind it.
    pub fn hand_over(mut self, append: Append<C>) {
        if let Some(segments) = self.segments.take() {
            let mut queue = self.inner.queue.lock();
            queue.waiting.push_front(append);
            self.inner.hand_over(&mut queue, segments);
            drop(queue);
            if let Some(room) = self.room.split(self.room.num_permits()) {
                room.forget();
            }
        }
    }
}

impl<C: Completion> Drop for Lead<'_, C> {
    fn drop(&mut self) {
        let Some(segments) = self.segments.take() else {
            return;
        };
        let in_hand = InHand {
            inner: self.inner,
            segments: Some(segments),
        };
        if !std::thread::panicking() {
            in_hand.commit_followers();
        }
    }
}

/// The segments while completions run. Should one of them panic, nobody knows what has been applied of what is in the log:
/// then dropping this gives the stream up.
struct InHand<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// Here until let go or handed over.
    segments: Option<Box<Segments>>,
}

impl<C: Completion> InHand<'_, C> {
    fn commit_followers(mut self) {
        for _ in 0..LEADER_GROUPS_MAX {
            let Some(segments) = self.segments.as_mut() else { return };
            let must_close = segments.must_close();
            let group = {
                let mut queue = self.inner.queue.lock();
                if queue.waiting.is_empty() && queue.orders.is_empty() && !must_close {
                    queue.idle = self.segments.take();
                    return;
                }
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
        let Some(mut segments) = self.segments.take() else {
            return;
        };
        let must_close = segments.must_close();
        let mut queue = self.inner.queue.lock();
        if queue.waiting.is_empty() && queue.orders.is_empty() && !must_close {
            queue.idle = Some(segments);
        } else {
            self.inner.hand_over(&mut queue, segments);
        }
    }
}

impl<C: Completion> Drop for InHand<'_, C> {
    fn drop(&mut self) {
        if self.segments.is_some() {
            self.inner.give_up();
        }
    }
}

/// Appends and acknowledges a group that needs no sync, if that can be done at once.
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

/// Whether an error means that the medium is full.
pub fn is_no_space(error: &LogError) -> bool {
    matches!(error, LogError::Storage(StorageError::NoSpace { .. }))
}
