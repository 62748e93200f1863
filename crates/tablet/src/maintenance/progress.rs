//! How far a flush is: what paces writers goes by it.

use crate::memtable::{MemoryAccount, Memtable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A flush under way. The account is told of its end when this is dropped, however it ends.
#[derive(Debug)]
pub struct Progress {
    account: MemoryAccount,
    /// Of the memtables being flushed.
    bytes: u64,
    entries: u64,
    /// Entries read so far, and the bytes that the account was told are written.
    read: AtomicU64,
    told: AtomicU64,
}

impl Progress {
    /// A flush of these memtables begins.
    pub fn begin<'a>(account: &MemoryAccount, memtables: impl Iterator<Item = &'a Arc<Memtable>>) -> Arc<Progress> {
        let (mut bytes, mut entries) = (0, 0);
        for table in memtables {
            bytes += table.bytes();
            entries += table.len();
        }
        account.flush_begins(bytes);
        Arc::new(Progress {
            account: account.clone(),
            bytes,
            entries,
            read: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// So many more entries have been read. Called by one task at a time.
    pub fn advance(&self, entries: u64) {
        let read = self.read.fetch_add(entries, Ordering::Relaxed) + entries;
        let written = u128::from(self.bytes) * u128::from(read.min(self.entries)) / u128::from(self.entries.max(1));
        // Not more than `bytes`, which is 64 bits.
        let written = u64::try_from(written).unwrap_or(self.bytes);
        let before = self.told.swap(written, Ordering::Relaxed);
        self.account.flush_wrote(written.saturating_sub(before));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.account.flush_ends(self.bytes - self.told.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_no_longer_to_be_flushed() {
        let account = MemoryAccount::default();
        let progress = Progress {
            account: account.clone(),
            bytes: 1000,
            entries: 7,
            read: AtomicU64::new(0),
            told: AtomicU64::new(0),
        };
        account.flush_begins(1000);
        account.flush_begins(50);
        progress.advance(3);
        assert_eq!((account.flushing_bytes(), account.flushed_bytes()), (1050 - 428, 428));
        progress.advance(3);
        assert_eq!((account.flushing_bytes(), account.flushed_bytes()), (1050 - 857, 857));
        drop(progress);
        assert_eq!((account.flushing_bytes(), account.flushed_bytes()), (50, 857));
    }
}
