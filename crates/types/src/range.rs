//! Ranges and sets of rows.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// Rows from `start` (inclusive) to `end` (exclusive). Every kind of bound is converted to this form: the row after `r`
/// is `r` followed by a zero byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowRange {
    /// First row; empty is the beginning of the table.
    pub start: Bytes,
    /// First row past the range; `None` is the end of the table.
    pub end: Option<Bytes>,
}

impl RowRange {
    /// The whole table.
    pub fn all() -> Self {
        RowRange {
            start: Bytes::new(),
            end: None,
        }
    }

    /// Exactly one row.
    pub fn single(row: &Bytes) -> Self {
        RowRange {
            start: row.clone(),
            end: Some(successor(row)),
        }
    }

    /// Whether it is a single row.
    pub fn is_one_row(&self) -> bool {
        // The successor of a row is the row and a zero byte.
        let end = self.end.as_deref().and_then(|end| end.strip_suffix(&[0]));
        end == Some(&self.start[..])
    }

    /// All rows that begin with `prefix`.
    pub fn prefix(prefix: &Bytes) -> Self {
        RowRange {
            start: prefix.clone(),
            end: prefix_end(prefix),
        }
    }

    /// A range from any two bounds.
    pub fn from_bounds(start: Bound<Bytes>, end: Bound<Bytes>) -> Self {
        let start = match start {
            Bound::Included(row) => row,
            Bound::Excluded(row) => successor(&row),
            Bound::Unbounded => Bytes::new(),
        };
        let end = match end {
            Bound::Included(row) => Some(successor(&row)),
            Bound::Excluded(row) => Some(row),
            Bound::Unbounded => None,
        };
        RowRange { start, end }
    }

    /// Whether no row can be inside.
    pub fn is_empty(&self) -> bool {
        let reaches = |end: &Bytes| !end.is_empty() && (self.start.is_empty() || *end > self.start);
        !self.end.as_ref().is_none_or(reaches)
    }

    /// Whether `row` is inside.
    #[inline]
    pub fn contains(&self, row: &[u8]) -> bool {
        self.begins_by(row) && self.end.as_ref().is_none_or(|end| row < &end[..])
    }

    /// Whether the range begins at `row` or before it.
    ///
    /// The first tablet of each table and most scans begin at the empty row. It is never compared, here and below. An
    /// empty [`Bytes`] has a dangling pointer. Where the C library compares with masked loads (AVX-512), that costs a
    /// fault in microcode: 120 ns, as much as the rest of a read of an absent row.
    #[inline]
    pub fn begins_by(&self, row: &[u8]) -> bool {
        self.start.is_empty() || row >= &self.start[..]
    }

    /// The rows in both; possibly empty.
    pub fn intersect(&self, other: &RowRange) -> RowRange {
        let start = match (self.start.is_empty(), other.start.is_empty()) {
            (true, _) => other.start.clone(),
            (_, true) => self.start.clone(),
            _ => (&self.start).max(&other.start).clone(),
        };
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        RowRange { start, end }
    }

    /// Whether all rows of `other` are inside.
    fn covers(&self, other: &RowRange) -> bool {
        let ends_within = |end: &Bytes| other.end.as_ref().is_some_and(|other| other <= end);
        self.begins_by(&other.start) && self.end.as_ref().is_none_or(ends_within)
    }

    /// Whether some row may be in both.
    pub fn overlaps(&self, other: &RowRange) -> bool {
        !self.intersect(other).is_empty()
    }

    /// Whether exactly one row can be inside, and which.
    pub fn as_single(&self) -> Option<&Bytes> {
        let end = self.end.as_ref()?;
        (end.len() == self.start.len() + 1 && end.last() == Some(&0) && end.starts_with(&self.start))
            .then_some(&self.start)
    }
}

/// The smallest row greater than `row`.
pub fn successor(row: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(row.len() + 1);
    next.extend_from_slice(row);
    next.push(0);
    next.into()
}

/// The smallest row greater than every row that begins with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end.into())
}

/// A set of rows as sorted, non-empty, disjoint, non-adjacent ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSet {
    ranges: Vec<RowRange>,
}

impl RowSet {
    /// The whole table.
    pub fn all() -> Self {
        RowSet {
            ranges: vec![RowRange::all()],
        }
    }

    /// The union of any ranges: sorted, without empty ones, overlapping and touching ones joined.
    pub fn new(mut ranges: Vec<RowRange>) -> Self {
        ranges.retain(|r| !r.is_empty());
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        let mut merged: Vec<RowRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end.as_ref().is_none_or(|end| range.start <= *end) => {
                    let longer = match (&last.end, &range.end) {
                        (Some(a), Some(b)) => Some(a.max(b).clone()),
                        _ => None,
                    };
                    last.end = longer;
                }
                _ => merged.push(range),
            }
        }
        RowSet { ranges: merged }
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[RowRange] {
        &self.ranges
    }

    /// Whether it is a single row.
    pub fn is_one_row(&self) -> bool {
        match &self.ranges[..] {
            [only] => only.is_one_row(),
            _ => false,
        }
    }

    /// Takes the ranges out, ascending.
    pub fn into_ranges(self) -> Vec<RowRange> {
        self.ranges
    }

    /// Whether no row is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The rows also in `range`. Ranges within it are moved unchanged.
    pub fn cut_to(self, range: &RowRange) -> RowSet {
        let cut = |r: RowRange| if range.covers(&r) { r } else { r.intersect(range) };
        let ranges = self.ranges.into_iter().map(cut).filter(|r| !r.is_empty()).collect();
        RowSet { ranges }
    }

    /// The rows also in `range`.
    pub fn intersect(&self, range: &RowRange) -> RowSet {
        let ranges = self
            .ranges
            .iter()
            .map(|r| r.intersect(range))
            .filter(|r| !r.is_empty())
            .collect();
        RowSet { ranges }
    }

    /// The rows that are in both. Takes as many steps as both have ranges.
    pub fn common(&self, other: &RowSet) -> RowSet {
        let (mut own, mut others) = (&self.ranges[..], &other.ranges[..]);
        let mut ranges = Vec::new();
        while let ([a, own_rest @ ..], [b, other_rest @ ..]) = (own, others) {
            let both = a.intersect(b);
            if !both.is_empty() {
                ranges.push(both);
            }
            // The one that ends first has nothing in common with later ranges.
            match (&a.end, &b.end) {
                (Some(a), Some(b)) if a <= b => own = own_rest,
                (Some(_), None) => own = own_rest,
                _ => others = other_rest,
            }
        }
        RowSet { ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range() -> impl Strategy<Value = RowRange> {
        let row = || prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4).prop_map(Bytes::from);
        (row(), prop::option::of(row())).prop_map(|(start, end)| RowRange { start, end })
    }

    proptest! {
        #[test]
        fn set_holds_what_the_ranges_hold(ranges in prop::collection::vec(range(), 0..5),
                                          row in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4)) {
            let set = RowSet::new(ranges.clone());
            let expected = ranges.iter().any(|r| r.contains(&row));
            prop_assert_eq!(set.ranges().iter().any(|r| r.contains(&row)), expected);
            for pair in set.ranges().windows(2) {
                prop_assert!(pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start));
            }
        }

        #[test]
        fn a_set_is_cut_to_what_both_hold(ranges in prop::collection::vec(range(), 0..5), range in range()) {
            let set = RowSet::new(ranges);
            prop_assert_eq!(set.clone().cut_to(&range), set.intersect(&range));
        }

        #[test]
        fn intersection_is_both(a in range(), b in range(), row in prop::collection::vec(any::<u8>(), 0..3)) {
            prop_assert_eq!(a.intersect(&b).contains(&row), a.contains(&row) && b.contains(&row));
        }

        #[test]
        fn common_rows_are_in_both_sets(a in prop::collection::vec(range(), 0..5), b in prop::collection::vec(range(), 0..5),
                                        row in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4)) {
            let (a, b) = (RowSet::new(a), RowSet::new(b));
            let is_in = |set: &RowSet| set.ranges().iter().any(|range| range.contains(&row));
            let common = a.common(&b);
            prop_assert_eq!(is_in(&common), is_in(&a) && is_in(&b));
            prop_assert_eq!(RowSet::new(common.ranges().to_vec()), common);
        }

        #[test]
        fn a_range_is_what_its_bounds_say(range in range(),
                                          row in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4)) {
            let start = range.start.to_vec();
            let end = range.end.as_ref().map(|end| end.to_vec());
            prop_assert_eq!(range.begins_by(&row), start <= row);
            prop_assert_eq!(range.contains(&row), start <= row && end.as_ref().is_none_or(|end| row < *end));
            prop_assert_eq!(range.is_empty(), end.is_some_and(|end| end <= start));
        }
    }

    #[test]
    fn prefix_ends() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
        assert_eq!(
            RowRange::single(&Bytes::from_static(b"k")).as_single().map(|r| &r[..]),
            Some(&b"k"[..])
        );
        assert_eq!(RowRange::prefix(&Bytes::from_static(b"k")).as_single(), None);
    }
}
