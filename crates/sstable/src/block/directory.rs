//! A directory leads a search to the entries of a block of few large ones.
//!
//! A search that starts at a restart passes entries, and before that it reads the restarts at the end of the block. In
//! a block of small entries all of these are close together. An entry of a kilobyte has cache lines of its own. A read
//! of one row then waits for one such memory access after the other, since each gives the position of the next. A
//! *directory* is built once, when a block enters the cache. It is contiguous and leads to the entry itself.
//!
//! ```text
//! landmarks (24 × n) | the block's common bytes | its column tail
//! landmark: word (8) | timestamp of the entry before (8) | position (4) | interval (4)
//! ```
//!
//! A *landmark* is an entry with its word: the eight bytes of its key after the common ones. Entries that share their
//! word with the previous entry are left out. All entries from one landmark to the next therefore have the same word.
//! The first landmark with the target's word is the position at which a search for the target ends, or continues.
//!
//! Invariants:
//! * Words do not descend, and positions ascend.
//! * Every interval's first entry is a landmark.
//! * Entries of the last interval that do not begin with the common bytes follow all those that do. The first of them
//!   is their landmark, with the greatest word.
//!
//! A directory is only a hint: a search compares the whole key at the end. A block whose entries cannot be listed has
//! none.

use super::{Block, Entry, WORD_BYTES};
use crate::index::leading_number;
use std::sync::Arc;
use stele_types::key;

const LANDMARK_BYTES: usize = 24;

/// Average entry size from which a directory pays. A search passes such entries at a cache line each or worse, and the
/// directory takes less than a tenth of the block.
const LARGE_ENTRY_BYTES: usize = 256;

/// Entries after which a block of small entries is rejected.
const PROBED: usize = 4;

/// The directory of a block, in one allocation.
#[derive(Clone, Debug)]
pub(super) struct Directory(Arc<[u8]>);

/// The result of a search in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// Position of the first entry with the target's word.
    pub(super) at: usize,
    /// Its interval, and the end of that.
    pub(super) interval: usize,
    pub(super) interval_end: usize,
    /// The timestamp of the previous entry.
    pub(super) timestamp: i64,
    /// Position of the first entry with another word, if there is one.
    pub(super) next_word_at: Option<usize>,
    /// The block's column tail.
    pub(super) tail: &'a [u8],
}

impl Directory {
    /// The directory of a block; `None` when its entries are small or few, or not as they should be.
    pub(super) fn of(block: &Block) -> Option<Directory> {
        if block.restarts < 2 {
            // With one restart, the common bytes of all restarts need not be a prefix of all entries.
            return None;
        }
        let mut list = List::default();
        let mut entries = 0;
        for interval in 0..block.restarts {
            let (mut entry, end) = block.first_entry(interval).ok()?;
            let word = u64::from_be_bytes(block.word(interval).try_into().ok()?);
            list.add(word, block.timestamp_base, entry.at, interval)?;
            let mut word = word;
            loop {
                entries += 1;
                let is_small = entry.end < entries * LARGE_ENTRY_BYTES;
                if is_small && (entries >= PROBED || entry.end == block.entries_end) {
                    return None;
                }
                if entry.end >= end {
                    break;
                }
                let before = entry;
                entry = block.entry(before.end, end, before.timestamp, before.body_len).ok()?;
                if entry.shared < block.common.len() {
                    // Restarts begin with the common bytes, so no restart may follow this entry.
                    list.add(u64::MAX, before.timestamp, entry.at, interval)?;
                    return (interval + 1 == block.restarts).then(|| list.finish(block));
                }
                if entry.shared < block.head_len() {
                    word = word_of(block, &entry, word);
                    list.add(word, before.timestamp, entry.at, interval)?;
                }
            }
        }
        Some(list.finish(block))
    }

    /// Memory of the directory.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The position of the entries with the target's word; `None` when there are none, or the target is too short to
    /// have a word.
    #[inline]
    pub(super) fn find(&self, block: &Block, target: &[u8]) -> Option<Found<'_>> {
        let ends = block.common.len() + block.tail.len();
        let (landmarks, ends) = self.0.split_at_checked(self.0.len().checked_sub(ends)?)?;
        let (common, tail) = ends.split_at_checked(block.common.len())?;
        let (head, rest) = target.split_at_checked(common.len())?;
        let wanted = u64::from_be_bytes(*rest.first_chunk()?);
        if !key::is_same(head, common) {
            return None;
        }
        let landmarks = landmarks.as_chunks::<LANDMARK_BYTES>().0;
        let n = landmarks.partition_point(|landmark| word(landmark) < wanted);
        let landmark = landmarks.get(n).filter(|landmark| word(landmark) == wanted)?;
        let behind = landmarks.get(n + 1..)?;
        let interval = interval(landmark);
        let next_interval = behind.iter().find(|next| self::interval(next) != interval);
        Some(Found {
            at: position(landmark),
            interval,
            interval_end: next_interval.map_or(block.entries_end, position),
            timestamp: number(landmark, 8) as i64,
            next_word_at: behind.iter().find(|next| word(next) != wanted).map(position),
            tail,
        })
    }
}

/// The landmarks so far.
#[derive(Default)]
struct List {
    bytes: Vec<u8>,
    last: u64,
}

impl List {
    /// Adds a landmark; `None` when its word is below the last one.
    fn add(&mut self, word: u64, timestamp: i64, at: usize, interval: usize) -> Option<()> {
        if word < self.last {
            return None;
        }
        self.last = word;
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self.bytes.extend_from_slice(&timestamp.to_le_bytes());
        self.bytes.extend_from_slice(&u32::try_from(at).ok()?.to_le_bytes());
        self.bytes
            .extend_from_slice(&u32::try_from(interval).ok()?.to_le_bytes());
        Some(())
    }

    fn finish(mut self, block: &Block) -> Directory {
        let (landmarks, rest) = self.bytes.as_chunks::<LANDMARK_BYTES>();
        debug_assert!(rest.is_empty(), "all landmarks have the same size");
        debug_assert!(
            landmarks.is_sorted_by(|a, b| word(a) <= word(b) && position(a) < position(b)),
            "words do not descend, and positions ascend"
        );
        debug_assert!(
            landmarks.len() >= block.restarts,
            "every interval's first entry is a landmark"
        );
        self.bytes.extend_from_slice(block.common());
        self.bytes.extend_from_slice(block.column_tail());
        Directory(self.bytes.into())
    }
}

/// The word of an entry. The entry shares the common bytes, and a part of its word, with an entry that has the word
/// `before`.
fn word_of(block: &Block, entry: &Entry, before: u64) -> u64 {
    let kept = entry.shared.saturating_sub(block.common.len()).min(WORD_BYTES - 1);
    let bits = 8 * kept as u32;
    let own = if entry.value_at - entry.middle_at >= WORD_BYTES - kept {
        leading_number(&block.content, entry.middle_at, entry.value_at)
    } else {
        let trailer = block.trailer(entry).encode();
        let rest = [block.middle(entry), block.tail_of(entry), &trailer];
        let mut bytes = [0; WORD_BYTES];
        for (to, from) in bytes.iter_mut().zip(rest.into_iter().flatten()) {
            *to = *from;
        }
        u64::from_be_bytes(bytes)
    };
    (before & !(u64::MAX >> bits)) | own >> bits
}

#[inline]
fn number(landmark: &[u8; LANDMARK_BYTES], at: usize) -> u64 {
    let bytes = landmark.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn word(landmark: &[u8; LANDMARK_BYTES]) -> u64 {
    number(landmark, 0)
}

#[inline]
fn position(landmark: &[u8; LANDMARK_BYTES]) -> usize {
    (number(landmark, 16) & u64::from(u32::MAX)) as usize
}

#[inline]
fn interval(landmark: &[u8; LANDMARK_BYTES]) -> usize {
    (number(landmark, 16) >> 32) as usize
}

#[cfg(test)]
mod tests;
