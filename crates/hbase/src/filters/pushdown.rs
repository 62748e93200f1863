//! The rows and parts of cells that a filter needs: a scan reads less.
//!
//! Rows and cells are left out only if no answer can depend on them. A filter that remembers rows which do not pass must see all
//! of them, and a filter that remembers cells must see all cells of the row.

use super::cell::FilterCell;
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Bound;

/// A range of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowBounds {
    /// First row.
    pub start: Bound<Bytes>,
    /// Last row.
    pub stop: Bound<Bytes>,
}

/// Most ranges of one filter; more are merged into the range around them.
pub(super) const RANGES_MAX: usize = 1024;

impl RowBounds {
    /// Of all.
    pub fn all() -> Self {
        let (start, stop) = (Bound::Unbounded, Bound::Unbounded);
        Self { start, stop }
    }

    /// Rows that begin with a prefix.
    pub(super) fn prefix(prefix: &Bytes) -> Self {
        Self {
            start: Bound::Included(prefix.clone()),
            stop: super::node::after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    /// Whether a row lies in the range.
    pub fn contains(&self, row: &[u8]) -> bool {
        let after_start = match &self.start {
            Bound::Included(start) => row >= &start[..],
            Bound::Excluded(start) => row > &start[..],
            Bound::Unbounded => true,
        };
        after_start
            && match &self.stop {
                Bound::Included(stop) => row <= &stop[..],
                Bound::Excluded(stop) => row < &stop[..],
                Bound::Unbounded => true,
            }
    }

    /// Bytes of both bounds.
    pub fn bytes(&self) -> usize {
        let bytes = |bound: &Bound<Bytes>| match bound {
            Bound::Included(bytes) | Bound::Excluded(bytes) => bytes.len(),
            Bound::Unbounded => 0,
        };
        bytes(&self.start) + bytes(&self.stop)
    }

    /// Whether it is certainly empty.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.stop) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(stop)) => start > stop,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(stop) | Bound::Excluded(stop)) => {
                start >= stop
            }
        }
    }
}

/// Order of two first rows.
fn compare_starts(a: &Bound<Bytes>, b: &Bound<Bytes>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Less,
        (_, Bound::Unbounded) => Ordering::Greater,
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => a.cmp(b),
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Less),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Greater),
    }
}

/// Order of two last rows.
fn compare_stops(a: &Bound<Bytes>, b: &Bound<Bytes>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => a.cmp(b),
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Greater),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Less),
    }
}

/// Sorts ranges, and joins those that overlap or touch. Empty ones are dropped.
pub(super) fn merge(mut ranges: Vec<RowBounds>) -> Vec<RowBounds> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|a, b| compare_starts(&a.start, &b.start));
    let mut merged: Vec<RowBounds> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut().filter(|last| touches(&last.stop, &range.start)) {
            Some(last) => {
                if compare_stops(&last.stop, &range.stop) == Ordering::Less {
                    last.stop = range.stop;
                }
            }
            None => merged.push(range),
        }
    }
    merged
}

/// Whether no row lies between a last row and a first row.
fn touches(stop: &Bound<Bytes>, start: &Bound<Bytes>) -> bool {
    match (stop, start) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(stop), Bound::Excluded(start)) => stop > start,
        (Bound::Included(stop) | Bound::Excluded(stop), Bound::Included(start) | Bound::Excluded(start)) => {
            stop >= start
        }
    }
}

/// Rows of both lists. Both are sorted and disjoint.
pub(super) fn intersect(a: &[RowBounds], b: &[RowBounds]) -> Vec<RowBounds> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut common = Vec::new();
    while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
        let start = match compare_starts(&left.start, &right.start) {
            Ordering::Less => &right.start,
            Ordering::Equal | Ordering::Greater => &left.start,
        };
        let left_first = compare_stops(&left.stop, &right.stop) == Ordering::Less;
        let stop = if left_first { &left.stop } else { &right.stop };
        let both = RowBounds {
            start: start.clone(),
            stop: stop.clone(),
        };
        if !both.is_empty() {
            common.push(both);
        }
        if left_first {
            a.next()
        } else {
            b.next()
        };
    }
    common
}

/// Bounds the number of ranges.
pub(super) fn limited(ranges: Vec<RowBounds>) -> Vec<RowBounds> {
    match (ranges.first(), ranges.last()) {
        (Some(first), Some(last)) if ranges.len() > RANGES_MAX => vec![RowBounds {
            start: first.start.clone(),
            stop: last.stop.clone(),
        }],
        _ => ranges,
    }
}

/// The parts of cells that an answer can depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Whether values matter.
    pub values: bool,
    /// Whether only the first cell of each row matters.
    pub first_cell: bool,
    /// The only family with cells that can pass.
    pub family: Option<Bytes>,
    /// Qualifiers of the cells that can pass.
    pub qualifiers: RowBounds,
    /// The cells that a verdict of the filter depends on.
    pub(super) scope: Scope,
}

/// The cells that a verdict depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// The row's key: all cells of a row pass or none.
    Row,
    /// The cell.
    Cell,
    /// Other cells of the row too.
    Cells,
}

impl Needs {
    /// Of a filter that judges rows by their keys.
    pub(super) fn row() -> Self {
        Self {
            values: false,
            first_cell: false,
            family: None,
            qualifiers: RowBounds::all(),
            scope: Scope::Row,
        }
    }

    /// Of a filter that judges a cell by its key.
    pub(super) fn key() -> Self {
        let scope = Scope::Cell;
        Self { scope, ..Self::row() }
    }

    /// Of a filter that judges a cell by its value.
    pub(super) fn value() -> Self {
        let values = true;
        Self { values, ..Self::key() }
    }

    /// Of a filter that lets these qualifiers pass.
    pub(super) fn qualifiers(qualifiers: RowBounds) -> Self {
        Self {
            qualifiers,
            ..Self::key()
        }
    }

    /// Of a filter that keeps the first cell of a row.
    pub(super) fn first_cell() -> Self {
        Self {
            first_cell: true,
            scope: Scope::Cells,
            ..Self::row()
        }
    }

    /// Of a filter that reads all keys of a row.
    pub(super) fn keys() -> Self {
        let scope = Scope::Cells;
        Self { scope, ..Self::row() }
    }

    /// Of a filter that reads all of a row.
    pub(super) fn everything() -> Self {
        let values = true;
        Self { values, ..Self::keys() }
    }

    /// Of a filter around this one, or next to it, that does not narrow a row's cells.
    pub(super) fn unnarrowed(self) -> Self {
        let values = self.values;
        Self { values, ..Self::keys() }
    }

    /// A row's cells, without those that are not needed, and without values if those are not needed.
    pub fn reduce(&self, mut cells: Vec<FilterCell>) -> Vec<FilterCell> {
        cells.retain(|cell| {
            let of_family = self.family.as_ref().is_none_or(|family| cell.family == family);
            of_family && self.qualifiers.contains(&cell.qualifier)
        });
        if self.first_cell {
            cells.truncate(1);
        }
        if !self.values {
            cells.iter_mut().for_each(|cell| cell.value = Bytes::new());
        }
        cells
    }

    /// Of two filters that must both let a cell pass.
    pub(super) fn and(self, other: Self) -> Self {
        let values = self.values || other.values;
        let (narrow, wide) = if self.scope < other.scope {
            (self, other)
        } else {
            (other, self)
        };
        if narrow.scope == Scope::Row {
            return Self { values, ..wide };
        }
        if wide.scope == Scope::Cells {
            return Self { values, ..Self::keys() };
        }
        let qualifiers = intersect(&[narrow.qualifiers], &[wide.qualifiers]).pop();
        Self {
            values,
            first_cell: false,
            family: narrow.family.or(wide.family),
            // No qualifier passes both, and any range is enough to find that out.
            qualifiers: qualifiers.unwrap_or_else(|| RowBounds {
                start: Bound::Included(Bytes::new()),
                stop: Bound::Included(Bytes::new()),
            }),
            scope: Scope::Cell,
        }
    }
}
