//! Rows that a scanner has read and not returned yet.

use crate::cells::{self, ResultRow};
use crate::pace::Pace;
use crate::scan_batch::{Batch, CallLimits};
use bytes::Bytes;
use std::collections::VecDeque;
use std::vec::IntoIter;
use stele_types::{Cell, TableSchema};

/// Rows of one scanner, in its order.
#[derive(Default)]
pub(crate) struct Waiting {
    rows: VecDeque<WaitingRow>,
    is_first_begun: bool,
}

/// A row that waits. Its first cells may have been returned; those that are left do not move.
struct WaitingRow {
    row: Bytes,
    cells: IntoIter<Cell>,
}

impl WaitingRow {
    /// Bytes of its key, and of the names and the values of its cells.
    fn bytes(&self) -> usize {
        let cells = self.cells.as_slice().iter();
        self.row.len() + cells.map(|cell| cell.qualifier.len() + cell.value.len()).sum::<usize>()
    }

    fn weight(&self) -> usize {
        self.bytes() + self.cells.len() * size_of::<Cell>()
    }

    /// Takes the next cells: all that are left if there are no more than `count`.
    fn take(&mut self, count: usize) -> ResultRow {
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

impl Waiting {
    pub fn push(&mut self, row: Bytes, cells: Vec<Cell>) {
        self.rows.push_back(WaitingRow {
            row,
            cells: cells.into_iter(),
        });
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The key of the first row.
    pub fn first(&self) -> Option<&Bytes> {
        self.rows.front().map(|row| &row.row)
    }

    /// Whether some cells of the first row were returned, and others were not.
    pub fn is_within_row(&self) -> bool {
        self.is_first_begun
    }

    pub fn clear(&mut self) {
        *self = Waiting::default();
    }

    /// Bytes of memory of the rows.
    pub fn weight(&self) -> usize {
        self.rows.iter().map(WaitingRow::weight).sum()
    }

    /// Copies the rows to a buffer of their own. The buffers that they were slices of are no longer held.
    pub fn copy(&mut self) {
        let mut bytes = Vec::with_capacity(self.rows.iter().map(WaitingRow::bytes).sum());
        for row in &self.rows {
            bytes.extend_from_slice(&row.row);
            for cell in row.cells.as_slice() {
                bytes.extend_from_slice(&cell.qualifier);
                bytes.extend_from_slice(&cell.value);
            }
        }
        let mut copies = Bytes::from(bytes);
        for row in &mut self.rows {
            // The place of the cells that were left out goes, too. `collect` would keep it.
            let mut cells = Vec::with_capacity(row.cells.len());
            cells.extend(row.cells.by_ref());
            row.cells = cells.into_iter();
            row.row = copies.split_to(row.row.len());
            for cell in row.cells.as_mut_slice() {
                cell.qualifier = copies.split_to(cell.qualifier.len());
                cell.value = copies.split_to(cell.value.len());
            }
        }
    }

    /// Moves rows to the results. Whether the call has enough.
    pub async fn move_to(
        &mut self,
        batch: &mut Batch,
        filling: &mut Filling<'_>,
        schema: &TableSchema,
        pace: &mut Pace<'_>,
    ) -> bool {
        while let Some(row) = self.rows.front_mut() {
            if filling.is_full(batch) {
                return true;
            }
            let (cells, bytes) = filling.cells_that_fit(schema, row);
            let is_cut = cells < row.cells.len();
            let part = row.take(cells);
            filling.bytes += bytes;
            self.is_first_begun = is_cut;
            batch.rows.push(part);
            batch.partial.push(is_cut);
            if !is_cut {
                self.rows.pop_front();
                filling.rows += 1;
                if filling.limits.rows_left == Some(filling.rows) {
                    batch.is_over = true;
                    return true;
                }
            }
            pace.spend(cells).await;
        }
        false
    }
}

/// The results of a call so far.
pub(crate) struct Filling<'a> {
    limits: &'a CallLimits,
    /// Cells of a result at most.
    cells_max: Option<usize>,
    /// Encoded.
    bytes: usize,
    /// Complete.
    rows: u64,
}

impl<'a> Filling<'a> {
    pub fn new(limits: &'a CallLimits, cells_max: Option<usize>) -> Self {
        Filling {
            limits,
            cells_max,
            bytes: 0,
            rows: 0,
        }
    }

    /// Encoded bytes of the results.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the call takes no more results.
    pub fn is_full(&self, batch: &Batch) -> bool {
        batch.rows.len() >= self.limits.results || self.bytes >= self.limits.bytes
    }

    /// How many cells of a row go to the next result, and their encoded bytes.
    fn cells_that_fit(&self, schema: &TableSchema, row: &WaitingRow) -> (usize, usize) {
        let left = row.cells.as_slice();
        let most = self.cells_max.unwrap_or(usize::MAX).min(left.len());
        let (mut count, mut bytes) = (0, 0);
        for len in cells::encoded_lens(schema, &row.row, left).take(most) {
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
