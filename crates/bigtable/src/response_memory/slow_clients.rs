//! ResponseMemory whose clients take nothing, while others wait for what they hold.
//!
//! An answer is *late* when its client has taken nothing of it for [`PATIENCE`], or takes it so slowly that a batch would keep
//! its room for much longer than that. Being late does no harm by itself: only where room is waited for are late answers looked for, and
//! has the one given up first that is late by most, until enough room has come back.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::metrics::IntCounter;

/// How long a client may take nothing of an answer that others wait for: longer than a client's collector of garbage or a slow
/// network stops one that reads, and half of how long those wait who then get the room. What a client loses is a moment: it
/// reads on behind the last row that it has.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How fast a batch must be taken, beyond that: as a request must arrive. It keeps its room for fifteen seconds at most.
const BYTES_PER_SECOND: u64 = 256 << 10;

/// Who holds room at the pace of a client.
pub(crate) trait Paced: Send + Sync {
    /// By how much it is late, if it is, and is held at all.
    fn overdue(&self, now: Duration) -> Option<Overdue>;

    /// Gives up what it holds if it is late still; returns how much came back.
    fn cancel(&self, now: Duration) -> usize;
}

/// An answer that is not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    pub by: Duration,
    /// It has the allowance.
    pub has_overdraft: bool,
}

/// How a client takes an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    batch: Duration,
    last: Duration,
    reserved_bytes: u64,
}

impl Pace {
    /// Of a batch of which nothing is taken yet.
    pub fn new(now: Duration) -> Self {
        Pace {
            batch: now,
            last: now,
            reserved_bytes: 0,
        }
    }

    /// Notes what was taken.
    pub fn note(&mut self, now: Duration, bytes: usize) {
        self.last = now;
        self.reserved_bytes += bytes as u64;
    }

    /// By how much it is too slow, if it is.
    pub fn overdue_by(&self, now: Duration) -> Option<Duration> {
        let in_time = Duration::from_millis(self.reserved_bytes.saturating_mul(1000) / BYTES_PER_SECOND);
        let still = now.checked_sub(self.last + PATIENCE);
        let slow = now.checked_sub(self.batch + PATIENCE + in_time);
        still.max(slow)
    }
}

/// All who do. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Holders {
    shared: Arc<Mutex<Shared>>,
    cancelled: IntCounter,
}

#[derive(Default)]
struct Shared {
    next: u64,
    by_number: BTreeMap<u64, Weak<dyn Paced>>,
    /// When somebody looked last.
    last_scan: Option<Duration>,
}

/// As long as it is there, one is among them.
pub(crate) struct Registered {
    shared: Arc<Mutex<Shared>>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.lock().by_number.remove(&self.number);
    }
}

/// However many wait, all holders are gone through no more often than this.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shared.lock().by_number.is_empty()
    }

    /// Has late answers give up so many bytes, or whatever they have.
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
        // The order of their registration where they are as late as each other.
        overdue.sort_by_key(|(by, _)| std::cmp::Reverse(*by));
        let mut freed = 0;
        for (_, holder) in overdue {
            if freed >= bytes {
                break;
            }
            freed += self.counted(holder.cancel(now));
        }
    }

    /// Has the answer that has the allowance given up, if it is late.
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
        // One that takes a little now and then has had a second for the first 256 KiB, and no more for hardly anything.
        (0..20).for_each(|second| pace.note(at(104 + second), 1));
        assert_eq!(pace.overdue_by(at(123)), Some(at(17)));
        // As slow as one may be.
        let mut slow = Pace::new(at(0));
        for second in 0..100 {
            assert_eq!(slow.overdue_by(at(second)), None);
            slow.note(at(second), 256 << 10);
        }
    }
}
