//! Cells and row batches, the results of reads.

use crate::ids::{FamilyId, Timestamp};
use crate::key::CellKind;
use bytes::Bytes;
use std::ops::Deref;

/// One cell of a row, without its row key. Values are slices of cached blocks where possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Which family; names are in the schema.
    pub family: FamilyId,
    /// `Put` except in raw reads, which return tombstones too. A resolved aggregate is a `Put`. While a tablet reads, a
    /// `Reference` is a put whose value is still to be fetched; a tablet returns none.
    pub kind: CellKind,
    /// The column within the family.
    pub qualifier: Bytes,
    /// The version, in the table's unit.
    pub timestamp: Timestamp,
    /// The content.
    pub value: Bytes,
    /// Labels that filters applied, in order.
    pub labels: Labels,
}

/// A scan creates, moves and drops one per cell: 88 bytes are the size of two slices and the numbers.
const _: () = assert!(size_of::<Cell>() <= 88);

/// Labels of one cell; almost always empty, and then without an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(
    #[expect(clippy::box_collection, reason = "one word in every cell instead of three")] Option<Box<Vec<String>>>,
);

impl Labels {
    /// No labels.
    pub const fn none() -> Self {
        Labels(None)
    }

    /// Adds one at the end.
    pub fn push(&mut self, label: String) {
        self.0.get_or_insert_default().push(label);
    }

    /// Takes them out.
    pub fn into_vec(self) -> Vec<String> {
        self.0.map(|labels| *labels).unwrap_or_default()
    }
}

impl Deref for Labels {
    type Target = [String];

    fn deref(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |labels| labels)
    }
}

impl Cell {
    /// A plain cell.
    #[inline]
    pub fn put(family: FamilyId, qualifier: Bytes, timestamp: Timestamp, value: Bytes) -> Self {
        Cell {
            family,
            kind: CellKind::Put,
            qualifier,
            timestamp,
            value,
            labels: Labels::none(),
        }
    }

    /// Whether its value is still to be fetched.
    pub fn is_reference(&self) -> bool {
        self.kind == CellKind::Reference
    }

    /// Bytes of memory of this cell, for budgets.
    #[inline]
    pub fn weight(&self) -> usize {
        size_of::<Cell>() + self.qualifier.len() + self.value.len()
    }
}

/// Up to this many cells are moved to a list of their own; more take the batch's list with them.
const MOVED_CELLS_MAX: usize = 1_024;

/// Rows in scan order: all cells in one vector, all row keys in one buffer. Rows are whole, with one exception: a
/// stream whose reader accepts partial rows. There a large row begins as the last row of one batch and continues as the
/// first of the next.
///
/// Invariants: the ends grow from `rows` to `last`, and lie within `keys` and `cells`. Without a `last` there are no
/// rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBatch {
    keys: Keys,
    /// All rows but the last: the one row of a point read then needs no allocation for its end.
    rows: Vec<RowEnd>,
    last: Option<RowEnd>,
    cells: Vec<Cell>,
    /// The last row that was read completely, also when it gave no cells. A resumed scan continues after it.
    pub scanned_through: Option<Bytes>,
    /// The first row continues a row of an earlier batch of the stream. A batch without this flag after an unfinished
    /// row voids the cells returned for that row. If the row is returned again, it starts at its beginning.
    pub continues: bool,
    /// The last row has at least one more cell to come, unless the row starts again.
    pub unfinished: bool,
    /// A flush or a compaction may change the result of reading the row, though nothing is written. This happens where
    /// a version is hidden and the GC rule counts versions: an older version of its column then shows. It also happens
    /// where a tombstone hides by timestamp a cell newer than itself. The flag is set whenever this matters, and
    /// sometimes when it does not.
    pub unstable: bool,
    /// Rows and cells seen before filtering.
    pub seen: ReadCounts,
}

/// Ends of a row's key and cells; they begin at those of the previous row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowEnd {
    key: usize,
    cells: usize,
}

/// The row keys, concatenated.
#[derive(Clone, Debug)]
enum Keys {
    Growing(Vec<u8>),
    /// Shareable, slice by slice.
    Sealed(Bytes),
}

impl Default for Keys {
    fn default() -> Self {
        Keys::Growing(Vec::new())
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Keys {}

impl Keys {
    fn bytes(&self) -> &[u8] {
        match self {
            Keys::Growing(bytes) => bytes,
            Keys::Sealed(bytes) => bytes,
        }
    }

    fn growing(&mut self) -> &mut Vec<u8> {
        if let Keys::Sealed(bytes) = self {
            *self = Keys::Growing(std::mem::take(bytes).into());
        }
        match self {
            Keys::Growing(bytes) => bytes,
            Keys::Sealed(_) => unreachable!("converted above"),
        }
    }
}

/// Numbers of rows and cells that a read passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Rows with at least one visible cell.
    pub rows: u64,
    /// Visible cells.
    pub cells: u64,
}

impl RowBatch {
    /// An empty batch with capacity for some rows of one cell and their keys.
    pub fn with_capacity(rows: usize, key_bytes: usize) -> Self {
        RowBatch {
            keys: Keys::Growing(Vec::with_capacity(key_bytes)),
            rows: Vec::with_capacity(rows.saturating_sub(1)),
            cells: Vec::with_capacity(rows),
            ..RowBatch::default()
        }
    }

    /// A sealed batch of one row, which must have cells.
    pub fn of_row(row: Bytes, cells: Vec<Cell>) -> Self {
        debug_assert!(!cells.is_empty(), "a row without cells is not a row");
        let end = RowEnd {
            key: row.len(),
            cells: cells.len(),
        };
        RowBatch {
            keys: Keys::Sealed(row),
            last: Some(end),
            cells,
            ..RowBatch::default()
        }
    }

    /// Adds a row. A row without cells is not a row and is ignored.
    pub fn push_row(&mut self, row: impl AsRef<[u8]>, cells: impl IntoIterator<Item = Cell>) {
        self.cells.extend(cells);
        self.end_row(row.as_ref());
    }

    /// Adds a cell of the row that [`RowBatch::end_row`] will name.
    #[inline]
    pub fn push_cell(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    /// Adds cells of the row that [`RowBatch::end_row`] will name. The first ones of a batch are not moved.
    pub fn push_cells(&mut self, mut cells: Vec<Cell>) {
        if self.cells.is_empty() && self.cells.capacity() < cells.len() {
            self.cells = cells;
        } else {
            self.cells.append(&mut cells);
        }
    }

    /// Number of rows that end in this batch.
    pub fn complete_rows(&self) -> usize {
        self.len() - usize::from(self.unfinished && !self.is_empty())
    }

    /// Makes it tell of the rows that it has, and of no others: for callers that must not learn of hidden rows. Its counts are
    /// then those of its own rows and cells.
    pub fn hide_others(&mut self) {
        let complete = self.complete_rows();
        self.seen = ReadCounts {
            rows: complete as u64,
            cells: self.cell_count() as u64,
        };
        self.scanned_through = complete.checked_sub(1).map(|last| self.shared_key(last));
    }

    /// The cells added since the last row ended.
    #[inline]
    pub fn open_cells(&self) -> &[Cell] {
        self.cells.get(self.cells_ended()..).unwrap_or(&[])
    }

    /// The same, mutable.
    pub fn open_cells_mut(&mut self) -> &mut [Cell] {
        let ended = self.cells_ended();
        self.cells.get_mut(ended..).unwrap_or(&mut [])
    }

    /// All cells of all rows, mutable.
    pub fn cells_mut(&mut self) -> &mut [Cell] {
        &mut self.cells
    }

    /// Removes the last cell added, if no row has ended since.
    pub fn pop_open_cell(&mut self) -> Option<Cell> {
        if self.cells.len() > self.cells_ended() {
            self.cells.pop()
        } else {
            None
        }
    }

    /// Removes the cells added since the last row ended.
    pub fn take_open_cells(&mut self) -> Vec<Cell> {
        let ended = self.cells_ended();
        if ended == 0 && self.cells.len() > MOVED_CELLS_MAX {
            return std::mem::take(&mut self.cells);
        }
        self.cells.drain(ended..).collect()
    }

    /// Ends a row with the cells added since the last one ended. Without cells it is not a row and is ignored.
    #[inline]
    pub fn end_row(&mut self, row: &[u8]) {
        if self.cells.len() == self.cells_ended() {
            return;
        }
        let keys = self.keys.growing();
        keys.extend_from_slice(row);
        let end = RowEnd {
            key: keys.len(),
            cells: self.cells.len(),
        };
        if let Some(before) = self.last.replace(end) {
            self.rows.push(before);
        }
    }

    /// Makes the row keys shareable: from then on [`RowBatch::shared_rows`] copies nothing.
    pub fn seal(&mut self) {
        if let Keys::Growing(bytes) = &mut self.keys {
            self.keys = Keys::Sealed(std::mem::take(bytes).into());
        }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.len() + usize::from(self.last.is_some())
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Number of cells of all rows.
    pub fn cell_count(&self) -> usize {
        self.last.map_or(0, |last| last.cells)
    }

    /// The rows with their cells.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&[u8], &[Cell])> {
        (0..self.len()).map(|n| {
            let (start, end) = self.bounds(n);
            (
                &self.keys.bytes()[start.key..end.key],
                &self.cells[start.cells..end.cells],
            )
        })
    }

    /// The rows with their cells. In a sealed batch the keys are slices of one buffer.
    pub fn shared_rows(&self) -> impl ExactSizeIterator<Item = (Bytes, &[Cell])> {
        (0..self.len()).map(|n| {
            let (start, end) = self.bounds(n);
            (self.shared_key(n), &self.cells[start.cells..end.cells])
        })
    }

    /// The key of the n-th row, which must exist.
    fn shared_key(&self, n: usize) -> Bytes {
        let (start, end) = self.bounds(n);
        match &self.keys {
            Keys::Growing(bytes) => Bytes::copy_from_slice(&bytes[start.key..end.key]),
            Keys::Sealed(bytes) => bytes.slice(start.key..end.key),
        }
    }

    /// All cells of all rows.
    pub fn into_cells(self) -> Vec<Cell> {
        self.cells
    }

    /// Drops all rows past the first `n`.
    pub fn truncate(&mut self, n: usize) {
        if n < self.len() {
            self.unfinished = false;
            self.rows.truncate(n);
            self.last = self.rows.pop();
            let ended = self.cells_ended();
            self.cells.truncate(ended);
            let keys = self.last.map_or(0, |end| end.key);
            match &mut self.keys {
                Keys::Growing(bytes) => bytes.truncate(keys),
                Keys::Sealed(bytes) => bytes.truncate(keys),
            }
        }
    }

    #[inline]
    fn cells_ended(&self) -> usize {
        self.last.map_or(0, |end| end.cells)
    }

    /// Bounds of the n-th row, which must exist.
    fn bounds(&self, n: usize) -> (RowEnd, RowEnd) {
        let none = RowEnd { key: 0, cells: 0 };
        let start = n.checked_sub(1).map_or(none, |before| self.rows[before]);
        let end = self.rows.get(n).copied().or(self.last);
        (start, end.unwrap_or(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(value: &'static str) -> Cell {
        Cell::put(
            FamilyId(1),
            Bytes::from_static(b"q"),
            Timestamp(1),
            Bytes::from_static(value.as_bytes()),
        )
    }

    fn shown(batch: &RowBatch) -> Vec<String> {
        let show = |row: &[u8], cells: &[Cell]| {
            let values: Vec<_> = cells.iter().map(|c| c.value.escape_ascii().to_string()).collect();
            format!("{}={}", row.escape_ascii(), values.join(","))
        };
        let rows: Vec<String> = batch.rows().map(|(row, cells)| show(row, cells)).collect();
        let shared: Vec<String> = batch.shared_rows().map(|(row, cells)| show(&row, cells)).collect();
        assert_eq!(rows, shared);
        rows
    }

    #[test]
    fn rows_keep_their_keys_and_cells() {
        let mut batch = RowBatch::with_capacity(1, 1);
        batch.push_row(b"a", [cell("1"), cell("2")]);
        batch.push_row(b"none", []);
        batch.push_row(b"", [cell("3")]);
        batch.seal();
        assert_eq!(shown(&batch), ["a=1,2", "=3"]);
        batch.push_cell(cell("4"));
        assert_eq!(batch.open_cells(), [cell("4")]);
        assert_eq!(batch.take_open_cells(), [cell("4")]);
        batch.end_row(b"gone");
        batch.push_row(b"ccc", [cell("5")]);
        assert_eq!(shown(&batch), ["a=1,2", "=3", "ccc=5"]);
        for (n, left) in [(9, 3), (2, 2), (1, 1), (0, 0)] {
            batch.truncate(n);
            assert_eq!(shown(&batch).len(), left);
        }
        batch.push_row(b"d", [cell("6")]);
        assert_eq!(shown(&batch), ["d=6"]);
    }

    #[test]
    fn a_batch_that_hides_others_tells_of_its_own_rows() {
        let hidden = |rows: &[&'static str], unfinished: bool| {
            let mut batch = RowBatch::default();
            for row in rows {
                batch.push_row(row, [cell("1"), cell("2")]);
            }
            batch.unfinished = unfinished;
            batch.seen = ReadCounts { rows: 70, cells: 900 };
            batch.scanned_through = Some(Bytes::from_static(b"secret"));
            batch.hide_others();
            (batch.seen.rows, batch.seen.cells, batch.scanned_through)
        };
        assert_eq!(hidden(&["a", "b"], false), (2, 4, Some(Bytes::from_static(b"b"))));
        assert_eq!(hidden(&["a", "b"], true), (1, 4, Some(Bytes::from_static(b"a"))));
        assert_eq!(hidden(&["a"], true), (0, 2, None));
        assert_eq!(hidden(&[], false), (0, 0, None));
    }

    #[test]
    fn labels_are_a_list() {
        let mut labels = Labels::none();
        assert!(labels.is_empty());
        labels.push("a".to_owned());
        labels.push("b".to_owned());
        assert_eq!(
            (&labels[..], labels.clone().into_vec()),
            (
                &["a".to_owned(), "b".to_owned()][..],
                vec!["a".to_owned(), "b".to_owned()]
            )
        );
    }
}
