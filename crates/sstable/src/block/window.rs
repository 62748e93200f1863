//! The entries of some neighbouring intervals, their keys put together, for walking backward.
//!
//! An entry can be put together only behind the one before it. A [`Window`] does that once, in one pass forward, for as many
//! whole intervals as are asked for, and keeps all keys: a step back is a step in an array, and who walks back sees what lies
//! before the current entry without leaving it.
//!
//! Invariants, unless it is empty:
//! * `places` are all entries of `intervals`, in order, and `at` is one of them.
//! * `keys` has at least [`SLACK`] bytes behind the last key.

use super::cursor::put;
use super::{Block, Entry};
use crate::error::DecodeError;
use crate::limits::RESTART_INTERVAL;
use std::ops::Range;
use stele_types::key::TRAILER_BYTES;

/// Intervals put together at once, at most: 256 entries, or as many as a block of the usual size has, so that places and keys
/// of the usual 50 bytes stay in the first-level cache.
const INTERVALS_MAX: usize = 16;
/// Bytes of keys beyond which an interval is put together by itself: those of 256 entries with 256 bytes each.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Memory for keys that is kept from block to block: what growing to the former leaves. One interval of the longest keys has
/// 2 MB of them.
const KEY_BYTES_KEPT: usize = 4 * KEY_BYTES_MAX;

/// What a key shares with the one before it is copied in pieces of this size, the last of which may be too long.
const SLACK: usize = 16;

/// Entries at hand.
#[derive(Debug, Default)]
pub(super) struct Window {
    keys: Vec<u8>,
    places: Vec<Place>,
    at: usize,
    intervals: Range<usize>,
    /// How many intervals to take next time.
    span: usize,
}

/// Where an entry's key is in `keys`, and its value in the block.
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
    /// Forgets the entries.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    /// Forgets the entries, for another block. The walk goes on: as many intervals are taken there as would be here.
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

    /// A walk begins here, and may be short: it takes one interval first, and then ever more.
    pub(super) fn begin_walk(&mut self) {
        self.span = 0;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The intervals that are at hand.
    pub(super) fn intervals(&self) -> Range<usize> {
        self.intervals.clone()
    }

    /// Key of the current entry; `None` when the window is empty.
    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key_of(*self.places.get(self.at)?)
    }

    /// Where in the block the current entry's value is; `None` when the window is empty.
    #[inline]
    pub(super) fn value(&self) -> Option<Range<usize>> {
        Some(self.places.get(self.at)?.value())
    }

    #[inline]
    fn key_of(&self, place: Place) -> Option<&[u8]> {
        self.keys.get(place.key_at as usize..place.key_end as usize)
    }

    /// Key and value's place of the entry `n` before the current one.
    #[inline]
    pub(super) fn before(&self, n: usize) -> Option<(&[u8], Range<usize>)> {
        let place = *self.places.get(self.at.checked_sub(n)?)?;
        Some((self.key_of(place)?, place.value()))
    }

    /// To the entry `n` before the current one; false when that is not at hand.
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

    /// To the entry behind the current one; false when that is not at hand.
    pub(super) fn step_on(&mut self) -> bool {
        let is_there = self.at + 1 < self.places.len();
        self.at += usize::from(is_there);
        is_there
    }

    /// To the last entry that is in order before what `is_before` refuses first; false when that is the first.
    pub(super) fn find_before(&mut self, is_before: impl Fn(&[u8]) -> bool) -> bool {
        let is_before = |place: &Place| self.key_of(*place).is_some_and(&is_before);
        let found = self.places.partition_point(is_before).checked_sub(1);
        self.at = found.unwrap_or(0);
        found.is_some()
    }

    /// To the entry that ends at `end`; false when none does.
    pub(super) fn find_end(&mut self, end: usize) -> bool {
        let at = self.places.partition_point(|place| (place.value_end as usize) < end);
        let found = self.places.get(at).filter(|place| place.value_end as usize == end);
        let is_there = found.is_some();
        self.at = if is_there { at } else { 0 };
        is_there
    }

    /// Takes the intervals before the `end`-th, as many as seems right; the current entry is the last one.
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

    /// Takes these intervals; the current entry is the last one. False, and then the window is empty, when there is more than
    /// one of them and their keys take too much memory.
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

    /// Puts the keys of the n-th interval at `keys_at`; where they end.
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

    /// Puts what the entry's key does not share at its place in the key at `at`; where the key ends.
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

/// Has `keys` reach to `end` and a slack beyond.
#[inline]
fn make_space(keys: &mut Vec<u8>, end: usize) {
    if keys.len() < end + SLACK {
        // Twice as much, so that growing from key to key costs little.
        keys.resize(2 * (end + SLACK), 0);
    }
}

/// Copies the first `len` bytes of the key at `from` to `to`, where it ends. What is written behind them is a piece of the
/// same key, and overwritten next; its trailer is longer than that.
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
