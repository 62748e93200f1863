//! A scan that lends its cells instead of handing them out.
//!
//! A cell of a batch shares the memory of its block and of its qualifier, which is two atomic operations to make and two
//! to drop. Who only looks at cells (to count, sum, export, compare) gets slices here, valid during the call.

use super::output::{Filtering, Output, RowName};
use super::{At, Progress, ScanSpec, TabletScanner};
use crate::error::Result;
use crate::resolve::StoredValue;
use crate::tablet::Tablet;
use bytes::Bytes;
use std::sync::Arc;
use stele_types::{Cell, FamilyId, RowSet, Timestamp};

/// A plain cell, lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// Which family; names are in the schema.
    pub family: FamilyId,
    /// The column within the family.
    pub qualifier: &'a [u8],
    /// The version, in the table's unit.
    pub timestamp: Timestamp,
    /// The content.
    pub value: &'a [u8],
}

/// Looks at the cells of a scan.
pub trait CellVisitor {
    /// A row with at least one cell begins.
    fn row(&mut self, row: &[u8]);
    /// The next cell of that row.
    fn cell(&mut self, cell: CellRef<'_>);
}

impl<V: CellVisitor> CellVisitor for &mut V {
    #[inline]
    fn row(&mut self, row: &[u8]) {
        (**self).row(row);
    }

    #[inline]
    fn cell(&mut self, cell: CellRef<'_>) {
        (**self).cell(cell);
    }
}

/// A scan in progress that shows every cell once, resolved and not filtered. Rows are read at one snapshot each, as by
/// [`TabletScanner`].
pub struct TabletVisit<V> {
    scanner: TabletScanner<Visited<V>>,
}

impl<V: CellVisitor> TabletVisit<V> {
    /// A visit of the tablet's part of `rows`.
    pub fn new(tablet: Arc<Tablet>, rows: RowSet, reversed: bool, visitor: V) -> Self {
        let spec = ScanSpec {
            rows,
            filter: None,
            reversed,
            raw: false,
            rows_limit: None,
        };
        let visited = Visited {
            visitor,
            begun: false,
            held: Vec::new(),
            rows: 0,
        };
        TabletVisit {
            scanner: TabletScanner::with_output(tablet, spec, visited),
        }
    }

    /// Shows the next rows, about as many as a batch would hold; false when all have been shown. Between two calls is the
    /// place to let others run. Should the future be dropped, the next call goes on behind the cell shown last; should it
    /// fail, a part of a row may have been shown, and nothing more will be.
    pub async fn next(&mut self) -> Result<bool> {
        let scanner = &mut self.scanner;
        // Rows that a call which was dropped has shown are behind us; the one it was in the middle of goes on as it was.
        let within_row = scanner.position.as_ref().is_some_and(|p| p.at != At::Boundary);
        if !within_row {
            scanner.pass_batch();
            scanner.reader.take_batch();
            scanner.refresh();
        }
        if scanner.ranges.is_empty() {
            return Ok(false);
        }
        let shown = Self::show(scanner).await;
        if shown.is_err() {
            scanner.ranges.clear();
            scanner.position = None;
        }
        shown?;
        scanner.pass_batch();
        scanner.reader.take_batch();
        Ok(!scanner.ranges.is_empty())
    }

    async fn show(scanner: &mut TabletScanner<Visited<V>>) -> Result<()> {
        while scanner.run()? == Progress::Blocked {
            scanner.load().await?;
        }
        Ok(())
    }
}

/// Gives cells to a visitor.
struct Visited<V> {
    visitor: V,
    /// The visitor has seen a cell of it.
    begun: bool,
    /// Cells of the row from the first on whose value is in a value file: shown when it ends.
    held: Vec<Cell>,
    /// Rows since the batch began.
    rows: usize,
}

impl<V: CellVisitor> Visited<V> {
    #[inline]
    fn show(&mut self, row: &RowName, cell: CellRef<'_>) -> usize {
        if !self.begun {
            self.begun = true;
            self.visitor.row(&row.decoded());
        }
        self.visitor.cell(cell);
        cell.qualifier.len() + cell.value.len()
    }

    #[cold]
    fn show_held(&mut self, row: &RowName) {
        for cell in std::mem::take(&mut self.held) {
            let cell = CellRef {
                family: cell.family,
                qualifier: &cell.qualifier,
                timestamp: cell.timestamp,
                value: &cell.value,
            };
            self.show(row, cell);
        }
    }
}

impl<V: CellVisitor> Output for Visited<V> {
    type Batch = ();

    const KEEPS_VALUES: bool = false;

    #[inline]
    fn rows(&self) -> usize {
        self.rows
    }

    fn reserve(&mut self, _: usize, _: usize) {}

    fn take_batch(&mut self) {
        self.rows = 0;
    }

    #[inline]
    fn begin_row(&mut self) {
        self.begun = false;
        if !self.held.is_empty() {
            self.held.clear();
        }
    }

    fn cell(&mut self, cell: Cell) {
        self.held.push(cell);
    }

    fn needs_values(&mut self, _: bool) -> &mut [Cell] {
        &mut self.held
    }

    #[inline]
    fn put(
        &mut self,
        row: &RowName,
        family: FamilyId,
        qualifier: &Bytes,
        timestamp: Timestamp,
        value: impl StoredValue,
    ) -> usize {
        if !self.held.is_empty() {
            let cell = Cell::put(family, qualifier.clone(), timestamp, value.into_bytes());
            let weight = cell.qualifier.len() + cell.value.len();
            self.held.push(cell);
            return weight;
        }
        value.look(|value| {
            let cell = CellRef {
                family,
                qualifier,
                timestamp,
                value,
            };
            self.show(row, cell)
        })
    }

    #[inline]
    fn end_row(&mut self, row: &RowName, _: usize, bytes: usize, _: Option<Filtering<'_>>) -> Result<usize> {
        if !self.held.is_empty() {
            self.show_held(row);
        }
        self.rows += 1;
        Ok(row.encoded().len() + bytes)
    }
}
