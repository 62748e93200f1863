//! Cells as readers get them.

use crate::ids::{FamilyId, Timestamp};
use crate::key::CellKind;
use bytes::Bytes;
use std::ops::Range;

/// One cell of a row, without its row key. Values are slices of cached blocks where they can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Which family; names are in the schema.
    pub family: FamilyId,
    /// The column within the family.
    pub qualifier: Bytes,
    /// The version, in the table's unit.
    pub timestamp: Timestamp,
    /// `Put` but in raw reads, which show markers too. A resolved aggregate is a `Put`.
    pub kind: CellKind,
    /// The content.
    pub value: Bytes,
    /// Labels that filters applied, in order; almost always empty.
    pub labels: Vec<String>,
}

impl Cell {
    /// A plain cell.
    pub fn put(family: FamilyId, qualifier: Bytes, timestamp: Timestamp, value: Bytes) -> Self {
        Cell {
            family,
            qualifier,
            timestamp,
            kind: CellKind::Put,
            value,
            labels: Vec::new(),
        }
    }

    /// Bytes this cell holds on to, for budgets.
    pub fn weight(&self) -> usize {
        size_of::<Cell>() + self.qualifier.len() + self.value.len()
    }
}

/// Whole rows in scan order, their cells laid flat: one vector for all cells instead of one per row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBatch {
    rows: Vec<(Bytes, Range<usize>)>,
    cells: Vec<Cell>,
    /// The last row that was looked at, also when it gave nothing: where a resumed scan goes on.
    pub scanned_through: Option<Bytes>,
    /// Rows and cells seen before filtering.
    pub seen: ReadCounts,
}

/// What a read looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Rows with at least one visible cell.
    pub rows: u64,
    /// Visible cells.
    pub cells: u64,
}

impl RowBatch {
    /// Adds a row. A row without cells is not a row and is ignored.
    pub fn push_row(&mut self, row: Bytes, cells: impl IntoIterator<Item = Cell>) {
        let start = self.cells.len();
        self.cells.extend(cells);
        if self.cells.len() > start {
            self.rows.push((row, start..self.cells.len()));
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows with their cells.
    pub fn rows(&self) -> impl Iterator<Item = (&Bytes, &[Cell])> {
        self.rows.iter().map(|(row, range)| (row, &self.cells[range.clone()]))
    }

    /// Drops all rows past the first `n`.
    pub fn truncate(&mut self, n: usize) {
        if let Some((_, range)) = self.rows.get(n) {
            self.cells.truncate(range.start);
            self.rows.truncate(n);
        }
    }
}
