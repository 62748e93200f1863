//! The parts of a server's memory, by its own accounts, at their peak.
//!
//! The accounts are polled a few dozen times a second, so a peak of some milliseconds may be missed. The largest resident
//! set itself comes from the system, which misses none. *Unexplained* memory is in no account: the program's own
//! structures, buffers of flushes, compactions and connections, and freed memory that the allocator retains.

use crate::server::{http_get, metric_of};
use anyhow::Result;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Between two polls.
const PAUSE: Duration = Duration::from_millis(30);

/// Gauges of memory by purpose, and their names here.
const KNOWN: [(&str, &str); 13] = [
    ("stele_memtable_bytes", "memtables"),
    (r#"stele_memory_reserved_bytes{of="spare"}"#, "spare"),
    ("stele_block_cache_bytes", "blocks"),
    ("stele_row_cache_bytes", "rows"),
    ("stele_pinned_bytes", "indexes"),
    (r#"stele_memory_reserved_bytes{of="batches"}"#, "batches"),
    (r#"stele_memory_reserved_bytes{of="values"}"#, "values"),
    (r#"stele_memory_reserved_bytes{of="rows"}"#, "rows for writes"),
    (r#"stele_memory_reserved_bytes{of="peers"}"#, "other servers"),
    (
        r#"stele_memory_reserved_bytes{of="peer_rows"}"#,
        "rows for other servers",
    ),
    (r#"stele_bigtable_reserved_bytes{of="requests"}"#, "requests"),
    (r#"stele_bigtable_reserved_bytes{of="responses"}"#, "responses"),
    // Memory of the program itself.
    (r#"stele_resident_bytes{kind="files"}"#, "program"),
];

/// Not divided into anything: the total of the parts in `KNOWN`.
const OWN: &str = r#"stele_resident_bytes{kind="own"}"#;

/// Whether a request may exceed its pool; no account says how much of the excess is used.
const OVERDRAFT: &str = r#"stele_bigtable_reserved_bytes{of="overdraft"}"#;

/// One look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    resident: u64,
    known: Vec<(&'static str, u64)>,
    needs_overdraft: bool,
}

impl Account {
    /// Runs something, and gives with its result the account of the moment with the largest resident set.
    pub fn largest_while<T>(http: &str, run: impl FnOnce() -> Result<T>) -> Result<(T, Account)> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut largest = Account::default();
                while !done.load(Ordering::Relaxed) {
                    // A poll that fails is one less.
                    if let Ok(metrics) = http_get(http, "/metrics") {
                        let account = Account::of(&metrics);
                        if account.resident > largest.resident {
                            largest = account;
                        }
                    }
                    thread::sleep(PAUSE);
                }
                largest
            });
            let result = run();
            done.store(true, Ordering::Relaxed);
            let largest = looking.join().unwrap_or_default();
            Ok((result?, largest))
        })
    }

    /// Parses a page of the server's metrics.
    fn of(metrics: &str) -> Account {
        let of = |name: &str| metric_of(metrics, name).unwrap_or(0.0) as u64;
        let known: Vec<_> = KNOWN.iter().map(|(name, shown)| (*shown, of(name))).collect();
        Account {
            resident: of(OWN) + of(r#"stele_resident_bytes{kind="files"}"#),
            known,
            needs_overdraft: of(OVERDRAFT) > 0,
        }
    }

    fn unexplained(&self) -> u64 {
        let known = self.known.iter().map(|(_, bytes)| bytes).sum();
        self.resident.saturating_sub(known)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} MiB:", self.resident >> 20)?;
        for (shown, bytes) in self.known.iter().filter(|(_, bytes)| *bytes >= 1 << 19) {
            write!(f, " {shown} {},", (bytes + (1 << 19)) >> 20)?;
        }
        let overdraft = if self.needs_overdraft {
            ", with the overdraft"
        } else {
            ""
        };
        write!(f, " unexplained {}{overdraft}", self.unexplained() >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_adds_up() {
        let metrics = "# HELP x\nstele_memtable_bytes 10485760\nstele_memtable_bytes_of_something 7\n\
                       stele_memory_reserved_bytes{of=\"values\"} 2.097152e6\n\
                       stele_resident_bytes{kind=\"own\"} 31457280\nstele_resident_bytes{kind=\"files\"} 5242880\n\
                       stele_bigtable_reserved_bytes{of=\"overdraft\"} 109051904\n";
        let account = Account::of(metrics);
        assert_eq!(account.unexplained(), 18 << 20);
        assert_eq!(
            account.to_string(),
            "of 35 MiB: memtables 10, values 2, program 5, unexplained 18, with the overdraft"
        );
    }
}
