//! A cursor moves over the entries of one data block, in both directions.
//!
//! Forward, the cursor rebuilds the current key in place from the previous key. Backward, it decodes whole intervals into
//! a `window`, and each step back is a step in an array. A forward seek assembles no keys on its way. The length that an
//! entry shares with the previous one mostly decides how it compares with the target, and only its other bytes are read.
//!
//! Invariants, while `is_valid`:
//! * The current entry is that of `window`, unless the window is empty.
//! * Otherwise it is `entry`, `key` is its full key, and `interval` contains it and ends at `interval_end`.
//! * `next_differs_within` refers to `entry`.

use super::window::Window;
use super::{Block, Entry};
use crate::error::DecodeError;
use crate::index::common_prefix;
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Range;
use stele_types::key::{TRAILER_BYTES, row_prefix_len};

/// Error detail of a search that finds an interval in the wrong order.
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
    /// The next entry's key differs from `key` within its first this many bytes; 0 when nothing is known.
    next_differs_within: usize,
    window: Window,
}

/// Resident entries before and at the current one of a cursor, in order: see [`BlockCursor::buffered`].
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

/// The value of a resident entry.
#[derive(Debug)]
pub struct BufferedValue<'a> {
    block: &'a Block,
    range: Range<usize>,
}

impl<'a> BufferedValue<'a> {
    /// The value, borrowed.
    #[inline]
    pub fn as_slice(&self) -> &'a [u8] {
        self.block.content.get(self.range.clone()).unwrap_or(&[])
    }

    /// The value as a slice that shares the block's memory.
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        self.block.slice(self.range.clone())
    }
}

impl BlockCursor {
    /// Replaces the block. There is no current entry afterwards; buffers are reused.
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

    /// Moves to the first entry.
    pub fn seek_first(&mut self) -> Result<bool, DecodeError> {
        self.begin_interval(0)?;
        Ok(true)
    }

    /// Moves to the last entry.
    pub fn seek_last(&mut self) -> Result<bool, DecodeError> {
        self.take_before(self.block.restarts)?;
        Ok(true)
    }

    /// Moves to the first entry not below `target`.
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
        // The key of the last entry passed is below the target, and the first `matched` bytes of its body equal the
        // target's.
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

    /// Moves to the first entry not below `target`, if the block's directory leads there.
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
        // The target begins with the head, so it contains the bytes that the entry shares.
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
            // A later entry with the same word is the result, perhaps far away.
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

    /// Whether the next entry is known to be of another row, without reading it: that read may miss the processor's
    /// caches.
    #[inline]
    pub fn is_last_of_row(&self) -> bool {
        let differs_within = self.next_differs_within;
        differs_within > 0 && row_prefix_len(&self.key).is_some_and(|row_len| differs_within <= row_len)
    }

    /// Moves to the last entry below `target`.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        let below = self.block.intervals_below(target)?;
        self.is_valid = false;
        self.window.clear();
        let Some(interval) = below.checked_sub(1) else {
            return Ok(false);
        };
        self.window.begin_walk();
        self.take_before(interval + 1)?;
        // The heads of the intervals promised that the first key of this one is below the target.
        if !self.window.find_before(|key| key < target) {
            return Err(self.refuse(OUT_OF_ORDER));
        }
        Ok(true)
    }

    /// Moves to the following entry. Requires `is_valid`.
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
            // The tail, if there is one, is already in its place. This is the usual case where rows have equal length.
            put(&mut self.key, entry.shared, self.block.middle(&entry));
            put(&mut self.key, entry.body_len, &self.block.trailer(&entry).encode());
            self.entry = entry;
        } else {
            self.go_to(entry);
        }
        Ok(true)
    }

    /// Moves to the preceding entry. Requires `is_valid`.
    #[inline]
    pub fn retreat(&mut self) -> Result<bool, DecodeError> {
        debug_assert!(self.is_valid, "a move starts at a current entry");
        if self.window.step_back(1) {
            return Ok(true);
        }
        self.retreat_into_window()
    }

    /// The entries up to the current one that `belongs` accepts, in order. `None` unless they and the entry before
    /// them, which `belongs` rejects, are resident in the window.
    #[inline]
    pub fn buffered(&self, belongs: impl Fn(&[u8]) -> bool) -> Option<Buffered<'_>> {
        let mut left = 1;
        while belongs(self.window.before(left)?.0) {
            left += 1;
        }
        Some(Buffered { cells: self, left })
    }

    /// The key before the current one, if it is resident. `None` at the start of the window, where the next step back
    /// ends or decodes more intervals.
    #[inline]
    pub fn buffered_before(&self) -> Option<&[u8]> {
        Some(self.window.before(1)?.0)
    }

    /// Moves to the entry before the first of `buffered` resident entries ([`BlockCursor::buffered`]). Returns false
    /// without moving when that entry is not resident.
    #[inline]
    pub fn leave(&mut self, buffered: usize) -> bool {
        self.window.step_back(buffered)
    }

    /// Memory of the window.
    #[cfg(test)]
    pub(super) fn window_bytes(&self) -> usize {
        self.window.bytes()
    }

    /// Decodes the intervals before the current entry's into the window. Where the backward walk begins within an
    /// interval, decodes this interval.
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

    /// Moves to the last entry before the n-th interval, in the window.
    fn take_before(&mut self, n: usize) -> Result<(), DecodeError> {
        self.is_valid = false;
        self.next_differs_within = 0;
        self.window.take_before(&self.block, n)?;
        self.is_valid = true;
        Ok(())
    }

    /// The error for a window whose entries contradict the search.
    #[cold]
    fn refuse(&mut self, detail: &'static str) -> DecodeError {
        let first = self.window.intervals().start;
        self.is_valid = false;
        self.window.clear();
        DecodeError::new(self.block.restart(first).unwrap_or(0), detail)
    }

    /// Enters the n-th interval: its first entry becomes `entry`, but its key is not in `key`.
    #[inline]
    fn enter(&mut self, n: usize) -> Result<(), DecodeError> {
        self.window.clear();
        self.next_differs_within = 0;
        self.is_valid = false;
        (self.entry, self.interval_end) = self.block.first_entry(n)?;
        self.interval = n;
        Ok(())
    }

    /// Enters the n-th interval, whose first key is below `target`. Returns the length of their common prefix.
    fn enter_below(&mut self, n: usize, target: &[u8]) -> Result<usize, DecodeError> {
        self.enter(n)?;
        match self.block.compare_first(n, &self.entry, target) {
            (Ordering::Less, matched) => Ok(matched),
            _ => Err(DecodeError::new(self.entry.at, OUT_OF_ORDER)),
        }
    }

    /// Moves to the first entry of the n-th interval, which is not below `target`.
    fn begin_interval_above(&mut self, n: usize, target: &[u8]) -> Result<bool, DecodeError> {
        self.begin_interval(n)?;
        if self.key.as_slice() < target {
            self.is_valid = false;
            return Err(DecodeError::new(self.entry.at, OUT_OF_ORDER));
        }
        Ok(true)
    }

    /// Moves to the first entry of the n-th interval.
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

    /// The entry after `entry`, within `interval`.
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

    /// Makes `entry` the current one. The bytes that it shares are already in `key`.
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

    /// Whether the result of `seek(target)` is in the current interval after the current entry, or begins the next
    /// interval: then no search is needed.
    fn seek_is_ahead_in_interval(&self, target: &[u8]) -> Result<bool, DecodeError> {
        if !self.is_valid || !self.window.is_empty() || self.key.as_slice() > target {
            return Ok(false);
        }
        let next = self.interval + 1;
        Ok(next >= self.block.restarts || self.block.compare_restart(next, target)? != Ordering::Less)
    }
}

/// Writes `piece` into the key at `at`. Most pieces are too short for a call to pay: one of 8 to 16 bytes is written as
/// two words that overlap.
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
