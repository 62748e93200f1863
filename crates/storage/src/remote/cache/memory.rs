//! The chunks in memory: recent ones, and the next ones of sequential readers.
//!
//! A read that begins where another one ended, and needs a missing chunk, is taken for a scan. Further chunks are then
//! fetched *ahead*, and the first of these gets a mark. When it is read, the mark names the chunks to fetch next, so
//! that a scan always has some under way. Random reads seldom begin where others have ended, also where they cross
//! chunks, and then cost at most [`AHEAD_MIN`] chunks.
//!
//! When memory is full, a chunk is evicted that was read to its end. Otherwise a scan with more chunks under way than
//! it reads would lose those, and fetch them again. The chunks behind it are of no use to it.

use super::chunk::ChunkId;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use stele_memory::bounds::{CHUNK_BYTES, CHUNKS};

/// Chunks in memory.
const CHUNKS_MAX: usize = (CHUNKS.of(0) / CHUNK_BYTES) as usize;
/// Of these, chunks that were fetched ahead and not read yet: more would evict chunks that are being read.
const UNREAD_MAX: usize = 16;
/// Chunks that are fetched ahead at first, and at most: 1 and 2 MiB. With a latency of 50 ms and 70 MB/s for one
/// reader, four concurrent chunks suffice for a reader of 40 MB/s.
const AHEAD_MIN: u64 = 2;
const AHEAD_MAX: u64 = 4;
/// A chunk that was fetched ahead and not read while this many others arrived belongs to a scan that has ended.
const UNREAD_FOR: u64 = 2 * CHUNKS_MAX as u64;

/// Chunks to fetch ahead, by number. The first one gets the mark for those after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ahead(pub Range<u64>);

impl Ahead {
    /// The chunks to fetch after a sequential reader has waited for chunk `number`.
    pub(super) fn after(number: u64) -> Ahead {
        Ahead(number.saturating_add(1)..number.saturating_add(1 + AHEAD_MIN))
    }

    /// The chunks after these.
    pub(super) fn next(&self) -> Ahead {
        debug_assert!(self.0.start <= self.0.end, "chunks ahead are in order");
        let count = (2 * (self.0.end - self.0.start)).min(AHEAD_MAX);
        Ahead(self.0.end..self.0.end.saturating_add(count))
    }
}

struct Kept {
    id: ChunkId,
    bytes: Bytes,
    /// No reader has read any of it.
    unread: bool,
    /// Number of chunks that arrived before it.
    since: u64,
    /// The furthest end of a read of it.
    read_to: usize,
    /// Chunks to fetch when it is read.
    mark: Option<Ahead>,
}

/// Oldest first.
#[derive(Default)]
pub(super) struct Memory {
    chunks: VecDeque<Kept>,
    /// Number of chunks that have ever arrived.
    came: u64,
}

impl Memory {
    /// A chunk for a reader of its bytes up to `end`, and the chunks to fetch ahead now.
    pub(super) fn read(&mut self, id: ChunkId, end: usize) -> Option<(Bytes, Option<Ahead>)> {
        let at = self.chunks.iter().position(|kept| kept.id == id)?;
        let mut kept = self.chunks.remove(at)?;
        kept.unread = false;
        kept.read_to = kept.read_to.max(end);
        let read = (kept.bytes.clone(), kept.mark.take());
        self.chunks.push_back(kept);
        Some(read)
    }

    /// Inserts a fetched chunk: ahead, with its mark, or for a waiting reader.
    pub(super) fn insert(&mut self, id: ChunkId, bytes: Bytes, unread: bool, mark: Option<Ahead>) {
        if self.has(id) {
            return;
        }
        if self.chunks.len() >= CHUNKS_MAX {
            let goes = self.first_to_go();
            self.chunks.remove(goes);
        }
        self.chunks.push_back(Kept {
            id,
            bytes,
            unread,
            since: self.came,
            read_to: 0,
            mark,
        });
        self.came += 1;
        assert!(self.chunks.len() <= CHUNKS_MAX, "chunks in memory are bounded");
    }

    /// The position of the chunk to evict: one of a scan that has ended, or one that was read to its end, or the
    /// oldest.
    fn first_to_go(&self) -> usize {
        let is_for_nobody = |kept: &Kept| kept.unread && self.came - kept.since > UNREAD_FOR;
        let was_read_whole = |kept: &Kept| kept.read_to >= kept.bytes.len();
        let gone = self.chunks.iter().position(is_for_nobody);
        gone.or_else(|| self.chunks.iter().position(was_read_whole))
            .unwrap_or(0)
    }

    /// A chunk. This does not count as a use.
    pub(super) fn peek(&self, id: ChunkId) -> Option<Bytes> {
        self.find(id).map(|kept| kept.bytes.clone())
    }

    /// Whether a chunk is in memory. This does not count as a use.
    pub(super) fn has(&self, id: ChunkId) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: ChunkId) -> Option<&Kept> {
        self.chunks.iter().find(|kept| kept.id == id)
    }

    /// Whether a chunk was read up to `end`.
    pub(super) fn was_read_to(&self, id: ChunkId, end: usize) -> bool {
        self.find(id).is_some_and(|kept| kept.read_to >= end)
    }

    /// Number of chunks that may be fetched ahead, besides those under way.
    pub(super) fn readahead_space(&self) -> usize {
        let unread = self.chunks.iter().filter(|kept| kept.unread).count();
        UNREAD_MAX.saturating_sub(unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ChunkId {
        ChunkId::of("path", "tag", number)
    }

    fn chunk() -> Bytes {
        Bytes::from_static(&[0; 10])
    }

    #[test]
    fn more_is_fetched_ahead_the_longer_somebody_reads_on() {
        let first = Ahead::after(6);
        assert_eq!(first, Ahead(7..9));
        assert_eq!(first.next(), Ahead(9..13));
        assert_eq!(first.next().next(), Ahead(13..17));
        assert_eq!(Ahead::after(u64::MAX).0.count(), 0);
    }

    #[test]
    fn a_mark_is_found_once() {
        let mut memory = Memory::default();
        memory.insert(id(1), chunk(), true, Some(Ahead(2..4)));
        assert_eq!(memory.read(id(1), 5), Some((chunk(), Some(Ahead(2..4)))));
        assert!(memory.was_read_to(id(1), 5) && !memory.was_read_to(id(1), 6));
        assert_eq!(memory.read(id(1), 10), Some((chunk(), None)));
        assert!(memory.was_read_to(id(1), 10));
    }

    #[test]
    fn what_nobody_reads_is_bounded_and_goes_first() {
        let mut memory = Memory::default();
        for number in 0..10 {
            memory.insert(id(number), chunk(), true, None);
        }
        assert_eq!(memory.readahead_space(), UNREAD_MAX - 10);
        for number in 10..10 + CHUNKS_MAX as u64 {
            memory.insert(id(number), chunk(), false, None);
        }
        assert!(!memory.has(id(9)) && memory.has(id(10)));
        assert_eq!(memory.readahead_space(), UNREAD_MAX);
    }

    #[test]
    fn what_was_read_to_its_end_goes_before_what_will_be_read() {
        const UNREAD: u64 = UNREAD_MAX as u64;
        let mut memory = Memory::default();
        for number in 0..UNREAD {
            memory.insert(id(number), chunk(), true, None);
        }
        // Younger ones, of which every other is read to its end.
        for number in UNREAD..CHUNKS_MAX as u64 {
            memory.insert(id(number), chunk(), false, None);
            memory.read(id(number), if number % 2 == 0 { 10 } else { 5 });
        }
        let others = 1000..1000 + UNREAD / 2;
        for number in others.clone() {
            memory.insert(id(number), chunk(), false, None);
        }
        assert!((0..UNREAD).chain(others).all(|number| memory.has(id(number))));
        assert!((UNREAD..CHUNKS_MAX as u64).all(|number| memory.has(id(number)) == (number % 2 == 1)));
        // No reader returns for those that were fetched ahead.
        for number in 2000..2000 + 2 * UNREAD_FOR {
            memory.insert(id(number), chunk(), false, None);
            memory.read(id(number), 10);
        }
        assert_eq!(memory.readahead_space(), UNREAD_MAX, "others may be fetched again");
        assert_eq!(memory.chunks.len(), CHUNKS_MAX);
    }
}
