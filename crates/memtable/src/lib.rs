//! The memtable: the writes since the last flush, sorted.
//!
//! A B+ tree in an arena (`tree`, `arena`; Bigtable §5.4 leaves the structure open). One writer at a time, any number of
//! readers that take no lock. Nothing is removed before the whole table is dropped, so a reader's position stays valid as
//! long as it holds the table. Visibility is not decided here: the resolver decides it by sequence number.
//!
//! Entries that come in key order are cheapest: an insertion begins where the previous one ended. Entries that come
//! together are cheaper than single ones: the leaf of each is prefetched while the previous one is inserted.
//!
//! This crate has all the unsafe code of the storage engine, in `arena`, `memory` and `tree`; Miri runs on its tests.

mod arena;
mod memory;
mod tree;

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use stele_types::SeqNo;
use tree::{Position, Tree};

/// A value of at least this size shares the arena's memory instead of being copied, if that keeps no more than
/// [`SHARE_COST_MAX`]. Copying 32 KiB takes about two microseconds.
const SHARED_BYTES_MIN: usize = 32 << 10;

/// A share keeps a whole chunk in memory, also when the table is long flushed and the reader is slow. The chunk stays in
/// the account by which writers are slowed and stopped. So a chunk is at most this many times as large as the shared value;
/// values of an eighth of a megabyte and more never exceed that. While memory is short, readers are asked to release chunks.
const SHARE_COST_MAX: usize = 16;

/// One locality group's recent writes.
pub struct Memtable {
    tree: Tree,
    entries: AtomicU64,
    /// Newest sequence number inserted.
    newest: AtomicU64,
}

/// Bytes of all memtables of a server, kept up to date by the memtables themselves.
#[derive(Clone, Debug, Default)]
pub struct MemoryAccount {
    bytes: Arc<AtomicI64>,
    flushing: Arc<AtomicU64>,
    flushed: Arc<AtomicU64>,
    spare: Arc<memory::Spare>,
}

impl MemoryAccount {
    /// Bytes in live memtables, flushed ones that readers still hold, or values of, included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes of freed chunks that are retained for memtables that fill: no part of [`MemoryAccount::bytes`].
    pub fn spare_bytes(&self) -> u64 {
        self.spare.bytes() as u64
    }

    /// Sets the budget of memtables while something is written. Freed chunks are then retained as far as they fit into it,
    /// and up to a quarter of it. With a budget of 0 only the memory in use bounds them.
    pub fn keep_spare(&self, share: u64) {
        self.spare.set_share(share, self.bytes());
    }

    /// Bytes of memtables that are being flushed and still have to be written. Memory will have grown by about as many
    /// when these memtables can be freed, if writes come as fast as they are flushed.
    pub fn flushing_bytes(&self) -> u64 {
        self.flushing.load(Ordering::Relaxed)
    }

    /// Bytes of memtables that flushes have written so far; only grows.
    pub fn flushed_bytes(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed)
    }

    /// A flush of this many bytes of memtables has begun.
    pub fn flush_begins(&self, bytes: u64) {
        self.flushing.fetch_add(bytes, Ordering::Relaxed);
    }

    /// This many of these bytes are written.
    pub fn flush_wrote(&self, bytes: u64) {
        let flushing = self.flushing.fetch_sub(bytes, Ordering::Relaxed);
        assert!(flushing >= bytes, "a flush writes no more than it has announced");
        self.flushed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The flush has ended without writing this many of them.
    pub fn flush_ends(&self, unwritten: u64) {
        let flushing = self.flushing.fetch_sub(unwritten, Ordering::Relaxed);
        assert!(flushing >= unwritten, "a flush ends with no more than it has announced");
    }

    fn add(&self, bytes: i64) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        assert!(before + bytes >= 0, "memtables give back no more memory than they took");
    }
}

impl Memtable {
    /// An empty memtable. It takes memory only when something is inserted.
    pub fn new(account: MemoryAccount) -> Self {
        Memtable {
            tree: Tree::new(account),
            entries: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        }
    }

    /// Inserts entries; `fill` is called once with the inserter. A key that is there already is left alone (replaying the
    /// log twice is harmless).
    pub fn insert_all(&self, fill: impl FnOnce(&mut Inserter<'_>)) {
        let mut inserter = Inserter {
            writer: self.tree.writer(),
            newest: SeqNo::ZERO,
        };
        fill(&mut inserter);
        self.entries.fetch_add(inserter.writer.finish(), Ordering::Relaxed);
        self.newest.fetch_max(inserter.newest.0, Ordering::Relaxed);
    }

    /// Bytes of the arena: the memory cost of the memtable.
    pub fn bytes(&self) -> u64 {
        self.tree.arena().bytes() as u64
    }

    /// Whether no further batch should be inserted: the arena's addresses run out, at some 12 GiB.
    pub fn is_full(&self) -> bool {
        self.tree.arena().is_full()
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

/// Inserts entries into a memtable, one after another.
pub struct Inserter<'a> {
    writer: tree::Writer<'a>,
    newest: SeqNo,
}

impl Inserter<'_> {
    /// Inserts one entry, whose key ends in this sequence number, unless it is there.
    pub fn insert(&mut self, key: &[u8], value: &[u8], seq: SeqNo) {
        self.writer.insert(key, value);
        self.newest = self.newest.max(seq);
    }
}

/// A position in a memtable. Holds the table alive.
pub struct MemtableCursor {
    table: Arc<Memtable>,
    at: Position,
}

impl MemtableCursor {
    /// An unpositioned cursor.
    pub fn new(table: Arc<Memtable>) -> Self {
        MemtableCursor {
            table,
            at: Position::NONE,
        }
    }

    /// A cursor on the first entry of the row with this encoded prefix. `None`, and no reference taken, when there is none.
    pub fn at_row(table: &Arc<Memtable>, prefix: &[u8]) -> Option<Self> {
        let at = table.tree.seek(prefix);
        let has_row = at.is_some() && table.tree.key_at(&at).starts_with(prefix);
        has_row.then(|| MemtableCursor {
            table: table.clone(),
            at,
        })
    }

    /// Moves to the first entry at or after `target`; whether there is one.
    pub fn seek(&mut self, target: &[u8]) -> bool {
        self.at = self.table.tree.seek(target);
        self.is_valid()
    }

    /// Moves to the last entry before `target`; whether there is one.
    pub fn seek_before(&mut self, target: &[u8]) -> bool {
        self.at = self.table.tree.seek_before(target);
        self.is_valid()
    }

    /// Moves to the next entry; whether there is one.
    pub fn advance(&mut self) -> bool {
        self.at = self.table.tree.next(self.at);
        self.is_valid()
    }

    /// Moves to the entry before; whether there is one.
    pub fn retreat(&mut self) -> bool {
        self.at = self.table.tree.previous(self.at);
        self.is_valid()
    }

    /// Whether the cursor is on an entry.
    pub fn is_valid(&self) -> bool {
        self.at.is_some()
    }

    /// The key; empty when the cursor is on no entry.
    pub fn key(&self) -> &[u8] {
        self.table.tree.key_at(&self.at)
    }

    /// The value; empty when the cursor is on no entry.
    pub fn value(&self) -> &[u8] {
        self.table.tree.value_at(&self.at)
    }

    /// The value, sharing the arena's memory where that keeps little else; empty when the cursor is on no entry.
    pub fn value_bytes(&self) -> Bytes {
        let value = self.value();
        let most = value.len().saturating_mul(SHARE_COST_MAX);
        let shared = (value.len() >= SHARED_BYTES_MIN).then(|| self.table.tree.shared_value_at(&self.at, most));
        shared.flatten().unwrap_or_else(|| Bytes::copy_from_slice(value))
    }
}

#[cfg(test)]
mod tests;
