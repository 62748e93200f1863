//! Moves over the entries of one data block, in both directions.
//!
//! Forward, the current key is rebuilt in place from the previous one. Backward that is impossible, so the first step
//! back into a restart interval decodes the interval once and stacks its entries (`behind`); the following steps pop.
//!
//! Invariants, while `is_valid`:
//! * `key` is the current entry's full key, its body `body_len` long; `next` is where the following entry begins.
//! * `interval` holds the current entry and ends at `interval_end`.
//! * `behind`, unless empty, holds exactly the entries of `interval` before the current one.

use super::{Block, RawEntry};
use crate::error::DecodeError;
use crate::limits::RESTART_INTERVAL;
use bytes::Bytes;
use std::cmp::Ordering;
use stele_types::key::TRAILER_BYTES;
use stele_types::limits::CELL_KEY_BYTES_MAX;

/// A position in a block. Methods that move return whether there is an entry.
#[derive(Debug, Default)]
pub struct BlockCursor {
    block: Block,
    key: Vec<u8>,
    body_len: usize,
    timestamp: i64,
    /// Where the current entry, its value and the following entry begin.
    entry_at: usize,
    value_at: usize,
    next: usize,
    interval: usize,
    interval_end: usize,
    is_valid: bool,
    behind: Vec<Saved>,
    behind_keys: Vec<u8>,
}

/// An entry on the stack of `behind`; its key is the top of `behind_keys`.
#[derive(Debug)]
struct Saved {
    key_at: usize,
    timestamp: i64,
    entry_at: usize,
    value_at: usize,
    next: usize,
}

impl BlockCursor {
    /// Takes another block; there is no current entry afterwards. Buffers are kept.
    pub fn set_block(&mut self, block: Block) {
        self.block = block;
        self.is_valid = false;
        (self.entry_at, self.value_at, self.next, self.interval_end) = (0, 0, 0, 0);
        self.forget_behind();
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
        self.block.content.get(self.value_at..self.next).unwrap_or(&[])
    }

    /// The current value, sharing the block's memory; empty unless `is_valid`.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        if !self.is_valid {
            return Bytes::new();
        }
        self.block.slice(self.value_at..self.next)
    }

    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<bool, DecodeError> {
        self.enter(0)?;
        self.decode_next()?;
        Ok(true)
    }

    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<bool, DecodeError> {
        self.enter(self.block.restarts.saturating_sub(1))?;
        self.decode_next()?;
        while self.next < self.interval_end {
            self.save()?;
            self.decode_next()?;
        }
        Ok(true)
    }

    /// To the first entry not below `target`.
    pub fn seek(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        if !self.seek_is_ahead_in_interval(target)? {
            let interval = self.intervals_below(target)?.saturating_sub(1);
            self.enter(interval)?;
            self.decode_next()?;
        }
        self.forget_behind();
        while self.key.as_slice() < target {
            if !self.advance()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// To the last entry below `target`.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<bool, DecodeError> {
        let below = self.intervals_below(target)?;
        if below == 0 {
            self.is_valid = false;
            return Ok(false);
        }
        self.enter(below - 1)?;
        self.decode_next()?;
        while self.next < self.interval_end {
            self.save()?;
            self.decode_next()?;
            if self.key.as_slice() >= target {
                self.restore();
                break;
            }
        }
        Ok(true)
    }

    /// To the following entry. Requires `is_valid`.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, DecodeError> {
        if !self.behind.is_empty() {
            self.forget_behind();
        }
        if self.next >= self.interval_end {
            if self.next >= self.block.entries_end {
                self.is_valid = false;
                return Ok(false);
            }
            self.enter(self.interval + 1)?;
        }
        self.decode_next()?;
        Ok(true)
    }

    /// To the preceding entry. Requires `is_valid`.
    pub fn retreat(&mut self) -> Result<bool, DecodeError> {
        if self.behind.is_empty() {
            let stop = self.entry_at;
            if stop == 0 {
                self.is_valid = false;
                return Ok(false);
            }
            let at_start = self.block.restart(self.interval) == Some(stop);
            self.enter(if at_start {
                self.interval.saturating_sub(1)
            } else {
                self.interval
            })?;
            self.decode_next()?;
            while self.next < stop {
                self.save()?;
                self.decode_next()?;
            }
            if self.next != stop {
                return Err(self.corrupt("entries do not meet"));
            }
            return Ok(true);
        }
        self.restore();
        Ok(true)
    }

    /// Prepares decoding of the n-th interval's first entry.
    fn enter(&mut self, n: usize) -> Result<(), DecodeError> {
        self.forget_behind();
        self.is_valid = false;
        let start = self.block.restart(n);
        let end = self.block.restart(n + 1).unwrap_or(self.block.entries_end);
        let Some(start) = start.filter(|&start| start < end && end <= self.block.entries_end) else {
            return Err(DecodeError::new(
                self.block.entries_end + 4 * n,
                "restarts out of order",
            ));
        };
        self.interval = n;
        self.interval_end = end;
        self.next = start;
        self.timestamp = 0;
        self.body_len = 0;
        Ok(())
    }

    /// Makes the entry at `next` the current one. It must lie in `interval`, after the current one or first.
    #[inline]
    fn decode_next(&mut self) -> Result<(), DecodeError> {
        let at = self.next;
        let content = &self.block.content[..];
        let Some(entry) = RawEntry::decode(content, self.interval_end, at) else {
            return Err(self.corrupt("malformed entry"));
        };
        let Some(trailer) = entry.trailer(self.timestamp, self.block.seq_base) else {
            return Err(self.corrupt("unknown kind of cell"));
        };
        let suffix = content.get(entry.suffix()).unwrap_or(&[]);
        let body_len = entry.shared + suffix.len();
        let key_len = body_len + TRAILER_BYTES;
        if entry.shared > self.body_len || key_len > CELL_KEY_BYTES_MAX {
            return Err(self.corrupt("key shares more than there is, or exceeds the limit"));
        }
        if self.key.len() != key_len {
            self.key.resize(key_len, 0);
        }
        let (_, rest) = self.key.split_at_mut(entry.shared);
        let (own, end) = rest.split_at_mut(suffix.len());
        own.copy_from_slice(suffix);
        end.copy_from_slice(&trailer.encode());
        self.body_len = body_len;
        self.timestamp = trailer.timestamp.0;
        self.entry_at = at;
        self.value_at = entry.value_at;
        self.next = entry.end;
        self.is_valid = true;
        Ok(())
    }

    /// Number of intervals whose first key is below `target`.
    fn intervals_below(&self, target: &[u8]) -> Result<usize, DecodeError> {
        let (mut low, mut high) = (0, self.block.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare_restart(middle, target)? == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Whether the answer of `seek(target)` is in the current interval after the current entry, or begins the next
    /// interval: then no search is needed.
    fn seek_is_ahead_in_interval(&self, target: &[u8]) -> Result<bool, DecodeError> {
        if !self.is_valid || self.key.as_slice() > target {
            return Ok(false);
        }
        let next = self.interval + 1;
        Ok(next >= self.block.restarts || self.compare_restart(next, target)? != Ordering::Less)
    }

    #[inline]
    fn compare_restart(&self, n: usize, target: &[u8]) -> Result<Ordering, DecodeError> {
        let (body, trailer) = self.block.restart_key(n)?;
        let Some((head, rest)) = target.split_at_checked(body.len()) else {
            // `target` is shorter than the body; equal so far means the longer key is greater.
            return Ok(body.cmp(target));
        };
        Ok(body.cmp(head).then_with(|| trailer.encode().as_slice().cmp(rest)))
    }

    fn save(&mut self) -> Result<(), DecodeError> {
        if self.behind.len() >= RESTART_INTERVAL {
            return Err(self.corrupt("more entries than an interval may hold"));
        }
        self.behind.push(Saved {
            key_at: self.behind_keys.len(),
            timestamp: self.timestamp,
            entry_at: self.entry_at,
            value_at: self.value_at,
            next: self.next,
        });
        self.behind_keys.extend_from_slice(&self.key);
        Ok(())
    }

    /// Makes the top of the stack the current entry.
    fn restore(&mut self) {
        let Some(saved) = self.behind.pop() else {
            return;
        };
        self.key.clear();
        self.key
            .extend_from_slice(self.behind_keys.get(saved.key_at..).unwrap_or(&[]));
        self.behind_keys.truncate(saved.key_at);
        self.body_len = self.key.len().saturating_sub(TRAILER_BYTES);
        self.timestamp = saved.timestamp;
        self.entry_at = saved.entry_at;
        self.value_at = saved.value_at;
        self.next = saved.next;
    }

    fn forget_behind(&mut self) {
        self.behind.clear();
        self.behind_keys.clear();
    }

    #[cold]
    fn corrupt(&self, detail: &str) -> DecodeError {
        DecodeError::new(self.next, detail)
    }
}
