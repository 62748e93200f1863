//! The work and memory of a filter for one row.
//!
//! A unit is that of [`crate::pace::Pace`], about 50 ns: one filter judges one cell. Filters that read long texts, lists or numbers take
//! more. Their work is estimated from the lengths of keys and values, before any of it is done.

use super::comparator::{Copied, Reading};

/// Bytes that a pattern searches in one unit, or that are compared in less.
const UNIT_BYTES: usize = 64;

/// Units of a substring for as many bytes: it brings text to lower case before it searches.
const SUBSTRING_UNITS: usize = 4;

/// Arguments of a filter up to this size are compared within the unit of the filter.
const SMALL_ARGUMENT_BYTES: usize = 256;

/// Longest number that a decimal comparator reads, and the square of the bytes that it reads in one unit: 4,096 take 2 ms.
const DECIMAL: (usize, usize) = (4_096, 400);

/// The size of a tree, which its costs grow with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Filters: each judges every cell at most once.
    pub nodes: usize,
    /// Patterns that are searched in keys and values.
    pub patterns: usize,
    /// Units for each row of any cells.
    row_units: usize,
    /// Units for [`UNIT_BYTES`] of keys, and of values.
    key_texts: usize,
    value_texts: usize,
    /// Units for as many bytes that patterns of very many states take in addition.
    key_states: usize,
    value_states: usize,
    /// Comparators of decimal numbers in values.
    decimals: usize,
    /// Bytes of large arguments. A cell is compared with each at most.
    argument_bytes: usize,
    /// Whether a pattern copies values that are no UTF-8.
    copies_malformed: bool,
    /// Bytes of text that a pattern makes of a byte of any value.
    copies: usize,
}

/// Parts of a cell that a comparator reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The row, the family or the qualifier.
    Key,
    Value,
}

impl Cost {
    /// Counts the arguments of a filter by the bytes of their message.
    pub(super) fn add_arguments(&mut self, bytes: usize) {
        self.argument_bytes += bytes.saturating_sub(SMALL_ARGUMENT_BYTES);
    }

    /// Counts units that the filter takes for each row.
    pub(super) fn add_row_units(&mut self, units: usize) {
        self.row_units = self.row_units.saturating_add(units);
    }

    /// Counts a comparator.
    pub(super) fn add_comparator(&mut self, subject: Subject, reading: Reading) {
        let (texts, states) = match subject {
            Subject::Key => (&mut self.key_texts, &mut self.key_states),
            Subject::Value => (&mut self.value_texts, &mut self.value_states),
        };
        match reading {
            Reading::Bytes => {}
            Reading::Substring => *texts += SUBSTRING_UNITS,
            // No key is long enough for a number that takes time.
            Reading::Decimal => self.decimals += usize::from(subject == Subject::Value),
            Reading::Pattern(copied, cost) => {
                *texts += 1;
                *states = states.saturating_add(cost.saturating_sub(1));
                self.patterns += 1;
                match copied {
                    _ if subject == Subject::Key => {}
                    Copied::Malformed => self.copies_malformed = true,
                    Copied::Always(factor) => self.copies = self.copies.max(factor),
                }
            }
        }
    }

    /// Units of work for a row with cells of these lengths: qualifier and value.
    pub fn units(&self, row_bytes: usize, cells: impl Iterator<Item = (usize, usize)>) -> usize {
        let (mut key_bytes, mut value_bytes, mut units) = (row_bytes, 0usize, self.row_units);
        for (qualifier, value) in cells {
            key_bytes += qualifier;
            value_bytes += value;
            let compared = (row_bytes + qualifier + value).saturating_mul(self.nodes);
            let number = value.min(DECIMAL.0);
            let numbers = (number * number / DECIMAL.1).saturating_mul(self.decimals);
            let of_cell = self.nodes + compared.min(self.argument_bytes) / UNIT_BYTES;
            units = units.saturating_add(of_cell).saturating_add(numbers);
        }
        let texts = |bytes: usize, texts: usize, states: usize| {
            let usual = (bytes / UNIT_BYTES).saturating_mul(texts);
            usual.saturating_add(bytes.saturating_mul(states) / UNIT_BYTES)
        };
        units
            .saturating_add(texts(key_bytes, self.key_texts, self.key_states))
            .saturating_add(texts(value_bytes, self.value_texts, self.value_states))
    }

    /// Bytes to reserve while the filter judges a cell with this value: patterns copy some values to decode them.
    pub fn copied_bytes(&self, value: &[u8]) -> usize {
        let always = Copied::Always(self.copies).reserved(value);
        match self.copies_malformed {
            true => always.max(Copied::Malformed.reserved(value)),
            false => always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(subject: Subject, reading: Reading) -> Cost {
        let mut cost = Cost {
            nodes: 1,
            ..Cost::default()
        };
        cost.add_comparator(subject, reading);
        cost
    }

    #[test]
    fn units_grow_with_the_bytes_that_are_read() {
        let units = |cost: Cost, value: usize| cost.units(10, [(10, value)].into_iter());
        let plain = of(Subject::Value, Reading::Bytes);
        assert_eq!(units(plain, 1 << 20), 1);
        let pattern = |subject, cost| of(subject, Reading::Pattern(Copied::Malformed, cost));
        assert_eq!(units(pattern(Subject::Value, 1), 1 << 20), 1 + (1 << 14));
        assert_eq!(units(pattern(Subject::Value, 100), 1 << 20), 1 + 100 * (1 << 14));
        // Of keys that are shorter than a unit, too.
        assert_eq!(units(pattern(Subject::Key, 65), 1 << 20), 1 + 20);
        let substring = of(Subject::Value, Reading::Substring);
        assert_eq!(units(substring, 1 << 20), 1 + 4 * (1 << 14));
        assert_eq!(units(of(Subject::Key, Reading::Substring), 1 << 20), 1);
        let decimal = of(Subject::Value, Reading::Decimal);
        assert_eq!((units(decimal, 10), units(decimal, 1 << 20)), (1, 41_944));
    }

    #[test]
    fn large_arguments_count_as_far_as_cells_are_compared_with_them() {
        let mut cost = Cost {
            nodes: 2,
            ..Cost::default()
        };
        cost.add_arguments(SMALL_ARGUMENT_BYTES);
        assert_eq!(cost.units(10, [(0, 1 << 20)].into_iter()), 2);
        cost.add_arguments(SMALL_ARGUMENT_BYTES + (1 << 20));
        assert_eq!(cost.units(0, [(0, 64)].into_iter()), 2 + 2);
        assert_eq!(cost.units(0, [(0, 1 << 24)].into_iter()), 2 + (1 << 14));
    }

    #[test]
    fn copies_of_large_values_are_known_before_they_are_made() {
        let utf8 = of(Subject::Value, Reading::Pattern(Copied::Malformed, 1));
        let latin = of(Subject::Value, Reading::Pattern(Copied::Always(2), 1));
        let (text, malformed) = (vec![b'a'; 1 << 20], vec![0xFF; 1 << 20]);
        assert_eq!((utf8.copied_bytes(&text), utf8.copied_bytes(&malformed)), (0, 3 << 20));
        assert_eq!(latin.copied_bytes(&text), 2 << 20);
        assert_eq!(latin.copied_bytes(&text[..100]), 0);
        assert_eq!(
            of(Subject::Key, Reading::Pattern(Copied::Always(2), 1)).copied_bytes(&text),
            0
        );
        assert_eq!(of(Subject::Value, Reading::Substring).copied_bytes(&malformed), 0);
    }
}
