//! Watches are bounded queues of changes.
//!
//! A watcher that does not keep up loses the queued events and finds a [`WatchEvent::Resync`] in their place: it lists
//! again. Changes after the `Resync` follow it, and may be older than that listing; versions tell.

use crate::error::{CoordError, Result};
use crate::limits::WATCHES_MAX;
use crate::txn::Versioned;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Most events waiting in one watch: eight transactions of the largest size, a few hundred KiB.
pub const WATCH_EVENTS_MAX: usize = 1024;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A key was set.
    Put {
        /// The key.
        key: String,
        /// Its current value and version.
        current: Versioned,
    },
    /// A key was removed, or vanished with its session.
    Deleted {
        /// The key.
        key: String,
        /// The revision as of which it is gone.
        revision: u64,
    },
    /// Events were lost: list again.
    Resync,
}

impl WatchEvent {
    /// The revision of the change; `None` for `Resync`.
    pub fn revision(&self) -> Option<u64> {
        match self {
            WatchEvent::Put { current, .. } => Some(current.version),
            WatchEvent::Deleted { revision, .. } => Some(*revision),
            WatchEvent::Resync => None,
        }
    }

    /// The key that changed; `None` for `Resync`.
    pub fn key(&self) -> Option<&str> {
        match self {
            WatchEvent::Put { key, .. } | WatchEvent::Deleted { key, .. } => Some(key),
            WatchEvent::Resync => None,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    prefix: String,
    /// Changes up to this revision are older than the watch. Zero where that cannot be.
    after: u64,
    /// At most `WATCH_EVENTS_MAX`; `closed` once nothing will follow.
    waiting: Mutex<Waiting>,
    changed: Notify,
}

impl Queue {
    fn wants(&self, event: &WatchEvent) -> bool {
        let is_new = event.revision().is_none_or(|revision| revision > self.after);
        is_new && event.key().is_none_or(|key| key.starts_with(&self.prefix))
    }
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<WatchEvent>,
    closed: bool,
}

/// The receiving end. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    queue: Arc<Queue>,
}

impl Watch {
    /// The next change; waits for one. `None` when the coordinator was shut down.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            {
                let mut waiting = self.queue.waiting.lock();
                if let Some(event) = waiting.events.pop_front() {
                    return Some(event);
                }
                if waiting.closed {
                    return None;
                }
            }
            // A change since the check left a permit: `notify_one` is not lost.
            self.queue.changed.notified().await;
        }
    }

    /// The next change, if one is queued.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        self.queue.waiting.lock().events.pop_front()
    }
}

/// The sending ends, for backends.
#[derive(Debug, Default)]
pub struct Watchers {
    queues: Vec<Weak<Queue>>,
}

impl Watchers {
    /// A new watch on keys that begin with `prefix`.
    pub fn watch(&mut self, prefix: &str) -> Result<Watch> {
        self.watch_after(prefix, 0)
    }

    /// A new watch that is told only of changes after a revision. For backends that learn of changes with a delay.
    pub fn watch_after(&mut self, prefix: &str, after: u64) -> Result<Watch> {
        self.queues.retain(|queue| queue.strong_count() > 0);
        if self.queues.len() >= WATCHES_MAX {
            return Err(CoordError::Full {
                message: format!("{WATCHES_MAX} watches"),
            });
        }
        let queue = Arc::new(Queue {
            prefix: prefix.to_owned(),
            after,
            ..Queue::default()
        });
        self.queues.push(Arc::downgrade(&queue));
        assert!(self.queues.len() <= WATCHES_MAX, "watches are bounded");
        Ok(Watch { queue })
    }

    /// Queues an event in every watch on its key. Never waits.
    pub fn send(&mut self, event: &WatchEvent) {
        self.queues.retain(|queue| {
            let Some(queue) = queue.upgrade() else {
                return false;
            };
            if queue.wants(event) {
                let mut waiting = queue.waiting.lock();
                assert!(!waiting.closed, "a closed watch gets no events");
                if waiting.events.len() >= WATCH_EVENTS_MAX {
                    waiting.events.clear();
                    waiting.events.push_back(WatchEvent::Resync);
                }
                // One demand to list again suffices for all losses before it is read.
                if waiting.events.back() != Some(&WatchEvent::Resync) || *event != WatchEvent::Resync {
                    waiting.events.push_back(event.clone());
                }
                assert!(
                    waiting.events.len() <= WATCH_EVENTS_MAX,
                    "the events of a watch are bounded"
                );
                drop(waiting);
                queue.changed.notify_one();
            }
            true
        });
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for queue in self.queues.iter().filter_map(Weak::upgrade) {
            queue.waiting.lock().closed = true;
            queue.changed.notify_one();
        }
    }
}
