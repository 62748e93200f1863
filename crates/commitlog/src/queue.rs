//! The queue of one stream, and the party that may take from it.
//!
//! At any time at most one party owns the stream's [`Segments`] and commits: a writer that found the stream idle, or the
//! stream's task. [`Queue`] says which: the segments are `idle` while nobody commits, `handed` on their way to the task, and
//! absent from the queue while their owner commits.
//!
//! Invariant: records that wait while the segments are idle are being gathered. Their writers have
//! [`Gathered`](crate::Gathered), of which the first that ends commits them all.

use crate::error::LogError;
use crate::group::{Append, Completion, complete, queue_cost};
use crate::mark::{LogClock, Mark};
use crate::segment::{Segments, Shared};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use stele_env::Env;
use tokio::sync::{Notify, Semaphore, oneshot};

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
    /// The clock of a server that archives its log: groups have their times, and segments stay until they are archived.
    pub clock: Option<Arc<LogClock>>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 32 << 20,
            queue_bytes: 64 << 20,
            group_bytes: 4 << 20,
            clock: None,
        }
    }
}

/// Records of one group; bounds the slices of one vectored append, and how long a leader works for others.
pub(crate) const GROUP_RECORDS_MAX: usize = 1024;

/// State shared by the handle of a stream, its leaders and its task.
pub(crate) struct Inner<C> {
    /// Held for moments, by writers with their tablet's sequencer locked.
    pub(crate) queue: Mutex<Queue<C>>,
    /// Bytes that the queue may still take; see [`queue_cost`].
    pub(crate) capacity: Semaphore,
    /// Tells the task that segments were handed over.
    pub(crate) wake: Notify,
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: LogOptions,
    pub(crate) env: Env,
}

pub(crate) struct Queue<C> {
    pub(crate) waiting: VecDeque<Append<C>>,
    pub(crate) orders: VecDeque<Order>,
    /// Present while nobody commits.
    idle: Option<Box<Segments>>,
    /// How often the idle segments were taken.
    pub(crate) turns: u64,
    /// On their way to the task.
    pub(crate) handed: Option<Box<Segments>>,
    pub(crate) closed: bool,
}

/// A request to the task, carried out when everything queued before is.
pub(crate) enum Order {
    /// Closes the open segment so that it can be deleted once flushed.
    Rotate(oneshot::Sender<()>),
    /// Writes a mark that survives power loss.
    Mark(Mark, oneshot::Sender<Result<(), LogError>>),
    /// Closes the stream.
    Close(Option<oneshot::Sender<()>>),
}

impl<C> Queue<C> {
    /// A queue of a stream that is idle.
    pub(crate) fn new(segments: Segments) -> Self {
        Queue {
            waiting: VecDeque::new(),
            orders: VecDeque::new(),
            idle: Some(Box::new(segments)),
            turns: 0,
            handed: None,
            closed: false,
        }
    }

    /// Whether there is nothing to commit and nothing to carry out.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.orders.is_empty()
    }

    /// Whether nobody commits.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.is_some()
    }

    /// Takes the idle segments. The party that takes them commits all records that wait, or leaves them to the task.
    pub(crate) fn take_idle(&mut self) -> Option<Box<Segments>> {
        let segments = self.idle.take()?;
        self.turns += 1;
        Some(segments)
    }

    /// Gives the segments back: the next writer leads.
    pub(crate) fn rest(&mut self, segments: Box<Segments>) {
        assert!(self.is_empty(), "a stream rests when its queue is empty");
        self.assert_owned_elsewhere();
        self.idle = Some(segments);
    }

    /// A stream has one [`Segments`]: the caller owns it.
    fn assert_owned_elsewhere(&self) {
        assert!(
            self.idle.is_none() && self.handed.is_none(),
            "one party at a time owns the segments of a stream"
        );
    }
}

impl<C> Inner<C> {
    pub(crate) fn cost(&self, payload_bytes: usize) -> u32 {
        // The options' limit bounds it, and the format's bounds a payload: half a gigabyte.
        u32::try_from(queue_cost(payload_bytes, self.options.queue_bytes)).unwrap_or(u32::MAX)
    }

    /// Leaves the segments to the task.
    pub(crate) fn hand_over(&self, queue: &mut Queue<C>, segments: Box<Segments>) {
        queue.assert_owned_elsewhere();
        queue.handed = Some(segments);
        self.wake.notify_one();
    }

    /// Gives the task an order. `false` when the stream is closed.
    pub(crate) fn order(&self, order: Order) -> bool {
        let mut queue = self.queue.lock();
        if queue.closed {
            return false;
        }
        if matches!(order, Order::Close(_)) {
            queue.closed = true;
            self.capacity.close();
        }
        queue.orders.push_back(order);
        if let Some(segments) = queue.take_idle() {
            self.hand_over(&mut queue, segments);
        }
        true
    }
}

impl<C: Completion> Inner<C> {
    /// Closes the queue, and returns the waiting records.
    pub(crate) fn shut(&self) -> VecDeque<Append<C>> {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.capacity.close();
        // The sender of an order learns of it by the end of its channel.
        queue.orders.clear();
        std::mem::take(&mut queue.waiting)
    }

    /// Ends the stream after a panic in which the segments were lost: waiting and future records are refused.
    pub(crate) fn give_up(&self) {
        tracing::error!("a commit panicked: the commit log takes no more writes");
        let waiting = self.shut();
        // Also records that asked for no log: they would be applied to state that the panic left half changed.
        waiting
            .into_iter()
            .for_each(|append| append.done.complete(Err(LogError::Closed)));
    }

    /// Tells records their outcome and returns their share of the queue's capacity.
    pub(crate) fn complete(&self, appends: Vec<Append<C>>, outcome: &Result<(), LogError>) {
        let cost = |append: &Append<C>| self.cost(append.record.payload.len()) as usize;
        let returned = appends.iter().map(cost).sum::<usize>();
        complete(appends.into_iter(), outcome);
        self.capacity.add_permits(returned);
        debug_assert!(
            self.capacity.available_permits() <= self.options.queue_bytes,
            "a record returns its share of the queue once"
        );
    }
}
