//! Cells as filters see them, and their order within a scan.

use bytes::Bytes;
use std::cmp::Ordering;
use stele_wire::cell::CellType;

/// A cell of a row. Its parts are slices of the block that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCell {
    /// Name of the family.
    pub family: Bytes,
    /// Qualifier.
    pub qualifier: Bytes,
    /// In ms, unless the writer uses another unit.
    pub timestamp: i64,
    /// Its meaning. Only raw scans have other types than [`CellType::Put`].
    pub kind: CellType,
    /// Value.
    pub value: Bytes,
}

impl FilterCell {
    /// Whether both are of one column.
    pub(super) fn same_column(&self, other: &Self) -> bool {
        self.family == other.family && self.qualifier == other.qualifier
    }

    /// Whether it belongs to this column.
    pub(super) fn is_of(&self, family: &[u8], qualifier: &[u8]) -> bool {
        self.family == family && self.qualifier == qualifier
    }
}

/// The place that a filter wants the scan to continue at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hint {
    /// The beginning of a row.
    Row(Bytes),
    /// A place in a column of the current row.
    Column {
        family: Bytes,
        qualifier: Bytes,
        version: Version,
    },
}

/// A place in a column, whose newest cells come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    First,
    At(i64),
    Last,
}

impl Hint {
    /// Order of two hints that were computed in one row.
    pub(super) fn compare(&self, other: &Self, row: &[u8]) -> Ordering {
        self.place(row).compare(&other.place(row))
    }

    /// Order of the hint and a cell of the row that it was computed in.
    pub(super) fn compare_cell(&self, row: &[u8], cell: &FilterCell) -> Ordering {
        self.place(row).compare(&Place {
            row,
            family: &cell.family,
            qualifier: &cell.qualifier,
            timestamp: cell.timestamp,
            kind: cell.kind as u8,
        })
    }

    fn place<'a>(&'a self, row: &'a [u8]) -> Place<'a> {
        let place = |row, family, qualifier, version| {
            // The largest type comes first among equal timestamps.
            let (timestamp, kind) = match version {
                Version::First => (i64::MAX, u8::MAX),
                Version::At(timestamp) => (timestamp, u8::MAX),
                Version::Last => (i64::MIN, 0),
            };
            Place {
                row,
                family,
                qualifier,
                timestamp,
                kind,
            }
        };
        match self {
            Self::Row(row) => place(row, &[], &[], Version::First),
            Self::Column {
                family,
                qualifier,
                version,
            } => place(row, family, qualifier, *version),
        }
    }
}

struct Place<'a> {
    row: &'a [u8],
    family: &'a [u8],
    qualifier: &'a [u8],
    timestamp: i64,
    kind: u8,
}

impl Place<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        let column = (self.row, self.family, self.qualifier).cmp(&(other.row, other.family, other.qualifier));
        column.then_with(|| (other.timestamp, other.kind).cmp(&(self.timestamp, self.kind)))
    }
}
