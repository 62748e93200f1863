//! Finds the files of a run that may have a row, by comparing numbers.
//!
//! The keys of a run lie between its first and its last one, and mostly have a common prefix: the name of the table's kind of
//! row, or the tablet's part of it. A *fence* is the eight bytes behind that prefix, of a file's first or last possible
//! key, as a number. Numbers decide about nearly every file, in one array and without reading the files' properties. Keys are
//! compared only where numbers are equal.
//!
//! Invariant: a fence of a key is below that of another only if the key is.

use crate::held::HeldFile;
use std::cmp::Ordering;

/// A row that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct RowLookup<'a> {
    /// Its encoded prefix: begins all of its keys and no others.
    prefix: &'a [u8],
    /// The hash under which bloom filters have it.
    hash: u64,
}

impl<'a> RowLookup<'a> {
    /// The row with this encoded prefix.
    pub fn new(prefix: &'a [u8]) -> Self {
        let hash = stele_sstable::filter::row_hash(prefix);
        RowLookup { prefix, hash }
    }

    /// Its encoded prefix.
    pub fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    /// The hash under which bloom filters have it.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether a key is of the row or sorts before it: there is nothing in between.
    fn reaches(&self, key: &[u8]) -> bool {
        key < self.prefix || key.starts_with(self.prefix)
    }
}

/// The fences of a run.
#[derive(Debug)]
pub struct Fences {
    /// The common prefix of the bounds of all files.
    common: Box<[u8]>,
    files: Box<[Fence]>,
}

#[derive(Clone, Copy, Debug)]
struct Fence {
    /// Of the least key that may be in the file.
    first: u64,
    /// Of a key that none in the file is above.
    last: u64,
}

impl Fences {
    /// Those of a run's files.
    pub fn of(run: &[HeldFile]) -> Fences {
        let bounds = || run.iter().flat_map(|file| [file.first_key(), last_bound(file)]);
        let mut common = bounds().next().unwrap_or_default();
        for bound in bounds() {
            let len = common.iter().zip(bound).take_while(|(a, b)| a == b).count();
            common = common.get(..len).unwrap_or_default();
        }
        let fence = |file: &HeldFile| Fence {
            first: number(file.first_key(), common.len()),
            last: number(last_bound(file), common.len()),
        };
        debug_assert!(
            run.windows(2)
                .all(|pair| matches!(pair, [a, b] if a.first_key() <= b.first_key() && last_bound(a) <= last_bound(b))),
            "files of a run begin and end in ascending order"
        );
        Fences {
            files: run.iter().map(fence).collect(),
            common: common.into(),
        }
    }

    /// The files of the run that may have keys of the row.
    pub fn holders<'r>(&self, run: &'r [HeldFile], row: &RowLookup<'_>) -> &'r [HeldFile] {
        debug_assert_eq!(self.files.len(), run.len(), "fences are asked about their own run");
        let skip = self.common.len();
        let Some((head, tail)) = row.prefix.split_at_checked(skip).filter(|(_, tail)| !tail.is_empty()) else {
            // All bounds begin with more than the row's prefix, or are of other rows.
            let is_the_row = self.common.starts_with(row.prefix);
            return if is_the_row { run } else { &[] };
        };
        if !self.common.is_empty() && *head != *self.common {
            return &[];
        }
        let row_lookup = number(tail, 0);
        // The prefix ends in 01; the first key behind its keys begins with the same bytes, with 02 there.
        let behind = match tail.len() {
            len @ 1..=8 => row_lookup + (1 << (8 * (8 - len))),
            _ => row_lookup,
        };
        let start = self.files.partition_point(|fence| fence.last < row_lookup);
        let start = match self.files.get(start) {
            Some(fence) if fence.last == row_lookup => start + ended(&self.files, run, start, row),
            Some(_) => start,
            None => return &[],
        };
        let mut end = start;
        while let (Some(fence), Some(file)) = (self.files.get(end), run.get(end)) {
            let begins = match fence.first.cmp(&behind) {
                Ordering::Less => true,
                Ordering::Equal => row.reaches(file.first_key()),
                Ordering::Greater => false,
            };
            if !begins {
                break;
            }
            end += 1;
        }
        run.get(start..end).unwrap_or_default()
    }
}

/// Of the files from `start` on whose last fence is the row's, how many end before the row.
#[cold]
fn ended(fences: &[Fence], run: &[HeldFile], start: usize, row: &RowLookup<'_>) -> usize {
    let same_column = |from: &[Fence]| {
        let last = from.first().map(|fence| fence.last);
        from.partition_point(|fence| Some(fence.last) <= last)
    };
    let count = fences.get(start..).map_or(0, same_column);
    let files = run.get(start..start + count).unwrap_or_default();
    files.partition_point(|file| file.ends_before(row.prefix))
}

/// No key of the referenced part is above this.
fn last_bound(file: &HeldFile) -> &[u8] {
    let largest = &file.sstable.properties().largest_key[..];
    file.reference
        .upper
        .as_deref()
        .map_or(largest, |upper| upper.min(largest))
}

/// Eight bytes from `at` on as a number; missing bytes count as zero.
#[inline]
fn number(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        None => rest.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)) << (8 * (8 - rest.len())).min(63),
    }
}

#[cfg(test)]
mod tests;
