//! The pushdown of a filter: the parts of rows that a scan may skip.
//!
//! A [`Pushdown`] describes a *reduction* of a row: cut to some columns and timestamps, then keep the newest versions
//! of each column, then keep the first cells of the row, in that order. Evaluating the filter on the reduced row gives
//! the same result as on the whole row. A scan may carry out any part of the reduction, or none, but a later step
//! requires all earlier ones: `versions` without the cuts would drop cells that the cuts preserve.

use crate::cell_order::keep_newest;
use crate::column_cut::ColumnCut;
use bytes::Bytes;
use std::collections::BTreeSet;
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
    /// Neither cells nor deletes at these timestamps or later exist in these families, if they keep deleted cells. Ascending.
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
