//! The batch that the cells of a read go to.

use super::scattered;
use super::sink::weight;
use crate::resolve::StoredValue;
use bytes::Bytes;
use std::borrow::Cow;
use stele_filter::{CompiledFilter, FilterError};
use stele_types::{Cell, FamilyId, RowBatch, Timestamp, key};

/// A filter, and the means that it has for a row.
pub struct Filtering<'a> {
    pub filter: &'a CompiledFilter,
    /// Bytes that its copies of cells may take.
    pub memory: usize,
    /// The random numbers that it samples with.
    pub rng: &'a mut dyn FnMut() -> f64,
}

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

/// The batch in the making, and the cells of the row that is being read.
#[derive(Default)]
pub struct Output {
    batch: RowBatch,
}

impl Output {
    /// Rows in the batch so far.
    #[inline]
    pub fn rows(&self) -> usize {
        self.batch.len()
    }

    /// Reserves memory for an empty batch.
    pub fn reserve(&mut self, rows: usize, key_bytes: usize) {
        self.batch = RowBatch::with_capacity(rows, key_bytes);
    }

    /// Ends the batch and begins another.
    pub fn take_batch(&mut self) -> RowBatch {
        let mut batch = std::mem::take(&mut self.batch);
        batch.seal();
        batch
    }

    /// A cell of the row, of any kind: also one whose value is in a value file.
    #[inline]
    pub fn cell(&mut self, cell: Cell) {
        self.batch.push_cell(cell);
    }

    /// The cells of the batch.
    pub fn cells_mut(&mut self) -> &mut [Cell] {
        self.batch.cells_mut()
    }

    /// Cells of the row that must have their values before it ends; `reads_values` says whether its filter reads values.
    pub fn needs_values(&mut self, reads_values: bool) -> &mut [Cell] {
        // A value that the filter leaves out is not fetched, unless the filter reads values.
        match reads_values {
            true => self.batch.open_cells_mut(),
            false => &mut [],
        }
    }

    /// Takes back the last cell of the row.
    pub fn pop_cell(&mut self) -> Option<Cell> {
        self.batch.pop_open_cell()
    }

    /// Takes back the cells of the row since it began, or since the last partial row of it.
    pub fn take_piece(&mut self) -> Vec<Cell> {
        let cells = self.batch.take_open_cells();
        self.batch.seen.cells += cells.len() as u64;
        cells
    }

    /// A partial row, also the last one of a row, as the filter has left it: at least one cell.
    pub fn give(&mut self, row: &RowName, cells: impl Iterator<Item = Cell>) {
        cells.for_each(|cell| self.batch.push_cell(cell));
        self.batch.end_row(&row.decoded());
    }

    /// A row has ended of which there were partial rows.
    pub fn count_row(&mut self) {
        self.batch.seen.rows += 1;
    }

    /// Copies the values of the cells of the batch from this one on, if the cells weigh less than `bytes` together.
    /// Returns the number of cells.
    pub fn copy_scattered(&mut self, from: usize, bytes: u64) -> usize {
        let cells = self.batch.cells_mut();
        if let Some(new) = cells.get_mut(from..) {
            scattered::copy_if_below(new, bytes);
        }
        cells.len()
    }

    /// Compactions may change the result of the read of this row: [`RowBatch::unstable`].
    #[cold]
    pub fn note_unstable(&mut self) {
        self.batch.unstable = true;
    }

    /// A plain cell of the row; its weight.
    #[inline]
    pub fn put(&mut self, family: FamilyId, qualifier: &Bytes, timestamp: Timestamp, value: impl StoredValue) -> usize {
        let cell = Cell::put(family, qualifier.clone(), timestamp, value.into_bytes());
        let weight = cell.weight();
        self.batch.push_cell(cell);
        weight
    }

    /// Ends the row, whose cells have this number and `bytes` weight together. Returns its weight after filtering.
    #[inline]
    pub fn end_row(
        &mut self,
        row: &RowName,
        cells: usize,
        bytes: usize,
        filter: Option<Filtering<'_>>,
    ) -> Result<usize, FilterError> {
        debug_assert!(cells > 0, "a row that ends has cells");
        self.batch.seen.rows += 1;
        self.batch.seen.cells += cells as u64;
        let row = row.decoded();
        let bytes = match filter {
            None => bytes,
            Some(Filtering { filter, memory, rng }) => {
                let cells = filter.evaluate(&row, self.batch.take_open_cells(), memory, rng)?;
                let bytes = cells.iter().map(weight).sum();
                self.batch.push_cells(cells);
                bytes
            }
        };
        self.batch.end_row(&row);
        Ok(row.len() + bytes)
    }
}
