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
    /// At most `WATCH_EVENTS_MAX`; `closed` once nothing will follow.
    waiting: Mutex<Waiting>,
    changed: Notify,
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
        self.queues.retain(|queue| queue.strong_count() > 0);
        if self.queues.len() >= WATCHES_MAX {
            return Err(CoordError::Full {
                message: format!("{WATCHES_MAX} watches"),
            });
        }
        let queue = Arc::new(Queue {
            prefix: prefix.to_owned(),
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
            if event.key().is_none_or(|key| key.starts_with(&queue.prefix)) {
                let mut waiting = queue.waiting.lock();
                assert!(!waiting.closed, "a closed watch gets no events");
                if waiting.events.len() >= WATCH_EVENTS_MAX {
                    waiting.events.clear();
                    waiting.events.push_back(WatchEvent::Resync);
                }
                waiting.events.push_back(event.clone());
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
