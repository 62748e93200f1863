//! Filters that judge rows by their keys, by their number or by chance.

use super::cell::{FilterCell, Hint};
use super::columns::bounds;
use super::comparison::Comparison;
use super::error::FilterError;
use super::node::{Code, Node, after_prefix};
use super::pushdown::{Needs, RowBounds};
use super::scan::Random;
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Bound;

/// The code of a filter that gives all cells of a row the same code.
fn whole_row(filtered: bool) -> Result<Code, FilterError> {
    Ok(if filtered { Code::NextRow } else { Code::Include })
}

/// `RowFilter`.
pub(super) struct RowKey {
    comparison: Comparison,
    filtered: bool,
}

impl RowKey {
    pub(super) fn new(comparison: Comparison) -> Self {
        let filtered = false;
        Self { comparison, filtered }
    }
}

impl Node for RowKey {
    fn reset(&mut self) {
        self.filtered = false;
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        self.filtered |= !self.comparison.passes(row)?;
        Ok(self.filtered)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        whole_row(self.filtered)
    }

    fn filters_row(&mut self) -> bool {
        self.filtered
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        Some(vec![bounds(&self.comparison)?])
    }

    fn needs(&self) -> Needs {
        Needs::row()
    }
}

/// `PrefixFilter`.
pub(super) struct Prefix {
    prefix: Option<Bytes>,
    reversed: bool,
    passed: bool,
    filtered: bool,
    before: bool,
}

impl Prefix {
    pub(super) fn new(prefix: Option<Bytes>) -> Self {
        Self {
            prefix,
            reversed: false,
            passed: false,
            filtered: true,
            before: false,
        }
    }
}

impl Node for Prefix {
    fn reset(&mut self) {
        self.filtered = true;
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        let Some(prefix) = self.prefix.as_ref().filter(|_| !self.passed) else {
            return Ok(true);
        };
        let order = row.get(..prefix.len()).unwrap_or(row).cmp(prefix);
        let order = if self.reversed { order.reverse() } else { order };
        self.passed = order == Ordering::Greater;
        self.filtered = order != Ordering::Equal;
        self.before = order == Ordering::Less;
        // Rows before the prefix go on to the cells, which seek.
        Ok(self.passed)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        if self.before {
            Ok(Code::Seek)
        } else {
            whole_row(self.filtered)
        }
    }

    fn filters_row(&mut self) -> bool {
        self.filtered
    }

    fn exhausted(&self) -> bool {
        self.passed
    }

    fn hint(&mut self, _row: &[u8], _cell: &FilterCell) -> Option<Hint> {
        let prefix = self.prefix.as_ref()?;
        let row = if self.reversed {
            after_prefix(prefix)?
        } else {
            prefix.clone()
        };
        Some(Hint::Row(row))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        Some(self.prefix.iter().map(RowBounds::prefix).collect())
    }

    fn needs(&self) -> Needs {
        Needs::row()
    }
}

/// `InclusiveStopFilter`.
pub(super) struct InclusiveStop {
    stop: Bytes,
    reversed: bool,
    passed: bool,
}

impl InclusiveStop {
    pub(super) fn new(stop: Bytes) -> Self {
        Self {
            stop,
            reversed: false,
            passed: false,
        }
    }
}

impl Node for InclusiveStop {
    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        let order = row.cmp(&self.stop);
        let order = if self.reversed { order.reverse() } else { order };
        self.passed |= order == Ordering::Greater;
        Ok(self.passed)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        whole_row(self.passed)
    }

    fn exhausted(&self) -> bool {
        self.passed
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        let (stop, all) = (Bound::Included(self.stop.clone()), RowBounds::all());
        Some(vec![if self.reversed {
            RowBounds { start: stop, ..all }
        } else {
            RowBounds { stop, ..all }
        }])
    }

    fn needs(&self) -> Needs {
        Needs::row()
    }
}

/// `PageFilter`. It counts the rows that it is asked about at their ends.
pub(super) struct Page {
    size: i64,
    accepted: i64,
}

impl Page {
    pub(super) fn new(size: i64) -> Result<Self, FilterError> {
        if size < 0 {
            return Err(FilterError::argument("a page size must not be negative"));
        }
        Ok(Self { size, accepted: 0 })
    }
}

impl Node for Page {
    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        Ok(Code::Include)
    }

    fn needs_row(&self) -> bool {
        true
    }

    fn filters_row(&mut self) -> bool {
        self.accepted = self.accepted.saturating_add(1);
        self.accepted > self.size
    }

    fn exhausted(&self) -> bool {
        self.accepted >= self.size
    }

    fn needs(&self) -> Needs {
        Needs::row()
    }
}

/// `RandomRowFilter`.
pub(super) struct RandomRow {
    chance: f32,
    random: Random,
    filtered: bool,
}

impl RandomRow {
    pub(super) fn new(chance: f32, random: Random) -> Self {
        Self {
            chance,
            random,
            filtered: false,
        }
    }

    /// At least 0, below 1.
    fn fraction(&self) -> f32 {
        // As many bits as a float has.
        let bits = (self.random)() >> 40;
        bits as f32 / (1u32 << 24) as f32
    }
}

impl Node for RandomRow {
    fn reset(&mut self) {
        self.filtered = false;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        self.filtered = if self.chance < 0.0 {
            true
        } else if self.chance > 1.0 {
            false
        } else {
            self.fraction() >= self.chance || self.chance.is_nan()
        };
        Ok(self.filtered)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        whole_row(self.filtered)
    }

    fn needs_row(&self) -> bool {
        true
    }

    fn filters_row(&mut self) -> bool {
        self.filtered
    }

    fn needs(&self) -> Needs {
        Needs::row()
    }
}

/// `FilterAllFilter`. It is not exhausted, because it serves to measure how fast a server reads.
pub(super) struct FilterAll;

impl Node for FilterAll {
    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        Ok(Code::Skip)
    }

    fn needs_row(&self) -> bool {
        true
    }

    fn filters_row(&mut self) -> bool {
        true
    }
}
