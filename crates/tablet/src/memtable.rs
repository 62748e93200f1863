//! The memtable: what has been written since the last flush, sorted.
//!
//! A skip list over an arena (Bigtable §5.4; the list is LevelDB's design). One writer at a time, any number of readers
//! that take no lock; nothing is removed before the whole table is dropped, so a reader's position stays valid for as
//! long as it holds the table. Visibility is not decided here but by sequence number, in the resolver.

mod skiplist;

use bytes::Bytes;
use parking_lot::Mutex;
use skiplist::SkipList;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use stele_types::SeqNo;

/// One locality group's recent writes.
pub struct Memtable {
    list: SkipList,
    /// Serialises writers.
    writer: Mutex<()>,
    entries: AtomicU64,
    /// Newest sequence number inserted.
    newest: AtomicU64,
    /// Tells the server's memory account when this is dropped.
    account: MemoryAccount,
    /// Bytes of the list when it was new. They are not in the account, or idle tablets by the thousand would look like
    /// writes that a flush could free.
    empty_bytes: usize,
}

/// Bytes of all memtables of a server, kept up to date by the memtables themselves.
#[derive(Clone, Debug, Default)]
pub struct MemoryAccount {
    bytes: Arc<AtomicI64>,
}

impl MemoryAccount {
    /// Bytes in live memtables, flushed ones that readers still hold included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).max(0) as u64
    }

    fn add(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Memtable {
    /// An empty memtable.
    pub fn new(account: MemoryAccount) -> Self {
        let list = SkipList::new();
        Memtable {
            empty_bytes: list.bytes(),
            list,
            writer: Mutex::new(()),
            entries: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            account,
        }
    }

    /// Inserts entries; `fill` is called once with a function that inserts one. A key that is there already is left
    /// alone (replaying the log twice is harmless).
    pub fn insert_all(&self, fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], SeqNo))) {
        let guard = self.writer.lock();
        let before = self.list.bytes();
        let (mut entries, mut newest) = (0, SeqNo::ZERO);
        fill(&mut |key, value, seq| {
            if self.list.insert(&guard, key, value) {
                entries += 1;
            }
            newest = newest.max(seq);
        });
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.newest.fetch_max(newest.0, Ordering::Relaxed);
        self.account.add(self.list.bytes() as i64 - before as i64);
    }

    /// Bytes of the arena in use, about what the memtable costs.
    pub fn bytes(&self) -> u64 {
        self.list.bytes() as u64
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest sequence number inserted.
    pub fn newest(&self) -> SeqNo {
        SeqNo(self.newest.load(Ordering::Relaxed))
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.account.add(self.empty_bytes as i64 - self.list.bytes() as i64);
    }
}

/// A position in a memtable. Holds the table alive.
pub struct MemtableCursor {
    table: Arc<Memtable>,
    at: skiplist::Position,
}

impl MemtableCursor {
    /// An unpositioned cursor.
    pub fn new(table: Arc<Memtable>) -> Self {
        MemtableCursor {
            table,
            at: skiplist::Position::none(),
        }
    }

    /// Moves to the first entry at or after `target`; whether there is one.
    pub fn seek(&mut self, target: &[u8]) -> bool {
        self.at = self.table.list.seek(target);
        self.is_valid()
    }

    /// Moves to the last entry before `target`; whether there is one.
    pub fn seek_before(&mut self, target: &[u8]) -> bool {
        self.at = self.table.list.seek_before(target);
        self.is_valid()
    }

    /// Moves to the next entry; whether there is one.
    pub fn advance(&mut self) -> bool {
        self.at = self.table.list.next(self.at);
        self.is_valid()
    }

    /// Moves to the entry before; whether there is one.
    pub fn retreat(&mut self) -> bool {
        self.at = self.table.list.seek_before(self.table.list.key(self.at));
        self.is_valid()
    }

    /// Whether the cursor is on an entry.
    pub fn is_valid(&self) -> bool {
        self.at.is_some()
    }

    /// The key; empty when the cursor is on no entry.
    pub fn key(&self) -> &[u8] {
        self.table.list.key(self.at)
    }

    /// The value; empty when the cursor is on no entry.
    pub fn value(&self) -> &[u8] {
        self.table.list.value(self.at)
    }

    /// The value, shared rather than copied where that is cheaper; empty when the cursor is on no entry.
    pub fn value_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.value())
    }
}

#[cfg(test)]
mod tests;
