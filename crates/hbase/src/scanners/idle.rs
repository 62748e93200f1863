//! Memory of scanners that no call uses.
//!
//! A scanner keeps the rows that a call did not return. All idle scanners together keep a bounded part of the memory of
//! responses, and give it back if others need it. The ones that were not used for longest go first. Their rows are
//! dropped if they can be read again. Otherwise the scanner is closed: its client gets `UnknownScannerException`, and
//! opens another one behind the last row that it has.

use super::{Entry, Open, Scanner, Scanners};
use crate::idle_bytes::IdleBytes;
use std::time::Duration;

/// Others get the memory of a scanner that was not used for this long: the next call of a busy client comes earlier.
const BUSY: Duration = Duration::from_secs(1);

impl Scanner {
    /// Begins or ends the time in which no call uses it.
    pub(super) fn set_idle(&mut self, idle: Option<&IdleBytes>) {
        if let Scanner::Region(scanner) = self {
            scanner.idle = idle.map(|idle| idle.count(scanner.held()));
        }
    }

    fn held(&self) -> usize {
        match self {
            Scanner::Region(scanner) => scanner.held(),
            Scanner::Meta(_) => 0,
        }
    }

    fn is_overdrawn(&self) -> bool {
        match self {
            Scanner::Region(scanner) => scanner.is_overdrawn(),
            Scanner::Meta(_) => false,
        }
    }

    fn is_within_row(&self) -> bool {
        match self {
            Scanner::Region(scanner) => scanner.is_within_row(),
            Scanner::Meta(_) => false,
        }
    }

    fn drop_waiting(&mut self) -> bool {
        match self {
            Scanner::Region(scanner) => scanner.drop_waiting(),
            Scanner::Meta(_) => false,
        }
    }
}

impl Scanners {
    /// Takes memory from idle scanners until they keep no more than they may. One within a row goes only if its client is
    /// not busy: the next one would begin the row again, and two of them could hinder each other for ever.
    pub(super) fn bound_idle(&self) {
        let is_between_rows = |scanner: &Scanner| scanner.held() > 0 && !scanner.is_within_row();
        self.strip(self.idle_max, Duration::MAX, is_between_rows);
        self.strip(self.idle_max, self.not_busy(), |scanner| scanner.held() > 0);
    }

    /// Takes about this many bytes from scanners whose clients are not busy.
    pub fn reclaim(&self, bytes: usize) {
        let aim = self.idle.all().saturating_sub(bytes);
        self.strip(aim, self.not_busy(), |scanner| scanner.held() > 0);
    }

    /// Takes the overdraft from the scanner that has it, unless its client is busy.
    pub fn reclaim_overdraft(&self) {
        self.strip(0, self.not_busy(), Scanner::is_overdrawn);
    }

    /// The ends of leases of scanners whose clients are not busy are not after this.
    fn not_busy(&self) -> Duration {
        self.expiry().saturating_sub(BUSY)
    }

    /// Takes memory from scanners that `is_victim` accepts, and whose lease ends by a time, while all together keep more
    /// than `aim` bytes.
    fn strip(&self, aim: usize, before: Duration, is_victim: impl Fn(&Scanner) -> bool) {
        let mut closed = Vec::new();
        while self.idle.all() > aim {
            // Under one lock: a call never finds a scanner that is away only for this.
            let mut open = self.open.lock();
            let Some(number) = oldest(&open, before, &is_victim) else {
                break;
            };
            if let Some(scanner) = open.scanners.get_mut(&number).and_then(|entry| entry.scanner.as_mut())
                && scanner.drop_waiting()
            {
                scanner.set_idle(Some(&self.idle));
            } else if let Some(mut entry) = open.remove(number) {
                entry.scanner.iter_mut().for_each(|scanner| scanner.set_idle(None));
                // Dropped after the lock is released.
                closed.push(entry);
            }
        }
    }
}

/// The idle scanner that was not used for longest.
fn oldest(open: &Open, before: Duration, is_victim: impl Fn(&Scanner) -> bool) -> Option<u64> {
    let is_idle = |entry: &Entry| entry.expires <= before && entry.scanner.as_ref().is_some_and(&is_victim);
    let idle = open.scanners.iter().filter(|(_, entry)| is_idle(entry));
    idle.min_by_key(|(number, entry)| (entry.expires, **number))
        .map(|(number, _)| *number)
}
