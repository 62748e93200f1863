//! Where the cells of a read go: to a batch that outlives the read, or to a visitor that looks at them where they are.

use super::scattered;
use super::sink::weight;
use crate::error::Result;
use crate::resolve::StoredValue;
use bytes::Bytes;
use std::borrow::Cow;
use stele_filter::CompiledFilter;
use stele_types::{Cell, FamilyId, RowBatch, Timestamp, key};

/// A filter, and what it draws chances from.
pub type Filtering<'a> = (&'a CompiledFilter, &'a mut dyn FnMut() -> f64);

/// The row being read.
#[derive(Debug, Default)]
pub struct RowName {
    /// Encoded, with its terminator; empty before the first.
    encoded: Vec<u8>,
    /// Nothing in it is escaped.
    is_plain: bool,
}

impl RowName {
    /// Makes it the row of this encoded prefix; `is_plain` says that nothing in it is escaped.
    #[inline]
    pub fn set(&mut self, encoded: &[u8], is_plain: bool) {
        self.encoded.clear();
        self.encoded.extend_from_slice(encoded);
        self.is_plain = is_plain;
    }

    /// As it begins keys.
    #[inline]
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// As its writer has named it.
    #[inline]
    pub fn decoded(&self) -> Cow<'_, [u8]> {
        match self.encoded.split_last_chunk::<2>() {
            Some((row, _)) if self.is_plain => Cow::Borrowed(row),
            _ => key::decode_checked_row(&self.encoded),
        }
    }
}

/// Takes the cells of one row after the other.
pub trait Output {
    /// What is handed out at the end of a batch.
    type Batch;

    /// Whether values are kept beyond the call that takes them. For those that are not, no reference need be taken.
    const KEEPS_VALUES: bool = true;

    /// Rows in the batch so far.
    fn rows(&self) -> usize;
    /// Makes room in an empty batch.
    fn reserve(&mut self, rows: usize, key_bytes: usize);
    /// Ends the batch and begins another.
    fn take_batch(&mut self) -> Self::Batch;
    /// A row begins, of which there may be no cells.
    fn begin_row(&mut self);
    /// A cell of it, whatever it is: also one whose value is in a value file.
    fn cell(&mut self, cell: Cell);
    /// Takes back the last cell of the row; none where cells do not outlive the call that takes them.
    fn pop_cell(&mut self) -> Option<Cell> {
        None
    }
    /// Takes back the cells of the row since it began, or since the last piece of it.
    fn take_piece(&mut self) -> Vec<Cell> {
        Vec::new()
    }
    /// A piece of the row, or what is left of it, as the filter has left it: at least one cell.
    fn give(&mut self, _: &RowName, _: impl Iterator<Item = Cell>) {}
    /// A row has ended of which there were pieces.
    fn count_row(&mut self) {}
    /// Cells of the row that must have their values before it ends; `reads_values` says whether its filter looks at them.
    fn needs_values(&mut self, reads_values: bool) -> &mut [Cell];
    /// A plain cell of it; what it weighs.
    fn put(
        &mut self,
        row: &RowName,
        family: FamilyId,
        qualifier: &Bytes,
        timestamp: Timestamp,
        value: impl StoredValue,
    ) -> usize;
    /// Copies the values of the cells of the batch from this one on, if the cells weigh less than so many bytes together. How
    /// many cells there are.
    fn copy_scattered(&mut self, _from: usize, _bytes: u64) -> usize {
        0
    }
    /// Compactions may change what was read of the row: [`RowBatch::unstable`].
    fn note_unstable(&mut self) {}
    /// Ends the row; there were so many cells, and they weigh `bytes`. What the row weighs after filtering.
    fn end_row(&mut self, row: &RowName, cells: usize, bytes: usize, filter: Option<Filtering<'_>>) -> Result<usize>;
}

impl Output for RowBatch {
    type Batch = RowBatch;

    #[inline]
    fn rows(&self) -> usize {
        self.len()
    }

    fn reserve(&mut self, rows: usize, key_bytes: usize) {
        *self = RowBatch::with_capacity(rows, key_bytes);
    }

    fn take_batch(&mut self) -> RowBatch {
        let mut batch = std::mem::take(self);
        batch.seal();
        batch
    }

    #[inline]
    fn begin_row(&mut self) {}

    #[inline]
    fn cell(&mut self, cell: Cell) {
        self.push_cell(cell);
    }

    fn needs_values(&mut self, reads_values: bool) -> &mut [Cell] {
        // What the filter leaves out is not fetched, unless it has to be looked at for that.
        match reads_values {
            true => self.open_cells_mut(),
            false => &mut [],
        }
    }

    fn pop_cell(&mut self) -> Option<Cell> {
        self.pop_open_cell()
    }

    fn take_piece(&mut self) -> Vec<Cell> {
        let cells = self.take_open_cells();
        self.seen.cells += cells.len() as u64;
        cells
    }

    fn give(&mut self, row: &RowName, cells: impl Iterator<Item = Cell>) {
        cells.for_each(|cell| self.push_cell(cell));
        RowBatch::end_row(self, &row.decoded());
    }

    fn count_row(&mut self) {
        self.seen.rows += 1;
    }

    fn copy_scattered(&mut self, from: usize, bytes: u64) -> usize {
        let cells = self.cells_mut();
        if let Some(new) = cells.get_mut(from..) {
            scattered::copy_if_below(new, bytes);
        }
        cells.len()
    }

    #[cold]
    fn note_unstable(&mut self) {
        self.unstable = true;
    }

    #[inline]
    fn put(
        &mut self,
        _: &RowName,
        family: FamilyId,
        qualifier: &Bytes,
        timestamp: Timestamp,
        value: impl StoredValue,
    ) -> usize {
        let cell = Cell::put(family, qualifier.clone(), timestamp, value.into_bytes());
        let weight = cell.weight();
        self.push_cell(cell);
        weight
    }

    #[inline]
    fn end_row(&mut self, row: &RowName, cells: usize, bytes: usize, filter: Option<Filtering<'_>>) -> Result<usize> {
        self.seen.rows += 1;
        self.seen.cells += cells as u64;
        let row = row.decoded();
        let bytes = match filter {
            None => bytes,
            Some((filter, rng)) => {
                let cells = filter.evaluate(&row, self.take_open_cells(), rng)?;
                let bytes = cells.iter().map(weight).sum();
                self.push_cells(cells);
                bytes
            }
        };
        RowBatch::end_row(self, &row);
        Ok(row.len() + bytes)
    }
}
