//! Moves over the entries of one data block, in both directions.
//!
//! Forward, the current key is rebuilt in place from the previous one. Backward, too: the first step back into a restart
//! interval decodes it once and stacks its entries (`behind`), and each step back changes in the key what the entry that is
//! left did not share with the one before it. A seek puts no keys together on its way: what an entry shares with the one
//! before it tells how it compares with the target, and only what it does not share is looked at.
//!
//! Invariants, while `is_valid`:
//! * `key` is the full key of `entry`.
//! * `interval` holds `entry` and ends at `interval_end`.
//! * `behind`, unless empty, holds exactly the entries of `interval` before `entry`.

use super::{Block, Entry};
use crate::error::DecodeError;
use crate::index::common_prefix;
use crate::limits::RESTART_INTERVAL;
use bytes::Bytes;
use std::cmp::Ordering;
use stele_types::key::TRAILER_BYTES;

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
    behind: Vec<Entry>,
}

impl BlockCursor {
    /// Takes another block; there is no current entry afterwards. Buffers are kept.
    pub fn set_block(&mut self, block: Block) {
        self.block = block;
        self.is_valid = false;
        self.entry = Entry::default();
        self.interval_end = 0;
        self.behind.clear();
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
        &self.key
    }

    /// The current value; meaningful while `is_valid`.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block
            .content
            .get(self.entry.value_at..self.entry.end)
            .unwrap_or(&[])
    }

    /// The current value, sharing the block's memory; empty unless `is_valid`.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        if !self.is_valid {
            return Bytes::new();
        }
        self.block.slice(self.entry.value_at..self.entry.end)
    }

    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<bool, DecodeError> {
        self.begin_interval(0)?;
        Ok(true)
    }

    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<bool, DecodeError> {
        self.stack_interval(self.block.restarts.saturating_sub(1), self.block.entries_end)?;
        self.unstack(0);
        Ok(true)
    }

    /// To the first entry not below `target`.
    pub fn seek(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        let matched;
        if self.seek_is_ahead_in_interval(target)? {
            if self.key.as_slice() >= target {
                return Ok(true);
            }
            let body = self.key.get(..self.entry.body_len).unwrap_or(&[]);
            matched = common_prefix(body, target);
            self.behind.clear();
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

    /// To the last entry below `target`.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        let below = self.block.intervals_below(target)?;
        self.is_valid = false;
        let Some(interval) = below.checked_sub(1) else {
            return Ok(false);
        };
        let mut matched = self.enter_below(interval, target)?;
        self.stack(self.entry)?;
        while self.entry.end < self.interval_end {
            let entry = self.next_entry()?;
            if entry.shared <= matched {
                let (order, common) = self.block.compare(&entry, target);
                if order != Ordering::Less {
                    break;
                }
                matched = common;
            }
            self.stack(entry)?;
        }
        self.unstack(0);
        Ok(self.is_valid)
    }

    /// To the following entry. Requires `is_valid`.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, DecodeError> {
        if !self.behind.is_empty() {
            self.behind.clear();
        }
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
        let mut kept = self.entry.shared;
        if self.behind.is_empty() {
            let stop = self.entry.at;
            if stop == 0 {
                self.is_valid = false;
                return Ok(false);
            }
            let mut interval = self.interval;
            if self.block.restart(interval) == Some(stop) {
                kept = 0;
                interval = interval.saturating_sub(1);
            }
            self.stack_interval(interval, stop)?;
        }
        self.unstack(kept);
        Ok(true)
    }

    /// Enters the n-th interval; its first entry is `entry`, but not in `key`.
    #[inline]
    fn enter(&mut self, n: usize) -> Result<(), DecodeError> {
        self.behind.clear();
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
        if !self.is_valid || self.key.as_slice() > target {
            return Ok(false);
        }
        let next = self.interval + 1;
        Ok(next >= self.block.restarts || self.block.compare_restart(next, target)? != Ordering::Less)
    }

    /// Stacks the entries of the n-th interval that end at `stop` or before.
    fn stack_interval(&mut self, n: usize, stop: usize) -> Result<(), DecodeError> {
        self.enter(n)?;
        self.stack(self.entry)?;
        while self.entry.end < stop {
            let entry = self.next_entry()?;
            self.stack(entry)?;
        }
        if self.entry.end != stop {
            return Err(DecodeError::new(stop, "entries do not meet"));
        }
        Ok(())
    }

    #[inline]
    fn stack(&mut self, entry: Entry) -> Result<(), DecodeError> {
        // The current one is one of them, until it is unstacked.
        if self.behind.len() >= RESTART_INTERVAL {
            return Err(DecodeError::new(entry.at, "more entries than an interval may hold"));
        }
        self.behind.push(entry);
        self.entry = entry;
        Ok(())
    }

    /// Makes the top of the stack the current entry; the first `kept` bytes of `key` are its body's already.
    #[inline]
    fn unstack(&mut self, kept: usize) {
        let Some(entry) = self.behind.pop() else {
            return;
        };
        let key_len = entry.body_len + TRAILER_BYTES;
        if self.key.len() != key_len {
            self.key.resize(key_len, 0);
        }
        let block = &self.block;
        put(&mut self.key, entry.body_len, &block.trailer(&entry).encode());
        put_from(&mut self.key, kept, entry.tail_at, block.tail_of(&entry));
        put_from(&mut self.key, kept, entry.shared, block.middle(&entry));
        // What it shares beyond `kept` comes from entries before it, from each what the next one shares with it, and from
        // the interval's head.
        let mut end = entry.shared;
        for before in self.behind.iter().rev() {
            if end <= kept {
                break;
            }
            put_upto(&mut self.key, kept, end, before.tail_at, block.tail_of(before));
            put_upto(&mut self.key, kept, end, before.shared, block.middle(before));
            end = end.min(before.shared);
        }
        if end > kept {
            let common = block.common();
            put_upto(&mut self.key, kept, end, 0, common);
            put_upto(&mut self.key, kept, end, common.len(), block.word(self.interval));
        }
        self.entry = entry;
        self.is_valid = true;
    }
}

/// Writes `piece` to its place in the key, which begins at `at`. Pieces are mostly too short for a call to be worth it: up to
/// 16 bytes are written as two words that overlap.
#[inline]
fn put(key: &mut [u8], at: usize, piece: &[u8]) {
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

/// Writes what of `piece` lies at `kept` or behind.
#[inline]
fn put_from(key: &mut [u8], kept: usize, at: usize, piece: &[u8]) {
    let skipped = kept.saturating_sub(at);
    put(key, at + skipped, piece.get(skipped..).unwrap_or(&[]));
}

/// Writes what of `piece` lies at `kept` or behind, and before `end`.
#[inline]
fn put_upto(key: &mut [u8], kept: usize, end: usize, at: usize, piece: &[u8]) {
    let len = end.saturating_sub(at).min(piece.len());
    put_from(key, kept, at, piece.get(..len).unwrap_or(&[]));
}
