//! The order of cells in a row: family, qualifier, timestamp with the newest first.

use std::cmp::Ordering;
use stele_types::Cell;

/// The order of cells in a row.
pub(crate) fn order(a: &Cell, b: &Cell) -> Ordering {
    let column = a.family.cmp(&b.family).then_with(|| a.qualifier.cmp(&b.qualifier));
    column.then_with(|| b.timestamp.cmp(&a.timestamp))
}

/// Whether cells are in order, or a raw read has given tombstones among them, which come before the cells that they may hide.
pub(crate) fn is_input(cells: &[Cell]) -> bool {
    cells.is_sorted_by(|a, b| order(a, b).is_le()) || cells.iter().any(|cell| cell.kind.is_delete())
}

/// Whether two cells are versions of the same column.
pub(crate) fn same_column(a: &Cell, b: &Cell) -> bool {
    a.family == b.family && a.qualifier == b.qualifier
}

/// Keeps the first `versions` (at least one) cells of each column.
pub(crate) fn keep_newest(cells: &mut Vec<Cell>, versions: usize) {
    let mut kept = 1;
    cells.dedup_by(|cell, last_kept| {
        kept = if same_column(cell, last_kept) { kept + 1 } else { 1 };
        kept > versions
    });
}
