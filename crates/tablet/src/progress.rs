//! Counts the bytes that flushes and compactions have moved; pacing of writers uses the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_memtable::{MemoryAccount, Memtable};

/// Bytes that flushes and merges of a server have moved so far; only grows. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    inner: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    memtables: AtomicU64,
    files: AtomicU64,
    compacted: AtomicU64,
}

/// The counters of [`Moved`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Of memtables that were flushed.
    pub memtables: u64,
    /// Of the sstables these became, values kept apart not among them.
    pub files: u64,
    /// Of sstables that merges have read.
    pub compacted: u64,
}

impl Moved {
    /// The bytes moved so far.
    pub fn bytes(&self) -> MovedBytes {
        let Counters {
            memtables,
            files,
            compacted,
        } = &*self.inner;
        MovedBytes {
            memtables: memtables.load(Ordering::Relaxed),
            files: files.load(Ordering::Relaxed),
            compacted: compacted.load(Ordering::Relaxed),
        }
    }

    /// A flush has ended that made sstables of memtables.
    pub(crate) fn flushed(&self, memtables: u64, files: u64) {
        self.inner.memtables.fetch_add(memtables, Ordering::Relaxed);
        self.inner.files.fetch_add(files, Ordering::Relaxed);
    }

    /// A compaction has read this many more bytes.
    pub(crate) fn compacted(&self, bytes: u64) {
        self.inner.compacted.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A flush or a compaction in progress. Its counter learns of its end when this is dropped, however it ends.
#[derive(Debug)]
pub struct Progress {
    told_to: ToldTo,
    /// Bytes to be read.
    bytes: u64,
    entries: u64,
    /// Entries read so far, and the bytes that were told.
    read: AtomicU64,
    told: AtomicU64,
}

/// The counter of the bytes.
#[derive(Debug)]
enum ToldTo {
    /// Of memtables being flushed.
    Memory(MemoryAccount),
    /// Of sstables being merged.
    Moved(Moved),
}

impl Progress {
    /// A flush of these memtables begins.
    pub fn of_flush<'a>(account: &MemoryAccount, memtables: impl Iterator<Item = &'a Arc<Memtable>>) -> Arc<Progress> {
        let (mut bytes, mut entries) = (0, 0);
        for table in memtables {
            bytes += table.bytes();
            entries += table.len();
        }
        account.flush_begins(bytes);
        Arc::new(Progress::new(ToldTo::Memory(account.clone()), bytes, entries))
    }

    /// A compaction of sstables with about this many bytes and entries begins.
    pub fn of_compaction(moved: &Moved, bytes: u64, entries: u64) -> Arc<Progress> {
        Arc::new(Progress::new(ToldTo::Moved(moved.clone()), bytes, entries))
    }

    fn new(told_to: ToldTo, bytes: u64, entries: u64) -> Progress {
        Progress {
            told_to,
            bytes,
            entries,
            read: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// This many more entries have been read. Called by one task at a time.
    pub fn advance(&self, entries: u64) {
        let read = self.read.fetch_add(entries, Ordering::Relaxed) + entries;
        let written = u128::from(self.bytes) * u128::from(read.min(self.entries)) / u128::from(self.entries.max(1));
        // Not more than `bytes`, which is 64 bits.
        let written = u64::try_from(written).unwrap_or(self.bytes);
        let before = self.told.swap(written, Ordering::Relaxed);
        debug_assert!(
            before <= written && written <= self.bytes,
            "progress only grows, to all bytes at most"
        );
        let more = written.saturating_sub(before);
        match &self.told_to {
            ToldTo::Memory(account) => account.flush_wrote(more),
            ToldTo::Moved(moved) => moved.compacted(more),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let ToldTo::Memory(account) = &self.told_to {
            debug_assert!(
                self.told.load(Ordering::Relaxed) <= self.bytes,
                "no more is told than was announced"
            );
            account.flush_ends(self.bytes - self.told.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_no_longer_to_be_flushed() {
        let account = MemoryAccount::default();
        let progress = Progress::new(ToldTo::Memory(account.clone()), 1000, 7);
        account.flush_begins(1000);
        account.flush_begins(50);
        progress.advance(3);
        assert_eq!((account.flushing_bytes(), account.flushed_bytes()), (1050 - 428, 428));
        progress.advance(3);
        assert_eq!((account.flushing_bytes(), account.flushed_bytes()), (1050 - 857, 857));
        drop(progress);
        assert_eq!((account.flushing_bytes(), account.flushed_bytes()), (50, 857));
    }

    #[test]
    fn a_compaction_reports_its_progress() {
        let moved = Moved::default();
        let progress = Progress::of_compaction(&moved, 1000, 10);
        progress.advance(4);
        moved.flushed(70, 30);
        assert_eq!((moved.bytes().compacted, moved.bytes().memtables), (400, 70));
        // There were more than was thought.
        progress.advance(40);
        drop(progress);
        let expected = MovedBytes {
            memtables: 70,
            files: 30,
            compacted: 1000,
        };
        assert_eq!(moved.bytes(), expected);
    }
}
