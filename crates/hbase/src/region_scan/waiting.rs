//! Rows that a scanner has read and not returned yet.

use crate::cells::{self, ResultRow};
use crate::scan_batch::CallLimits;
use bytes::Bytes;
use std::vec::IntoIter;
use stele_types::{Cell, TableSchema};

/// A row that waits. Its first cells may have been returned; those that are left do not move.
pub(super) struct WaitingRow {
    pub row: Bytes,
    cells: IntoIter<Cell>,
}

impl WaitingRow {
    pub fn new(row: Bytes, cells: Vec<Cell>) -> Self {
        WaitingRow {
            row,
            cells: cells.into_iter(),
        }
    }

    /// Cells that were not returned.
    pub fn left(&self) -> &[Cell] {
        self.cells.as_slice()
    }

    /// Takes the next cells: all that are left if there are no more than `count`.
    pub fn take(&mut self, count: usize) -> ResultRow {
        let cells = match count < self.cells.len() {
            true => self.cells.by_ref().take(count).collect(),
            // Nothing is copied if none was taken before.
            false => std::mem::take(&mut self.cells).collect(),
        };
        ResultRow {
            row: self.row.clone(),
            cells,
        }
    }
}

/// The results of a call so far.
pub(super) struct Filling<'a> {
    pub limits: &'a CallLimits,
    /// Encoded.
    pub bytes: usize,
    /// Complete.
    pub rows: u64,
}

impl Filling<'_> {
    /// How many cells of a row go to the next result, and their encoded bytes.
    pub fn cells_that_fit(&self, schema: &TableSchema, row: &WaitingRow, cells_max: Option<usize>) -> (usize, usize) {
        let most = cells_max.unwrap_or(usize::MAX).min(row.left().len());
        let lens = cells::encoded_lens(schema, &row.row, row.left());
        let (mut count, mut bytes) = (0, 0);
        for len in lens.take(most) {
            // At least one cell goes, or the scan would make no progress.
            if self.limits.partials && count > 0 && self.bytes + bytes >= self.limits.bytes {
                break;
            }
            bytes += len;
            count += 1;
        }
        (count, bytes)
    }
}
