//! The pushdown of a filter: the parts of rows that a scan may skip.
//!
//! A [`Pushdown`] describes a *reduction* of a row: cut to some columns and timestamps, then keep the newest versions
//! of each column, then keep the first cells of the row, in that order. Evaluating the filter on the reduced row gives
//! the same result as on the whole row. A scan may carry out any part of the reduction, or none, but a later step
//! requires all earlier ones: `versions` without the cuts would drop cells that the cuts preserve.

use crate::cell_order::keep_newest;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use stele_types::{Cell, FamilyId, Timestamp};

/// The reduction, and the rows to read. The default reduces nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushdown {
    /// Rows whose key does not begin with this give no cells.
    pub row_prefix: Bytes,
    /// No row gives any cell: there is nothing to scan.
    pub no_cells: bool,
    /// First: only these columns matter.
    pub columns: ColumnCut,
    /// First: only these timestamps matter.
    pub timestamps: TimestampBounds,
    /// Second: only this number of newest cells of each column matters.
    pub versions: Option<usize>,
    /// Third: only this number of first cells of the row matters.
    pub cells: Option<usize>,
    /// Values do not matter: empty ones may be given instead.
    pub keys_only: bool,
    /// Neither cells nor deletes at these timestamps or later exist in these families, if they keep deleted cells.
    pub families_before: Vec<(FamilyId, Timestamp)>,
}

/// Timestamps from `start` (inclusive) to `end` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampBounds {
    /// The lowest.
    pub start: Timestamp,
    /// The lowest that is too high; `None` is no limit.
    pub end: Option<Timestamp>,
}

/// Qualifiers between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifierRange {
    /// First qualifier.
    pub start: Bound<Bytes>,
    /// Last qualifier.
    pub end: Bound<Bytes>,
}

/// For every family, the qualifiers that matter; `None` is no column of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnCut {
    /// For families not in `families`.
    pub others: Option<QualifierRange>,
    /// For these families.
    pub families: BTreeMap<FamilyId, Option<QualifierRange>>,
}

impl Default for Pushdown {
    fn default() -> Self {
        Pushdown {
            row_prefix: Bytes::new(),
            no_cells: false,
            columns: ColumnCut::all(),
            timestamps: TimestampBounds::ALL,
            versions: None,
            cells: None,
            keys_only: false,
            families_before: Vec::new(),
        }
    }
}

impl Pushdown {
    /// The families that matter; `None` is all. Empty when nothing matters.
    pub fn families(&self) -> Option<BTreeSet<FamilyId>> {
        Some(self.each_family()?.collect())
    }

    /// The same without a set of them, ascending.
    pub fn each_family(&self) -> Option<impl Iterator<Item = FamilyId>> {
        match self.columns.others {
            Some(_) if !self.no_cells => None,
            _ => Some(self.columns.named().filter(|_| !self.no_cells)),
        }
    }

    /// Carries out the whole reduction on the cells of a row, which are in order.
    pub fn reduce(&self, mut cells: Vec<Cell>) -> Vec<Cell> {
        if self.no_cells {
            return Vec::new();
        }
        cells.retain(|c| self.timestamps.contains(c.timestamp) && self.columns.contains(c.family, &c.qualifier));
        if let Some(versions) = self.versions {
            keep_newest(&mut cells, versions);
        }
        if let Some(first) = self.cells {
            cells.truncate(first);
        }
        if self.keys_only {
            cells.iter_mut().for_each(|c| c.value = Bytes::new());
        }
        cells
    }
}

impl TimestampBounds {
    /// Every timestamp.
    pub const ALL: TimestampBounds = TimestampBounds {
        start: Timestamp::MIN,
        end: None,
    };

    /// Whether `timestamp` is inside.
    pub fn contains(&self, timestamp: Timestamp) -> bool {
        timestamp >= self.start && self.end.is_none_or(|end| timestamp < end)
    }

    /// The timestamps in both.
    pub(crate) fn intersect(self, other: TimestampBounds) -> TimestampBounds {
        let end = match (self.end, other.end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        TimestampBounds {
            start: self.start.max(other.start),
            end,
        }
    }

    /// The smallest bounds around both.
    pub(crate) fn hull(self, other: TimestampBounds) -> TimestampBounds {
        let end = self.end.zip(other.end).map(|(a, b)| a.max(b));
        TimestampBounds {
            start: self.start.min(other.start),
            end,
        }
    }
}

impl QualifierRange {
    /// Every qualifier.
    pub fn all() -> Self {
        QualifierRange {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        }
    }

    /// One qualifier.
    pub fn exact(qualifier: Bytes) -> Self {
        QualifierRange {
            start: Bound::Included(qualifier.clone()),
            end: Bound::Included(qualifier),
        }
    }

    /// The only qualifier inside, when the range is written as one.
    pub fn as_exact(&self) -> Option<&Bytes> {
        match (&self.start, &self.end) {
            (Bound::Included(a), Bound::Included(b)) if a == b => Some(a),
            _ => None,
        }
    }

    /// Whether `qualifier` is inside.
    pub fn contains(&self, qualifier: &[u8]) -> bool {
        above(&self.start, qualifier) && below(&self.end, qualifier)
    }

    /// Whether no qualifier can be inside, as far as the bounds tell.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            (_, Bound::Excluded(b)) => b.is_empty(),
            _ => false,
        }
    }

    /// The qualifiers in both; `None` when there are none.
    fn intersect(&self, other: &QualifierRange) -> Option<QualifierRange> {
        let tighter_start = lower(&self.start, &other.start) == std::cmp::Ordering::Less;
        let tighter_end = upper(&self.end, &other.end) == std::cmp::Ordering::Greater;
        let range = QualifierRange {
            start: if tighter_start {
                other.start.clone()
            } else {
                self.start.clone()
            },
            end: if tighter_end {
                other.end.clone()
            } else {
                self.end.clone()
            },
        };
        (!range.is_empty()).then_some(range)
    }

    /// The smallest range around both.
    fn hull(&self, other: &QualifierRange) -> QualifierRange {
        let wider_start = lower(&self.start, &other.start) == std::cmp::Ordering::Greater;
        let wider_end = upper(&self.end, &other.end) == std::cmp::Ordering::Less;
        QualifierRange {
            start: if wider_start {
                other.start.clone()
            } else {
                self.start.clone()
            },
            end: if wider_end { other.end.clone() } else { self.end.clone() },
        }
    }
}

/// Whether `bytes` is past the lower bound `start`.
pub(crate) fn above(start: &Bound<Bytes>, bytes: &[u8]) -> bool {
    match start {
        Bound::Included(s) => bytes >= &s[..],
        Bound::Excluded(s) => bytes > &s[..],
        Bound::Unbounded => true,
    }
}

/// Whether `bytes` is before the upper bound `end`.
pub(crate) fn below(end: &Bound<Bytes>, bytes: &[u8]) -> bool {
    match end {
        Bound::Included(e) => bytes <= &e[..],
        Bound::Excluded(e) => bytes < &e[..],
        Bound::Unbounded => true,
    }
}

/// Orders lower bounds by where they begin.
fn lower(a: &Bound<Bytes>, b: &Bound<Bytes>) -> std::cmp::Ordering {
    let rank = |bound: &Bound<Bytes>| match bound {
        Bound::Unbounded => (Bytes::new(), 0),
        Bound::Included(s) => (s.clone(), 0),
        Bound::Excluded(s) => (s.clone(), 1),
    };
    rank(a).cmp(&rank(b))
}

/// Orders upper bounds by where they end.
fn upper(a: &Bound<Bytes>, b: &Bound<Bytes>) -> std::cmp::Ordering {
    let rank = |bound: &Bound<Bytes>| match bound {
        Bound::Unbounded => (1, Bytes::new(), 0),
        Bound::Included(s) => (0, s.clone(), 1),
        Bound::Excluded(s) => (0, s.clone(), 0),
    };
    rank(a).cmp(&rank(b))
}

impl ColumnCut {
    /// Every column.
    pub fn all() -> Self {
        ColumnCut {
            others: Some(QualifierRange::all()),
            families: BTreeMap::new(),
        }
    }

    /// No column.
    pub(crate) fn none() -> Self {
        ColumnCut {
            others: None,
            families: BTreeMap::new(),
        }
    }

    /// The qualifiers of `family` that matter; `None` is none of them.
    pub fn qualifiers(&self, family: FamilyId) -> Option<&QualifierRange> {
        self.families.get(&family).unwrap_or(&self.others).as_ref()
    }

    /// Whether a column matters.
    pub fn contains(&self, family: FamilyId, qualifier: &[u8]) -> bool {
        self.qualifiers(family).is_some_and(|range| range.contains(qualifier))
    }

    /// Whether every column matters.
    pub fn is_all(&self) -> bool {
        self.families.is_empty()
            && self
                .others
                .as_ref()
                .is_some_and(|range| *range == QualifierRange::all())
    }

    /// Whether no column matters.
    pub fn is_none(&self) -> bool {
        self.others.is_none() && self.families.values().all(Option::is_none)
    }

    /// The families that are listed with some qualifiers.
    fn named(&self) -> impl Iterator<Item = FamilyId> {
        self.families
            .iter()
            .filter(|(_, range)| range.is_some())
            .map(|(family, _)| *family)
    }

    /// The columns in both.
    pub(crate) fn intersect(&self, other: &ColumnCut) -> ColumnCut {
        self.merge(other, |a, b| a?.intersect(b?))
    }

    /// The smallest ranges around both.
    pub(crate) fn hull(&self, other: &ColumnCut) -> ColumnCut {
        self.merge(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.hull(b)),
            (a, b) => a.or(b).cloned(),
        })
    }

    fn merge(
        &self,
        other: &ColumnCut,
        op: impl Fn(Option<&QualifierRange>, Option<&QualifierRange>) -> Option<QualifierRange>,
    ) -> ColumnCut {
        let others = op(self.others.as_ref(), other.others.as_ref());
        let families = self.families.keys().chain(other.families.keys());
        let families: BTreeMap<_, _> = families
            .map(|f| (*f, op(self.qualifiers(*f), other.qualifiers(*f))))
            .collect();
        let families = families.into_iter().filter(|(_, range)| *range != others).collect();
        ColumnCut { others, families }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range with ends of up to two letters of a small alphabet.
    fn ranges() -> Vec<QualifierRange> {
        let keys = ["", "a", "ab", "b"].map(|key| Bytes::from_static(key.as_bytes()));
        let included = keys.iter().cloned().map(Bound::Included);
        let excluded = keys.iter().cloned().map(Bound::Excluded);
        let bounds: Vec<_> = included.chain(excluded).chain([Bound::Unbounded]).collect();
        let with = |start: &Bound<Bytes>| {
            let start = start.clone();
            bounds.iter().map(move |end| QualifierRange {
                start: start.clone(),
                end: end.clone(),
            })
        };
        bounds.iter().flat_map(with).collect()
    }

    #[test]
    fn ranges_meet_and_join() {
        let keys = [&b""[..], b"\0", b"a", b"a\0", b"aa", b"ab", b"ab\0", b"b", b"c"];
        for a in ranges() {
            assert!(!a.is_empty() || !keys.iter().any(|key| a.contains(key)), "{a:?}");
            for b in ranges() {
                let (both, hull) = (a.intersect(&b), a.hull(&b));
                for key in keys {
                    let inside = both.as_ref().is_some_and(|range| range.contains(key));
                    assert_eq!(inside, a.contains(key) && b.contains(key), "{a:?} {b:?}");
                    let either = a.contains(key) || b.contains(key);
                    assert!(!either || hull.contains(key), "{a:?} {b:?}");
                }
                assert_eq!(a.hull(&a), a);
            }
        }
    }
}
