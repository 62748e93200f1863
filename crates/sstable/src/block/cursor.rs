//! Moves over the entries of one data block, in both directions.
//!
//! Forward, the current key is rebuilt in place from the previous one. Backward, whole intervals are put together at once
//! (`window`), and each step back is one in an array. A seek forward puts no keys together on its way: what an entry shares
//! with the one before it tells how it compares with the target, and only what it does not share is looked at.
//!
//! Invariants, while `is_valid`:
//! * The current entry is that of `window`, unless it is empty.
//! * Else it is `entry`, `key` is its full key, and `interval` holds it and ends at `interval_end`.
//! * `next_differs_within` is of `entry`.

use super::window::Window;
use super::{Block, Entry};
use crate::error::DecodeError;
use crate::index::common_prefix;
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Range;
use stele_types::key::{TRAILER_BYTES, row_prefix_len};

/// What a search says that finds an interval not where the words of others led to.
const OUT_OF_ORDER: &str = "intervals out of order";

/// A position in a block. Methods that move return whether there is an entry.
#[derive(Debug, Default)]
pub struct BlockCursor {
    block: Block,
    key: Vec<u8>,
    entry: Entry,
    interval: usize,
    interval_end: usize,
    is_valid: bool,
    /// So many first bytes of the next entry's key are known not to be those of `key`; 0 when nothing is known.
    next_differs_within: usize,
    window: Window,
}

/// Entries before the current one of a cursor, up to it, in order: see [`BlockCursor::buffered`].
#[derive(Debug)]
pub struct Buffered<'a> {
    cells: &'a BlockCursor,
    left: usize,
}

impl<'a> Iterator for Buffered<'a> {
    /// A key with its value.
    type Item = (&'a [u8], BufferedValue<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let before = self.left.checked_sub(1)?;
        self.left = before;
        let (key, range) = self.cells.window.before(before)?;
        let block = &self.cells.block;
        Some((key, BufferedValue { block, range }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Buffered<'_> {}

/// The value of an entry at hand.
#[derive(Debug)]
pub struct BufferedValue<'a> {
    block: &'a Block,
    range: Range<usize>,
}

impl<'a> BufferedValue<'a> {
    /// To look at.
    #[inline]
    pub fn as_slice(&self) -> &'a [u8] {
        self.block.content.get(self.range.clone()).unwrap_or(&[])
    }

    /// To keep: shares the block's memory.
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        self.block.slice(self.range.clone())
    }
}

impl BlockCursor {
    /// Takes another block; there is no current entry afterwards. Buffers are kept.
    pub fn set_block(&mut self, block: Block) {
        self.block = block;
        self.is_valid = false;
        self.next_differs_within = 0;
        self.entry = Entry::default();
        self.interval_end = 0;
        self.window.leave_block();
    }

    /// The block under the cursor.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Whether there is a current entry.
    pub fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// The current key; meaningful while `is_valid`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.window.key().unwrap_or(&self.key)
    }

    /// The current value; meaningful while `is_valid`.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.content.get(self.value_range()).unwrap_or(&[])
    }

    #[inline]
    fn value_range(&self) -> Range<usize> {
        self.window.value().unwrap_or(self.entry.value_at..self.entry.end)
    }

    /// The current value, sharing the block's memory; empty unless `is_valid`.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        if !self.is_valid {
            return Bytes::new();
        }
        self.block.slice(self.value_range())
    }

    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<bool, DecodeError> {
        self.begin_interval(0)?;
        Ok(true)
    }

    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<bool, DecodeError> {
        self.take_before(self.block.restarts)?;
        Ok(true)
    }

    /// To the first entry not below `target`.
    pub fn seek(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        if self.seek_in_directory(target)? {
            return Ok(true);
        }
        let matched;
        if self.seek_is_ahead_in_interval(target)? {
            if self.key.as_slice() >= target {
                return Ok(true);
            }
            let body = self.key.get(..self.entry.body_len).unwrap_or(&[]);
            matched = common_prefix(body, target);
            self.is_valid = false;
        } else {
            let below = self.block.intervals_below(target)?;
            let Some(interval) = below.checked_sub(1) else {
                return self.begin_interval_above(0, target);
            };
            self.is_valid = false;
            matched = self.enter_below(interval, target)?;
        }
        // Of the entry passed last, `matched` bytes of the body are the target's, and its key is below the target.
        let mut matched = matched;
        let Entry {
            mut end,
            mut timestamp,
            mut body_len,
            ..
        } = self.entry;
        while end < self.interval_end {
            let entry = self.block.entry(end, self.interval_end, timestamp, body_len)?;
            if entry.shared <= matched {
                let (order, common) = self.block.compare(&entry, target);
                if order != Ordering::Less {
                    self.key.resize(entry.body_len + TRAILER_BYTES, 0);
                    put(&mut self.key, 0, target.get(..entry.shared).unwrap_or(&[]));
                    self.go_to(entry);
                    return Ok(true);
                }
                matched = common;
            }
            (end, timestamp, body_len) = (entry.end, entry.timestamp, entry.body_len);
        }
        if end >= self.block.entries_end {
            return Ok(false);
        }
        self.begin_interval_above(self.interval + 1, target)
    }

    /// To the first entry not below `target`, if the block's directory leads there.
    #[inline]
    fn seek_in_directory(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        self.next_differs_within = 0;
        let block = &self.block;
        let Some(found) = block
            .directory
            .as_ref()
            .and_then(|directory| directory.find(block, target))
        else {
            return Ok(false);
        };
        let head_len = block.head_len();
        let entry = block.entry(found.at, found.interval_end, found.timestamp, head_len)?;
        // The target begins with the head, so it has what the entry shares.
        let shared = target.get(..entry.shared).unwrap_or(&[]);
        self.window.clear();
        self.is_valid = false;
        self.key.resize(entry.body_len + TRAILER_BYTES, 0);
        put(&mut self.key, 0, shared);
        put(&mut self.key, entry.shared, block.middle(&entry));
        if entry.body_len > entry.tail_at {
            put(&mut self.key, entry.tail_at, found.tail);
        }
        put(&mut self.key, entry.body_len, &block.trailer(&entry).encode());
        if self.key.as_slice() < target {
            // An entry with the same word, perhaps far behind it, is the one.
            return Ok(false);
        }
        if found.next_word_at == Some(entry.end) {
            self.next_differs_within = head_len;
        }
        (self.interval, self.interval_end) = (found.interval, found.interval_end);
        self.entry = entry;
        self.is_valid = true;
        Ok(true)
    }

    /// Whether the entry behind the current one is known to be of another row, without looking at it, which may be a wait for
    /// memory.
    #[inline]
    pub fn is_last_of_row(&self) -> bool {
        let differs_within = self.next_differs_within;
        differs_within > 0 && row_prefix_len(&self.key).is_some_and(|row_len| differs_within <= row_len)
    }

    /// To the last entry below `target`.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        let below = self.block.intervals_below(target)?;
        self.is_valid = false;
        self.window.clear();
        let Some(interval) = below.checked_sub(1) else {
            return Ok(false);
        };
        self.window.begin_walk();
        self.take_before(interval + 1)?;
        // That its first key is below, others have said of it.
        if !self.window.find_before(|key| key < target) {
            return Err(self.refuse(OUT_OF_ORDER));
        }
        Ok(true)
    }

    /// To the following entry. Requires `is_valid`.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, DecodeError> {
        debug_assert!(self.is_valid, "a move starts at a current entry");
        if !self.window.is_empty() {
            return self.advance_from_window();
        }
        self.next_differs_within = 0;
        if self.entry.end >= self.interval_end {
            if self.entry.end >= self.block.entries_end {
                self.is_valid = false;
                return Ok(false);
            }
            self.begin_interval(self.interval + 1)?;
            return Ok(true);
        }
        let entry = self.next_entry()?;
        if entry.tail_at == self.entry.tail_at && entry.body_len == self.entry.body_len {
            // The tail, if there is one, is in its place, as it nearly always is where rows are equally long.
            put(&mut self.key, entry.shared, self.block.middle(&entry));
            put(&mut self.key, entry.body_len, &self.block.trailer(&entry).encode());
            self.entry = entry;
        } else {
            self.go_to(entry);
        }
        Ok(true)
    }

    /// To the preceding entry. Requires `is_valid`.
    #[inline]
    pub fn retreat(&mut self) -> Result<bool, DecodeError> {
        debug_assert!(self.is_valid, "a move starts at a current entry");
        if self.window.step_back(1) {
            return Ok(true);
        }
        self.retreat_into_window()
    }

    /// The entries up to the current one that `belongs` accepts, in order, if they and the one before them, which it does not
    /// accept, are at hand.
    #[inline]
    pub fn buffered(&self, belongs: impl Fn(&[u8]) -> bool) -> Option<Buffered<'_>> {
        let mut left = 1;
        while belongs(self.window.before(left)?.0) {
            left += 1;
        }
        Some(Buffered { cells: self, left })
    }

    /// The key before the current one, if it is at hand; not when the walk is at its end.
    #[inline]
    pub fn buffered_before(&self) -> Option<&[u8]> {
        Some(self.window.before(1)?.0)
    }

    /// To the entry before the first of so many at hand ([`BlockCursor::buffered`]); false, without moving, when it is not at
    /// hand itself.
    #[inline]
    pub fn leave(&mut self, buffered: usize) -> bool {
        self.window.step_back(buffered)
    }

    /// Memory of what is at hand.
    #[cfg(test)]
    pub(super) fn window_bytes(&self) -> usize {
        self.window.bytes()
    }

    /// Takes the intervals before the current entry's, or this one when the walk back begins within it.
    #[inline(never)]
    fn retreat_into_window(&mut self) -> Result<bool, DecodeError> {
        if !self.window.is_empty() {
            let end = self.window.intervals().start;
            if end == 0 {
                self.is_valid = false;
                self.window.clear();
                return Ok(false);
            }
            self.take_before(end)?;
            return Ok(true);
        }
        let stop = self.entry.at;
        if stop == 0 {
            self.is_valid = false;
            return Ok(false);
        }
        self.window.begin_walk();
        if self.block.restart(self.interval) == Some(stop) {
            self.take_before(self.interval)?;
            return Ok(true);
        }
        self.take_before(self.interval + 1)?;
        if !self.window.find_end(stop) {
            return Err(self.refuse("entries do not meet"));
        }
        Ok(true)
    }

    #[inline(never)]
    fn advance_from_window(&mut self) -> Result<bool, DecodeError> {
        if self.window.step_on() {
            return Ok(true);
        }
        let next = self.window.intervals().end;
        self.window.clear();
        self.is_valid = false;
        if next >= self.block.restarts {
            return Ok(false);
        }
        self.begin_interval(next)?;
        Ok(true)
    }

    /// To the last entry before the n-th interval, in the window.
    fn take_before(&mut self, n: usize) -> Result<(), DecodeError> {
        self.is_valid = false;
        self.next_differs_within = 0;
        self.window.take_before(&self.block, n)?;
        self.is_valid = true;
        Ok(())
    }

    /// What is in the window is not as it should be.
    #[cold]
    fn refuse(&mut self, detail: &'static str) -> DecodeError {
        let first = self.window.intervals().start;
        self.is_valid = false;
        self.window.clear();
        DecodeError::new(self.block.restart(first).unwrap_or(0), detail)
    }

    /// Enters the n-th interval; its first entry is `entry`, but not in `key`.
    #[inline]
    fn enter(&mut self, n: usize) -> Result<(), DecodeError> {
        self.window.clear();
        self.next_differs_within = 0;
        self.is_valid = false;
        (self.entry, self.interval_end) = self.block.first_entry(n)?;
        self.interval = n;
        Ok(())
    }

    /// Enters the n-th interval, whose first key is below `target`; how many bytes they have in common.
    fn enter_below(&mut self, n: usize, target: &[u8]) -> Result<usize, DecodeError> {
        self.enter(n)?;
        match self.block.compare_first(n, &self.entry, target) {
            (Ordering::Less, matched) => Ok(matched),
            _ => Err(DecodeError::new(self.entry.at, OUT_OF_ORDER)),
        }
    }

    /// To the first entry of the n-th interval, which is not below `target`.
    fn begin_interval_above(&mut self, n: usize, target: &[u8]) -> Result<bool, DecodeError> {
        self.begin_interval(n)?;
        if self.key.as_slice() < target {
            self.is_valid = false;
            return Err(DecodeError::new(self.entry.at, OUT_OF_ORDER));
        }
        Ok(true)
    }

    /// To the first entry of the n-th interval.
    fn begin_interval(&mut self, n: usize) -> Result<(), DecodeError> {
        self.enter(n)?;
        let head_len = self.block.head_len();
        if self.key.len() < head_len {
            self.key.resize(head_len, 0);
        }
        put(&mut self.key, 0, self.block.common());
        put(&mut self.key, self.block.common().len(), self.block.word(n));
        self.go_to(self.entry);
        Ok(())
    }

    /// The entry behind `entry`. It must lie in `interval`.
    #[inline(always)]
    fn next_entry(&self) -> Result<Entry, DecodeError> {
        debug_assert!(
            self.entry.end < self.interval_end,
            "another entry follows in the interval"
        );
        let Entry {
            end,
            body_len,
            timestamp,
            ..
        } = self.entry;
        self.block.entry(end, self.interval_end, timestamp, body_len)
    }

    /// Makes `entry` the current one; of its key what it shares is in `key`.
    #[inline]
    fn go_to(&mut self, entry: Entry) {
        let key_len = entry.body_len + TRAILER_BYTES;
        debug_assert!(entry.shared <= self.key.len(), "the shared bytes are in the key buffer");
        if self.key.len() != key_len {
            self.key.resize(key_len, 0);
        }
        let block = &self.block;
        put(&mut self.key, entry.shared, block.middle(&entry));
        put(&mut self.key, entry.tail_at, block.tail_of(&entry));
        put(&mut self.key, entry.body_len, &block.trailer(&entry).encode());
        self.entry = entry;
        self.is_valid = true;
    }

    /// Whether the answer of `seek(target)` is in the current interval after the current entry, or begins the next
    /// interval: then no search is needed.
    fn seek_is_ahead_in_interval(&self, target: &[u8]) -> Result<bool, DecodeError> {
        if !self.is_valid || !self.window.is_empty() || self.key.as_slice() > target {
            return Ok(false);
        }
        let next = self.interval + 1;
        Ok(next >= self.block.restarts || self.block.compare_restart(next, target)? != Ordering::Less)
    }
}

/// Writes `piece` to its place in the key, which begins at `at`. Pieces are mostly too short for a call to be worth it: up to
/// 16 bytes are written as two words that overlap.
#[inline]
pub(super) fn put(key: &mut [u8], at: usize, piece: &[u8]) {
    debug_assert!(at + piece.len() <= key.len(), "a piece of a key lies within the key");
    let Some(place) = key.get_mut(at..at + piece.len()) else {
        return;
    };
    if let (8..=16, Some(first), Some(last)) = (piece.len(), piece.first_chunk::<8>(), piece.last_chunk::<8>())
        && let Some(to) = place.first_chunk_mut()
    {
        *to = *first;
        if let Some(to) = place.last_chunk_mut() {
            *to = *last;
        }
        return;
    }
    place.copy_from_slice(piece);
}
