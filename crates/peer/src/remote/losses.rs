//! Connections to other servers that were lost.
//!
//! A connection is *lost* when it was open, and ends though neither end has asked for that. The process at the other end may be gone, so a
//! loss is a reason to probe it. It is no evidence: a broken link loses connections, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Counts lost connections.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    count: AtomicU64,
    changed: Notify,
}

impl Losses {
    /// A connection was lost.
    pub(crate) fn note(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        // Waiting tasks are woken in the order in which they began to wait, so that a simulation repeats.
        self.0.changed.notify_waiters();
    }

    /// Waits for losses from now on.
    pub fn watch(&self) -> LossWatch {
        LossWatch {
            seen: self.0.count.load(Ordering::Acquire),
            counted: Arc::clone(&self.0),
        }
    }
}

/// Waits for losses.
#[derive(Debug)]
pub struct LossWatch {
    counted: Arc<Counted>,
    /// How many are known to the caller.
    seen: u64,
}

impl LossWatch {
    /// Completes when connections were lost since the last completion. Dropped earlier, it forgets none.
    pub async fn lost(&mut self) {
        loop {
            // Before the count is read: it is woken by every loss from here on.
            let changed = self.counted.changed.notified();
            let count = self.counted.count.load(Ordering::Acquire);
            if count != self.seen {
                assert!(count > self.seen, "losses are counted up");
                self.seen = count;
                return;
            }
            changed.await;
        }
    }
}
