//! The order of cells in a row: family, qualifier, timestamp with the newest first.

use std::cmp::Ordering;
use stele_types::Cell;

/// The order of cells in a row.
pub(crate) fn order(a: &Cell, b: &Cell) -> Ordering {
    let column = a.family.cmp(&b.family).then_with(|| a.qualifier.cmp(&b.qualifier));
    column.then_with(|| b.timestamp.cmp(&a.timestamp))
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
