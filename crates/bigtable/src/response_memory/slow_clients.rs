//! Cancels responses of slow clients while others wait for their memory.
//!
//! A response is *overdue* when its client has read nothing of it for [`PATIENCE`], or reads it so slowly that its
//! batch would stay in memory for much longer. An overdue response is harmless until others wait for memory. Then the
//! most overdue responses are cancelled first, until enough memory is free.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::metrics::IntCounter;

/// How long a client may read nothing of a response while others wait for its memory. It is longer than a pause for
/// garbage collection or a slow network, and half as long as the waiters wait. A client of a cancelled response loses a
/// moment: it continues after the last row that it has.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The slowest rate at which a batch may be read after that, the same as for the arrival of requests. A batch stays in
/// memory for 15 s at most.
const BYTES_PER_SECOND: u64 = 256 << 10;

/// A response that holds memory at the pace of its client.
pub(crate) trait Paced: Send + Sync {
    /// By how much it is overdue, if it is, and if it holds memory.
    fn overdue(&self, now: Duration) -> Option<Overdue>;

    /// Cancels it if it is still overdue. Returns the freed bytes.
    fn cancel(&self, now: Duration) -> usize;
}

/// A response whose client is slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    pub by: Duration,
    /// It has the overdraft.
    pub has_overdraft: bool,
}

/// How fast a client reads a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    batch: Duration,
    last: Duration,
    reserved_bytes: u64,
}

impl Pace {
    /// For a batch of which nothing has been read.
    pub fn new(now: Duration) -> Self {
        Pace {
            batch: now,
            last: now,
            reserved_bytes: 0,
        }
    }

    /// Counts bytes that the client has read.
    pub fn note(&mut self, now: Duration, bytes: usize) {
        self.last = now;
        self.reserved_bytes += bytes as u64;
    }

    /// By how much the client is too slow, if it is.
    pub fn overdue_by(&self, now: Duration) -> Option<Duration> {
        let in_time = Duration::from_millis(self.reserved_bytes.saturating_mul(1000) / BYTES_PER_SECOND);
        let still = now.checked_sub(self.last + PATIENCE);
        let slow = now.checked_sub(self.batch + PATIENCE + in_time);
        still.max(slow)
    }
}

/// All responses that may be cancelled. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Holders {
    shared: Arc<Mutex<Shared>>,
    cancelled: IntCounter,
}

#[derive(Default)]
struct Shared {
    next: u64,
    by_number: BTreeMap<u64, Weak<dyn Paced>>,
    /// The time of the last scan of all responses.
    last_scan: Option<Duration>,
}

/// Keeps one response registered until it is dropped.
pub(crate) struct Registered {
    shared: Arc<Mutex<Shared>>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.lock().by_number.remove(&self.number);
    }
}

/// Shortest time between two scans of all responses, however many requests wait.
const SCAN_INTERVAL: Duration = Duration::from_millis(10);

impl Holders {
    pub fn new(cancelled: IntCounter) -> Self {
        Holders {
            shared: Arc::default(),
            cancelled,
        }
    }

    pub fn register(&self, holder: Weak<dyn Paced>) -> Registered {
        let mut shared = self.shared.lock();
        let number = shared.next;
        shared.next += 1;
        shared.by_number.insert(number, holder);
        Registered {
            shared: Arc::clone(&self.shared),
            number,
        }
    }

    /// Cancels overdue responses until this many bytes are free, or none is left.
    pub fn cancel(&self, now: Duration, bytes: usize) {
        let holders: Vec<Weak<dyn Paced>> = {
            let mut shared = self.shared.lock();
            if shared
                .last_scan
                .is_some_and(|last_scan| now < last_scan + SCAN_INTERVAL)
            {
                return;
            }
            shared.last_scan = Some(now);
            shared.by_number.values().cloned().collect()
        };
        let mut overdue: Vec<_> = holders
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|holder| Some((holder.overdue(now)?.by, holder)))
            .collect();
        // Stable, so that equally overdue responses keep the order of their registration.
        overdue.sort_by_key(|(by, _)| std::cmp::Reverse(*by));
        let mut freed = 0;
        for (_, holder) in overdue {
            if freed >= bytes {
                break;
            }
            freed += self.counted(holder.cancel(now));
        }
    }

    /// Cancels the response that has the overdraft, if it is overdue.
    pub fn cancel_overdraft(&self, now: Duration) {
        let holders: Vec<_> = self.shared.lock().by_number.values().cloned().collect();
        for holder in holders.iter().filter_map(Weak::upgrade) {
            if holder.overdue(now).is_some_and(|overdue| overdue.has_overdraft) {
                self.counted(holder.cancel(now));
            }
        }
    }

    fn counted(&self, freed: usize) -> usize {
        self.cancelled.inc_by(u64::from(freed > 0));
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_late_that_takes_nothing_or_hardly_anything() {
        let at = Duration::from_secs;
        let mut pace = Pace::new(at(100));
        assert_eq!(pace.overdue_by(at(104)), None);
        assert_eq!(pace.overdue_by(at(107)), Some(at(2)));
        pace.note(at(104), 256 << 10);
        assert_eq!(pace.overdue_by(at(105)), None);
        assert_eq!(pace.overdue_by(at(109)), Some(at(3)), "the batch is there since 100");
        let mut quick = Pace::new(at(100));
        quick.note(at(104), 16 << 20);
        assert_eq!(quick.overdue_by(at(110)), Some(at(1)), "the last was taken at 104");
        // A client that reads a little now and then earns one second for the first 256 KiB, and nothing for a few
        // bytes.
        (0..20).for_each(|second| pace.note(at(104 + second), 1));
        assert_eq!(pace.overdue_by(at(123)), Some(at(17)));
        // The slowest rate that is allowed.
        let mut slow = Pace::new(at(0));
        for second in 0..100 {
            assert_eq!(slow.overdue_by(at(second)), None);
            slow.note(at(second), 256 << 10);
        }
    }
}
