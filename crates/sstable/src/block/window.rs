//! A window holds the decoded entries of a few neighbouring intervals, for walking backward.
//!
//! An entry can be decoded only from the previous one. A [`Window`] decodes whole intervals once, in one pass forward,
//! and retains all keys. A step back is then a step in an array, and a reader sees the entries before the current one
//! without moving.
//!
//! Invariants, unless it is empty:
//! * `places` are all entries of `intervals`, in order, and `at` is one of them.
//! * `keys` has at least [`SLACK`] bytes after the last key.

use super::cursor::put;
use super::{Block, Entry};
use crate::error::DecodeError;
use crate::limits::RESTART_INTERVAL;
use std::ops::Range;
use stele_types::key::TRAILER_BYTES;

/// Largest number of intervals in a window: 256 entries, about as many as a block of the usual size has. Places and
/// keys of the usual 50 bytes then stay in the first-level cache.
const INTERVALS_MAX: usize = 16;
/// Bytes of keys above which an interval is decoded alone: those of 256 entries with 256 bytes each.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Memory for keys that is retained from block to block: the result of growing to [`KEY_BYTES_MAX`]. One interval of
/// the longest keys has 2 MB of them.
const KEY_BYTES_KEPT: usize = 4 * KEY_BYTES_MAX;

/// Size of the pieces in which shared bytes are copied from key to key. The last piece may exceed the shared bytes.
const SLACK: usize = 16;

/// The resident entries.
#[derive(Debug, Default)]
pub(super) struct Window {
    keys: Vec<u8>,
    places: Vec<Place>,
    at: usize,
    intervals: Range<usize>,
    /// Number of intervals to decode next time.
    span: usize,
}

/// Position of an entry's key in `keys`, and of its value in the block.
#[derive(Clone, Copy, Debug)]
struct Place {
    key_at: u32,
    key_end: u32,
    value_at: u32,
    value_end: u32,
}

impl Place {
    #[inline]
    fn value(self) -> Range<usize> {
        self.value_at as usize..self.value_end as usize
    }
}

impl Window {
    /// Drops the entries.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    /// Drops the entries, for another block. The walk continues there with the number of intervals that it has reached.
    pub(super) fn leave_block(&mut self) {
        self.places.clear();
        if self.keys.len() > KEY_BYTES_KEPT {
            self.keys = Vec::new();
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.keys.len()
    }

    /// Begins a walk, which may be short: it decodes one interval first, and doubles from there.
    pub(super) fn begin_walk(&mut self) {
        self.span = 0;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The resident intervals.
    pub(super) fn intervals(&self) -> Range<usize> {
        self.intervals.clone()
    }

    /// Key of the current entry; `None` when the window is empty.
    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key_of(*self.places.get(self.at)?)
    }

    /// Position of the current entry's value in the block; `None` when the window is empty.
    #[inline]
    pub(super) fn value(&self) -> Option<Range<usize>> {
        Some(self.places.get(self.at)?.value())
    }

    #[inline]
    fn key_of(&self, place: Place) -> Option<&[u8]> {
        self.keys.get(place.key_at as usize..place.key_end as usize)
    }

    /// Key of the entry `n` before the current one, and position of its value.
    #[inline]
    pub(super) fn before(&self, n: usize) -> Option<(&[u8], Range<usize>)> {
        let place = *self.places.get(self.at.checked_sub(n)?)?;
        Some((self.key_of(place)?, place.value()))
    }

    /// Moves to the entry `n` before the current one; false when that is not resident.
    #[inline]
    pub(super) fn step_back(&mut self, n: usize) -> bool {
        if self.places.is_empty() {
            return false;
        }
        debug_assert!(self.at < self.places.len(), "the current entry is one of the window");
        let before = self.at.checked_sub(n);
        self.at = before.unwrap_or(self.at);
        before.is_some()
    }

    /// Moves to the entry after the current one; false when that is not resident.
    pub(super) fn step_on(&mut self) -> bool {
        let is_there = self.at + 1 < self.places.len();
        self.at += usize::from(is_there);
        is_there
    }

    /// Moves to the last entry that `is_before` accepts. False when it rejects the first one.
    pub(super) fn find_before(&mut self, is_before: impl Fn(&[u8]) -> bool) -> bool {
        let is_before = |place: &Place| self.key_of(*place).is_some_and(&is_before);
        let found = self.places.partition_point(is_before).checked_sub(1);
        self.at = found.unwrap_or(0);
        found.is_some()
    }

    /// Moves to the entry that ends at `end`; false when none does.
    pub(super) fn find_end(&mut self, end: usize) -> bool {
        let at = self.places.partition_point(|place| (place.value_end as usize) < end);
        let found = self.places.get(at).filter(|place| place.value_end as usize == end);
        let is_there = found.is_some();
        self.at = if is_there { at } else { 0 };
        is_there
    }

    /// Decodes the intervals before the `end`-th, twice as many as last time. The current entry is the last one.
    pub(super) fn take_before(&mut self, block: &Block, end: usize) -> Result<(), DecodeError> {
        debug_assert!(
            (1..=block.intervals()).contains(&end),
            "there is an interval before the current one"
        );
        self.span = (2 * self.span).clamp(1, INTERVALS_MAX);
        if self.span == 1 || !self.take(block, end.saturating_sub(self.span)..end)? {
            self.span = 1;
            self.take(block, end.saturating_sub(1)..end)?;
        }
        Ok(())
    }

    /// Decodes these intervals; the current entry is the last one. Returns false with an empty window when there is
    /// more than one interval and their keys take too much memory.
    fn take(&mut self, block: &Block, intervals: Range<usize>) -> Result<bool, DecodeError> {
        self.clear();
        let several = intervals.len() > 1;
        let mut keys_end = 0;
        for n in intervals.clone() {
            let taken = self.take_interval(block, n, keys_end);
            match taken {
                Ok(end) if several && end > KEY_BYTES_MAX => {
                    self.clear();
                    return Ok(false);
                }
                Ok(end) => keys_end = end,
                Err(e) => {
                    self.clear();
                    return Err(e);
                }
            }
        }
        debug_assert!(
            self.places
                .is_sorted_by(|a, b| a.value_end < b.value_at && a.key_end == b.key_at),
            "the entries of a window follow each other"
        );
        debug_assert!(self.places.len() >= intervals.len(), "every interval has an entry");
        self.intervals = intervals;
        self.at = self.places.len().saturating_sub(1);
        Ok(true)
    }

    /// Decodes the keys of the n-th interval to `keys_at`. Returns the end of the keys.
    fn take_interval(&mut self, block: &Block, n: usize, mut keys_at: usize) -> Result<usize, DecodeError> {
        let (mut entry, end) = block.first_entry(n)?;
        let head_or_key = block.head_len().max(entry.body_len + TRAILER_BYTES);
        make_space(&mut self.keys, keys_at + head_or_key);
        put(&mut self.keys, keys_at, block.common());
        put(&mut self.keys, keys_at + block.common().len(), block.word(n));
        for _ in 0..RESTART_INTERVAL {
            let key_end = self.put_rest(block, &entry, keys_at);
            // Neither content nor keys come near 4 GiB: `BLOCK_BYTES_MAX`, `KEY_BYTES_MAX`.
            self.places.push(Place {
                key_at: keys_at as u32,
                key_end: key_end as u32,
                value_at: entry.value_at as u32,
                value_end: entry.end as u32,
            });
            if entry.end >= end {
                return Ok(key_end);
            }
            entry = block.entry(entry.end, end, entry.timestamp, entry.body_len)?;
            make_space(&mut self.keys, key_end + entry.body_len + TRAILER_BYTES);
            copy(&mut self.keys, keys_at, key_end, entry.shared);
            keys_at = key_end;
        }
        Err(DecodeError::new(entry.at, "more entries than an interval may hold"))
    }

    /// Writes the bytes that the entry's key does not share into the key at `at`. Returns the end of the key.
    #[inline(always)]
    fn put_rest(&mut self, block: &Block, entry: &Entry, at: usize) -> usize {
        let end = at + entry.body_len + TRAILER_BYTES;
        debug_assert!(end + SLACK <= self.keys.len(), "there is slack after the last key");
        let keys = &mut self.keys;
        put(keys, at + entry.shared, block.middle(entry));
        put(keys, at + entry.tail_at, block.tail_of(entry));
        put(keys, at + entry.body_len, &block.trailer(entry).encode());
        end
    }
}

/// Grows `keys` to `end` and the slack after it.
#[inline]
fn make_space(keys: &mut Vec<u8>, end: usize) {
    if keys.len() < end + SLACK {
        // Doubles the size, so that growing from key to key costs little.
        keys.resize(2 * (end + SLACK), 0);
    }
}

/// Copies the first `len` bytes of the key at `from` to `to`, where that key ends. It may write up to a piece more,
/// which is part of the same key and overwritten next, because a trailer is longer than a piece.
#[inline]
fn copy(keys: &mut [u8], from: usize, to: usize, len: usize) {
    let Some((before, behind)) = keys.split_at_mut_checked(to) else {
        return;
    };
    let before = before.get(from..).unwrap_or(&[]).as_chunks::<SLACK>().0;
    let behind = behind.as_chunks_mut::<SLACK>().0;
    for (from, to) in before.iter().zip(behind).take(len.div_ceil(SLACK)) {
        *to = *from;
    }
}
