//! `FuzzyRowFilter`: rows that match a key but for some of its bytes.
//!
//! A row that is shorter than a key matches if the key's beginning does. Hints are computed as HBase does, because they
//! decide which of such rows are seen.
//!
//! All cells of a row get the same verdict and hint, so keys are tried once for each row.

use super::cell::{FilterCell, Hint};
use super::error::FilterError;
use super::node::{Code, Node, after_prefix};
use super::pushdown::Needs;
use bytes::Bytes;
use std::cmp::Ordering;
use stele_wire::messages;

/// `FuzzyRowFilter`.
pub(super) struct FuzzyRow {
    keys: Vec<FuzzyKey>,
    reversed: bool,
    exhausted: bool,
    /// Whether some key matches the row; `None` before its first cell.
    matches: Option<bool>,
    /// The hint for the row, once there was one.
    hint: Option<Option<Bytes>>,
    /// The key that the last row matched; it is tried first.
    last_found: usize,
    /// For each key that has one, a row to continue at. `None` before the first hint.
    next: Option<Vec<(Vec<u8>, usize)>>,
}

struct FuzzyKey {
    /// Zero where any byte matches.
    bytes: Vec<u8>,
    fixed: Vec<bool>,
}

impl FuzzyRow {
    pub(super) fn new(message: &messages::FuzzyRowFilter) -> Result<Self, FilterError> {
        let free = if message.is_mask_v2.unwrap_or_default() { 2 } else { 0 };
        let keys = message.fuzzy_keys_data.iter();
        let keys: Vec<_> = keys
            .map(|pair| FuzzyKey::new(&pair.first, &pair.second, free))
            .collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(FilterError::argument("no fuzzy keys"));
        }
        Ok(Self {
            keys,
            reversed: false,
            exhausted: false,
            matches: None,
            hint: None,
            last_found: 0,
            next: None,
        })
    }

    /// Whether some key matches.
    fn find(&mut self, row: &[u8]) -> bool {
        let count = self.keys.len();
        let mut order = (0..count).map(|step| (self.last_found + step) % count);
        let found = order.find(|&at| self.keys.get(at).is_some_and(|key| key.matches(row)));
        self.last_found = found.unwrap_or(0);
        found.is_some()
    }

    /// Units of work for each row: to try the keys, and to make a hint of each.
    pub(super) fn row_units(&self) -> usize {
        let bytes: usize = self.keys.iter().map(|key| key.bytes.len()).sum();
        4 * self.keys.len() + bytes / 32
    }

    /// The nearest row that some key can match, after a row that no key matches.
    fn next_row(&mut self, row: &[u8]) -> Option<Vec<u8>> {
        let reversed = self.reversed;
        let after = |next: &[u8]| if reversed { next < row } else { next > row };
        let mut next = match self.next.take() {
            None => (0..self.keys.len()).map(|key| (Vec::new(), key)).collect(),
            Some(next) => next,
        };
        let fresh = next.iter().all(|(row, _)| row.is_empty());
        next.retain_mut(|(candidate, key)| {
            if !fresh && after(candidate) {
                return true;
            }
            let key = self.keys.get(*key);
            let found = key.and_then(|key| key.next(row, reversed));
            found.is_some_and(|found| {
                *candidate = found;
                true
            })
        });
        let rows = next.iter().map(|(row, _)| row);
        let nearest = if reversed { rows.max() } else { rows.min() }.cloned();
        self.next = Some(next);
        nearest
    }
}

impl FuzzyKey {
    /// Takes a mask as users write it (0 fixed, 1 free), or as clients send it (-1 fixed, `free` free).
    fn new(key: &[u8], mask: &[u8], free: u8) -> Result<Self, FilterError> {
        const FIXED: u8 = 0xFF;
        if key.len() != mask.len() {
            return Err(FilterError::argument("a fuzzy key and its mask have different lengths"));
        }
        let as_sent = mask.iter().all(|&byte| byte == FIXED || byte == free);
        let fixed = mask.iter().map(|&byte| match byte {
            FIXED => Ok(true),
            0 if !as_sent => Ok(true),
            1 => Ok(false),
            byte if byte == free => Ok(false),
            _ => Err(FilterError::argument("a fuzzy mask has bytes other than 0 and 1")),
        });
        let fixed: Vec<_> = fixed.collect::<Result<_, _>>()?;
        let bytes = key.iter().zip(&fixed);
        let bytes = bytes.map(|(&byte, &fixed)| if fixed { byte } else { 0 }).collect();
        Ok(Self { bytes, fixed })
    }

    fn matches(&self, row: &[u8]) -> bool {
        let key = self.bytes.iter().zip(&self.fixed);
        key.zip(row).all(|((byte, fixed), stored)| !fixed || byte == stored)
    }

    /// The nearest row after this one, in the scan's direction, that the key can match.
    fn next(&self, row: &[u8], reversed: bool) -> Option<Vec<u8>> {
        let (increment, greatest, least) = if reversed {
            (u8::MAX, 0, u8::MAX)
        } else {
            (1, u8::MAX, 0)
        };
        let fixed = |at: usize| self.fixed.get(at).copied().unwrap_or_default();
        let mut next = self.bytes.clone();
        next.resize(row.len().max(next.len()), 0);
        if reversed {
            // HBase also replaces the fixed bytes that are zero, and then may end the scan before the rows of such a key.
            let free = next.iter_mut().enumerate().filter(|(at, _)| !fixed(*at));
            free.for_each(|(_, byte)| *byte = u8::MAX);
        }
        let mut last_free = None;
        let mut passed = false;
        for (at, (byte, &stored)) in next.iter_mut().zip(row).enumerate() {
            if !fixed(at) {
                *byte = stored;
                if stored != greatest {
                    last_free = Some(at);
                }
                continue;
            }
            let order = stored.cmp(self.bytes.get(at)?);
            let order = if reversed { order.reverse() } else { order };
            passed = order == Ordering::Less;
            if order != Ordering::Equal {
                break;
            }
        }
        if !passed {
            let at = last_free?;
            let tail = next.iter_mut().enumerate().skip(at);
            for (place, byte) in tail {
                if place == at {
                    *byte = byte.wrapping_add(increment);
                } else if !fixed(place) {
                    *byte = least;
                }
            }
        }
        next.truncate(self.significant().max(last_free.map_or(0, |at| at + 1)));
        if !reversed {
            return Some(next);
        }
        // No row comes after all that begin with 0xFF bytes. The row itself is no place to go on at, and the key stays in use.
        Some(after_prefix(&next).map_or_else(|| row.to_vec(), Vec::from))
    }

    /// Length of the key without free bytes at its end.
    fn significant(&self) -> usize {
        self.fixed.iter().rposition(|&fixed| fixed).map_or(0, |at| at + 1)
    }
}

impl Node for FuzzyRow {
    fn reset(&mut self) {
        (self.matches, self.hint) = (None, None);
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn cell(&mut self, row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        let matches = match self.matches {
            Some(matches) => matches,
            None => self.find(row),
        };
        self.matches = Some(matches);
        Ok(if matches { Code::Include } else { Code::Seek })
    }

    fn filters_row(&mut self) -> bool {
        self.matches == Some(false)
    }

    fn exhausted(&self) -> bool {
        self.exhausted
    }

    fn hint(&mut self, row: &[u8], _cell: &FilterCell) -> Option<Hint> {
        let hint = match self.hint.take() {
            Some(hint) => hint,
            None => self.next_row(row).map(Bytes::from),
        };
        self.exhausted |= hint.is_none();
        self.hint = Some(hint.clone());
        hint.map(Hint::Row)
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn remembers_rows(&self) -> bool {
        true
    }

    /// A hint may skip a row that matches, but only in the family that it was given for.
    fn needs(&self) -> Needs {
        Needs::keys()
    }
}
