//! Rows that a table must hold, computed by replaying the writes to it.
//!
//! Terms: a key is *present* if an acknowledged write is known to have created it, *absent* if no write can have
//! created it, and *unsure* otherwise.

use super::Written;
use super::operations::Operations;
use crate::plan::Operation;
use anyhow::ensure;
use std::ops::Range;

/// Keys in one bitmap: 1 GiB of memory.
const BITMAP_KEYS_MAX: u64 = 1 << 33;

/// Knowledge about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Its row must be there.
    Present,
    /// Its row cannot be there.
    Absent,
    /// Either.
    Unsure,
}

/// Present keys of a table.
#[derive(Debug, Default)]
pub struct Contents {
    /// All keys below this are present: a table loaded in order needs no bitmap.
    below: u64,
    /// One bit for each key from zero on; empty if there are none at `below` and beyond.
    bits: Vec<u64>,
    /// The same for keys that failed operations may have created.
    unsure: Vec<u64>,
}

impl Contents {
    /// Replays the writes to a table.
    ///
    /// # Errors
    /// A key space too large for a bitmap, or an invalid workload.
    pub fn replay(written: &[Written]) -> anyhow::Result<Self> {
        let replays = written.iter().map(Replay::new).collect::<anyhow::Result<Vec<_>>>()?;
        let mut contents = Self {
            below: loaded_in_order(&replays),
            ..Self::default()
        };
        let fits = |end| {
            ensure!(
                end <= BITMAP_KEYS_MAX,
                "{end} keys; a reader can keep track of {BITMAP_KEYS_MAX}"
            );
            Ok(0..end)
        };
        let end = keys_end(&replays, done);
        if end > contents.below {
            contents.bits = bitmap(&replays, done, &fits(end)?);
        }
        let end = keys_end(&replays, uncertain);
        if end > 0 {
            contents.unsure = bitmap(&replays, uncertain, &fits(end)?);
        }
        Ok(contents)
    }

    /// Knowledge about a key.
    pub fn presence(&self, key: u64) -> Presence {
        let is_in = |bits: &[u64]| {
            bits.get((key / 64) as usize)
                .is_some_and(|word| word >> (key % 64) & 1 == 1)
        };
        if key < self.below || is_in(&self.bits) {
            Presence::Present
        } else if is_in(&self.unsure) {
            Presence::Unsure
        } else {
            Presence::Absent
        }
    }

    /// All present keys, ascending.
    pub fn present(&self) -> impl Iterator<Item = u64> {
        let beyond = self.below..self.bits.len() as u64 * 64;
        (0..self.below).chain(beyond.filter(|&key| self.presence(key) == Presence::Present))
    }

    /// Present keys in a range.
    pub fn count(&self, keys: Range<u64>) -> u64 {
        let loaded = keys.end.min(self.below).saturating_sub(keys.start);
        let rest = keys.start.max(self.below)..keys.end.min(self.bits.len() as u64 * 64);
        loaded + count_bits(&self.bits, rest)
    }
}

/// Rows that a table holds after these writes. Each key counts once. Uncertain operations do not count. The time is
/// proportional to the operations, times the number of spans of [`BITMAP_KEYS_MAX`] keys. Invalid workloads count as
/// nothing.
pub fn expected_rows(written: &[Written]) -> u64 {
    let replays: Vec<Replay<'_>> = written.iter().filter_map(|w| Replay::new(w).ok()).collect();
    let below = loaded_in_order(&replays);
    let end = keys_end(&replays, done);
    let mut rows = below;
    let mut start = below;
    while start < end {
        let window = start..end.min(start.saturating_add(BITMAP_KEYS_MAX));
        rows += count_bits(&bitmap(&replays, done, &window), 0..window.end - window.start);
        start = window.end;
    }
    rows
}

/// One beyond the largest key that these operations may have written.
pub(super) fn keys_end_of(written: &Written) -> u64 {
    Replay::new(written).map_or(0, |replay| replay.keys_end(done).max(replay.keys_end(uncertain)))
}

/// Whether an operation creates a missing row.
pub(super) fn writes(operation: &Operation) -> bool {
    use Operation::{BufferedPut, CheckAndPut, Increment, Insert, Put, ReadModifyWrite};
    matches!(
        operation,
        Put | BufferedPut { .. } | CheckAndPut | ReadModifyWrite | Insert | Increment
    )
}

/// Which of a workload's operations.
type Spans = fn(&Written) -> &[Range<u64>];

fn done(written: &Written) -> &[Range<u64>] {
    &written.spans
}

fn uncertain(written: &Written) -> &[Range<u64>] {
    &written.uncertain
}

/// One workload's operations, ready to be gone through.
struct Replay<'w> {
    written: &'w Written,
    operations: Operations,
    is_writing: Vec<bool>,
}

impl<'w> Replay<'w> {
    fn new(written: &'w Written) -> anyhow::Result<Self> {
        Ok(Self {
            written,
            operations: Operations::new(&written.workload, written.seed)?,
            is_writing: written
                .workload
                .mix
                .iter()
                .map(|(operation, _)| writes(operation))
                .collect(),
        })
    }

    fn writes_always(&self) -> bool {
        !self.is_writing.contains(&false)
    }

    /// One beyond the largest key that it can have written.
    fn keys_end(&self, spans: Spans) -> u64 {
        if !self.is_writing.contains(&true) {
            return 0;
        }
        let last = spans(self.written)
            .iter()
            .map(|span| span.end)
            .max()
            .unwrap_or_default();
        if last == 0 {
            return 0;
        }
        // Blocks are counted as full: inserts are in any order within theirs.
        let inserts = self.operations.inserts_before(last.saturating_add(999) / 1_000 * 1_000);
        self.written.workload.keys.records.saturating_add(inserts)
    }

    fn for_each_key(&self, spans: Spans, mut each: impl FnMut(u64)) {
        if !self.is_writing.contains(&true) {
            return;
        }
        for index in spans(self.written).iter().cloned().flatten() {
            let chosen = self.operations.at(index);
            if self.is_writing.get(usize::from(chosen.kind)) == Some(&true) {
                each(chosen.key);
            }
        }
    }
}

/// The number of keys from zero on that sequential loads have written without a gap.
fn loaded_in_order(replays: &[Replay<'_>]) -> u64 {
    use crate::plan::KeyOrder::Sequential;
    let is_load = |r: &&Replay<'_>| {
        let workload = &r.written.workload;
        workload.keys.order == Sequential
            && r.writes_always()
            && !workload.mix.iter().any(|(o, _)| *o == Operation::Insert)
    };
    let mut below = 0;
    for replay in replays.iter().filter(is_load) {
        for span in &replay.written.spans {
            if span.start <= below {
                below = below.max(span.end.min(replay.written.workload.keys.records));
            }
        }
    }
    below
}

fn keys_end(replays: &[Replay<'_>], spans: Spans) -> u64 {
    replays
        .iter()
        .map(|replay| replay.keys_end(spans))
        .max()
        .unwrap_or_default()
}

fn bitmap(replays: &[Replay<'_>], spans: Spans, keys: &Range<u64>) -> Vec<u64> {
    let mut bits = vec![0u64; (keys.end - keys.start).div_ceil(64) as usize];
    for replay in replays {
        replay.for_each_key(spans, |key| {
            if keys.contains(&key)
                && let Some(word) = bits.get_mut(((key - keys.start) / 64) as usize)
            {
                *word |= 1 << ((key - keys.start) % 64);
            }
        });
    }
    bits
}

fn count_bits(bits: &[u64], range: Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = ((range.start / 64) as usize, ((range.end - 1) / 64) as usize);
    let head = u64::MAX << (range.start % 64);
    let tail = u64::MAX >> (63 - (range.end - 1) % 64);
    let words = bits.get(first..=last).unwrap_or_default();
    let mut count = 0;
    for (place, word) in words.iter().enumerate() {
        let mut word = *word;
        if place == 0 {
            word &= head;
        }
        if place == last - first {
            word &= tail;
        }
        count += u64::from(word.count_ones());
    }
    count
}

#[cfg(test)]
mod tests;
