//! `MultiRowRangeFilter`.

use super::cell::{FilterCell, Hint};
use super::error::FilterError;
use super::node::{Code, Node};
use super::pushdown::{Needs, RowBounds, merge};
use bytes::Bytes;
use std::ops::Bound;
use stele_wire::messages;

/// `MultiRowRangeFilter`.
pub(super) struct MultiRowRange {
    /// Sorted and disjoint.
    ranges: Vec<RowBounds>,
    reversed: bool,
    exhausted: bool,
    code: Code,
    next: Option<Bytes>,
}

impl MultiRowRange {
    pub(super) fn new(message: messages::MultiRowRangeFilter) -> Result<Self, FilterError> {
        let ranges: Option<Vec<_>> = message.row_range_list.into_iter().map(bounds).collect();
        let ranges = ranges.ok_or_else(|| FilterError::argument("a range ends before it begins"))?;
        if ranges.is_empty() {
            return Err(FilterError::argument("no ranges"));
        }
        Ok(Self {
            ranges: merge(ranges),
            reversed: false,
            exhausted: false,
            code: Code::NextRow,
            next: None,
        })
    }

    /// Judges a row between two ranges. `next` is the bound where the scan enters the next one.
    fn between(&mut self, row: &[u8], next: Option<Bound<Bytes>>) {
        self.code = Code::NextRow;
        match next {
            None => self.exhausted = true,
            // The row itself is the bound, which its range excludes.
            Some(Bound::Excluded(bound)) if bound == row => {}
            Some(Bound::Included(bound) | Bound::Excluded(bound)) => {
                self.next = Some(bound);
                self.code = Code::Seek;
            }
            Some(Bound::Unbounded) => {}
        }
    }
}

/// The range of a message; `None` if it ends before it begins.
fn bounds(range: messages::RowRange) -> Option<RowBounds> {
    let start = range.start_row.unwrap_or_default();
    let stop = range.stop_row.unwrap_or_default();
    let (start_inclusive, stop_inclusive) = (
        range.start_row_inclusive.unwrap_or_default(),
        range.stop_row_inclusive.unwrap_or_default(),
    );
    let valid = start.is_empty() || stop.is_empty() || start < stop || (start == stop && stop_inclusive);
    let bound = |row, inclusive| {
        if inclusive {
            Bound::Included(row)
        } else {
            Bound::Excluded(row)
        }
    };
    valid.then(|| RowBounds {
        start: if start.is_empty() {
            Bound::Unbounded
        } else {
            bound(start, start_inclusive)
        },
        stop: if stop.is_empty() {
            Bound::Unbounded
        } else {
            bound(stop, stop_inclusive)
        },
    })
}

impl Node for MultiRowRange {
    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        if self.exhausted {
            return Ok(true);
        }
        // The first range that does not end before the row.
        let at = self.ranges.partition_point(|range| match &range.stop {
            Bound::Included(stop) => stop < row,
            Bound::Excluded(stop) => stop <= row,
            Bound::Unbounded => false,
        });
        if self.ranges.get(at).is_some_and(|range| range.contains(row)) {
            self.code = Code::Include;
        } else if self.reversed {
            let before = at.checked_sub(1).and_then(|before| self.ranges.get(before));
            self.between(row, before.map(|range| range.stop.clone()));
        } else {
            self.between(row, self.ranges.get(at).map(|range| range.start.clone()));
        }
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        Ok(self.code)
    }

    fn exhausted(&self) -> bool {
        self.exhausted
    }

    fn hint(&mut self, _row: &[u8], _cell: &FilterCell) -> Option<Hint> {
        self.next.clone().map(Hint::Row)
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        Some(self.ranges.clone())
    }

    fn needs(&self) -> Needs {
        Needs::row()
    }
}
