//! The pool: all consumers, the overdraft, and the callbacks that free memory for them.

use crate::queue::Queue;
use crate::shares::{ALL, OVERDRAFT_BYTES, PARTS, Part, SHARES};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Changes of reserved bytes that are worth telling. Small requests, which come and go by the thousand, stay below it.
const STEP_BYTES: usize = 4 << 20;

/// The pool of one server. Cloning shares it.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    consumers: [Queue; PARTS],
    /// One permit: the overdraft.
    overdraft: Arc<Semaphore>,
    /// Callers that wait for it.
    overdraft_waiters: AtomicUsize,
    /// Bytes of memtables above the share that the governor gave them.
    memtable_excess: AtomicUsize,
    listener: Mutex<Option<Arc<Listener>>>,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
}

/// Bytes that are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of requests and responses, and of the overdraft.
    pub calls: usize,
    /// Of memtables above their share.
    pub memtables: usize,
    /// Of batches, rows of writes, values, readahead and other servers.
    pub other: usize,
}

/// Shrinks caches to fit the usage, which it asks for under its own lock; returns how long the memory that it freed takes
/// to be returned to the system.
pub type Listener = dyn Fn(&dyn Fn() -> Usage) -> Duration + Send + Sync;

/// A holder of reservations that can cancel some that make no progress.
pub trait Reclaim: Send + Sync {
    /// Cancels reservations that make no progress, about `bytes` of them. Called every 100 ms while a caller waits.
    fn reclaim(&self, bytes: usize);

    /// Cancels the reservation that has the overdraft, if it is one of this holder's and makes no progress.
    fn reclaim_overdraft(&self);
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.usage()).finish()
    }
}

impl Default for Pool {
    /// For a server with 4 GiB.
    fn default() -> Self {
        Pool::new(4 << 30)
    }
}

impl Pool {
    /// A pool with the shares of this budget.
    pub fn new(budget: u64) -> Pool {
        Pool::with_limits(|part| usize::try_from(SHARES[part as usize].of(budget)).unwrap_or(usize::MAX))
    }

    /// A pool whose consumers have these limits in bytes.
    pub fn with_limits(limit: impl Fn(Part) -> usize) -> Pool {
        Pool(Arc::new(Shared {
            consumers: ALL.map(|part| Queue::new(limit(part))),
            overdraft: Arc::new(Semaphore::new(1)),
            overdraft_waiters: AtomicUsize::new(0),
            memtable_excess: AtomicUsize::new(0),
            listener: Mutex::default(),
            reclaimers: Mutex::default(),
        }))
    }

    /// The same pool with another limit of one part, in bytes; before anything is reserved.
    #[must_use]
    pub fn limited(self, part: Part, bytes: usize) -> Pool {
        self.queue(part).set_limit(bytes);
        self
    }

    pub(crate) fn queue(&self, part: Part) -> &Queue {
        &self.0.consumers[part as usize]
    }

    pub(crate) fn overdraft(&self) -> &Arc<Semaphore> {
        &self.0.overdraft
    }

    pub(crate) fn waiters(&self) -> &AtomicUsize {
        &self.0.overdraft_waiters
    }

    /// Whether a request has the overdraft.
    pub fn is_overdrawn(&self) -> bool {
        self.0.overdraft.available_permits() == 0
    }

    /// Bytes that are reserved.
    pub fn usage(&self) -> Usage {
        let of = |part: Part| self.queue(part).used();
        let overdraft = if self.is_overdrawn() { OVERDRAFT_BYTES } else { 0 };
        Usage {
            calls: of(Part::Requests) + of(Part::Responses) + overdraft,
            memtables: self.0.memtable_excess.load(Ordering::Relaxed),
            other: of(Part::Batches)
                + of(Part::WriteRows)
                + of(Part::Values)
                + of(Part::Readahead)
                + of(Part::Peers)
                + of(Part::PeerRows),
        }
    }

    /// Sets the bytes of memtables above their share.
    pub fn set_memtable_excess(&self, bytes: usize) {
        let before = self.0.memtable_excess.swap(bytes, Ordering::Relaxed);
        if before / STEP_BYTES != bytes / STEP_BYTES {
            self.changed();
        }
    }

    /// Calls the listener from now on when the usage changes, in place of an earlier one. It runs on the thread of the
    /// caller that changes the usage.
    pub fn on_change(&self, listener: Arc<Listener>) {
        *self.0.listener.lock() = Some(listener);
        self.changed();
    }

    /// Reserved bytes of a part went from one value to another.
    pub(crate) fn moved(&self, part: Part, before: usize, now: usize) {
        let is_told = matches!(part, Part::Requests | Part::Responses);
        if is_told && before / STEP_BYTES != now / STEP_BYTES {
            self.changed();
        }
    }

    pub(crate) fn changed(&self) -> Duration {
        let listener = self.0.listener.lock().clone();
        listener.map_or(Duration::ZERO, |listener| listener(&|| self.usage()))
    }

    /// Adds a holder that can cancel reservations.
    pub fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = self.0.reclaimers.lock();
        reclaimers.retain(|known| known.strong_count() > 0);
        reclaimers.push(reclaimer);
    }

    fn reclaimers(&self) -> Vec<Arc<dyn Reclaim>> {
        self.0.reclaimers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Cancels reservations that make no progress, about `bytes` of them.
    pub fn reclaim(&self, bytes: usize) {
        self.reclaimers().iter().for_each(|holder| holder.reclaim(bytes));
    }

    pub(crate) fn reclaim_overdraft(&self) {
        self.reclaimers().iter().for_each(|holder| holder.reclaim_overdraft());
    }
}
