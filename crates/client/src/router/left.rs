//! The rows that a read has not read yet.
//!
//! A read of very many keys is cut down with each batch that it hands out. So the rows that were read are removed at one end,
//! without visiting the rest.

use bytes::Bytes;
use std::collections::VecDeque;
use stele_types::{RowRange, RowSet, range};

/// Sorted, non-empty, disjoint ranges.
pub(super) struct Left {
    ranges: VecDeque<RowRange>,
    /// The read goes from the last row to the first.
    reversed: bool,
}

impl Left {
    pub(super) fn new(rows: RowSet, reversed: bool) -> Self {
        Left {
            ranges: rows.into_ranges().into(),
            reversed,
        }
    }

    /// The range that comes next.
    pub(super) fn next(&self) -> Option<&RowRange> {
        if self.reversed {
            self.ranges.back()
        } else {
            self.ranges.front()
        }
    }

    /// The rows within `tablet`, which holds the ones that come next.
    pub(super) fn within(&self, tablet: &RowRange) -> RowSet {
        let meet = |r: &RowRange| Some(r.intersect(tablet)).filter(|r| !r.is_empty());
        let ranges = if self.reversed {
            self.ranges.iter().rev().map_while(meet).collect()
        } else {
            self.ranges.iter().map_while(meet).collect()
        };
        RowSet::new(ranges)
    }

    /// The read has come through `last`.
    pub(super) fn pass(&mut self, last: &Bytes) {
        if self.reversed {
            self.cut_from(last);
        } else {
            self.cut_below(&range::successor(last));
        }
    }

    /// The read has come through `tablet`, which held the rows that came next.
    pub(super) fn pass_tablet(&mut self, tablet: &RowRange) {
        match &tablet.end {
            _ if self.reversed => self.cut_from(&tablet.start),
            Some(end) => self.cut_below(end),
            None => self.ranges.clear(),
        }
    }

    fn cut_below(&mut self, row: &Bytes) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end.as_ref().is_none_or(|end| end > row) {
                if first.start < *row {
                    first.start = row.clone();
                }
                return;
            }
            self.ranges.pop_front();
        }
    }

    fn cut_from(&mut self, row: &Bytes) {
        while let Some(last) = self.ranges.back_mut() {
            if last.start < *row {
                if last.end.as_ref().is_none_or(|end| end > row) {
                    last.end = Some(row.clone());
                }
                return;
            }
            self.ranges.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: &'static str) -> RowRange {
        RowRange {
            start: Bytes::from_static(start.as_bytes()),
            end: (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes())),
        }
    }

    fn left(reversed: bool) -> Left {
        Left::new(
            RowSet::new(vec![range("a", "c"), range("f", "k"), range("m", "")]),
            reversed,
        )
    }

    fn shown(left: &Left) -> Vec<RowRange> {
        left.ranges.iter().cloned().collect()
    }

    #[test]
    fn what_has_been_read_goes() {
        let mut forward = left(false);
        forward.pass(&Bytes::from_static(b"b"));
        assert_eq!(shown(&forward), [range("b\0", "c"), range("f", "k"), range("m", "")]);
        forward.pass(&Bytes::from_static(b"g"));
        assert_eq!(shown(&forward), [range("g\0", "k"), range("m", "")]);
        forward.pass_tablet(&range("g", "n"));
        assert_eq!(shown(&forward), [range("n", "")]);
        forward.pass_tablet(&range("n", ""));
        assert!(forward.next().is_none());

        let mut backward = left(true);
        backward.pass(&Bytes::from_static(b"p"));
        assert_eq!(backward.next(), Some(&range("m", "p")));
        backward.pass(&Bytes::from_static(b"m"));
        assert_eq!(shown(&backward), [range("a", "c"), range("f", "k")]);
        backward.pass_tablet(&range("g", "l"));
        assert_eq!(shown(&backward), [range("a", "c"), range("f", "g")]);
        backward.pass_tablet(&range("", "g"));
        assert!(backward.next().is_none());
    }

    #[test]
    fn a_tablet_gets_its_part() {
        let tablet = range("b", "g");
        assert_eq!(
            left(false).within(&tablet),
            RowSet::new(vec![range("b", "c"), range("f", "g")])
        );
        let mut backward = left(true);
        backward.pass_tablet(&range("g", ""));
        assert_eq!(
            backward.within(&tablet),
            RowSet::new(vec![range("b", "c"), range("f", "g")])
        );
        assert_eq!(left(true).within(&range("n", "")), RowSet::new(vec![range("n", "")]));
    }
}
