//! Columns of the heat map: open ones, and the dense form of complete ones.

use super::{CellHeat, CellView, Operations};
use std::collections::BTreeMap;
use stele_types::TableId;

/// Bytes of an entry of the map of an open column without its key, about.
const OPEN_CELL_BYTES: usize = 80;

/// A column that is being filled.
pub(super) struct OpenColumn {
    /// Seconds since 1970; the least number before the first time is known.
    pub(super) start: i64,
    cells: BTreeMap<(TableId, Box<[u8]>), CellHeat>,
    key_bytes: usize,
}

impl Default for OpenColumn {
    fn default() -> Self {
        Self::starting(i64::MIN)
    }
}

impl OpenColumn {
    /// An empty column.
    pub(super) fn starting(start: i64) -> Self {
        OpenColumn {
            start,
            cells: BTreeMap::new(),
            key_bytes: 0,
        }
    }

    /// Adds operations on a row.
    pub(super) fn add(&mut self, table: TableId, key: &[u8], operations: Operations, cells_max: usize) {
        let is_wide = false;
        self.insert(table, key, CellHeat { operations, is_wide });
        if self.cells.len() > cells_max {
            self.shrink(cells_max - cells_max / 4);
        }
    }

    fn insert(&mut self, table: TableId, key: &[u8], heat: CellHeat) {
        let before = self.cells.len();
        let cell = self.cells.entry((table, key.into())).or_default();
        cell.operations.add(heat.operations);
        cell.is_wide |= heat.is_wide;
        if self.cells.len() > before {
            self.key_bytes += key.len();
        }
    }

    /// Adds all of another column.
    pub(super) fn add_all(&mut self, other: &OpenColumn, cells_max: usize) {
        for ((table, key), heat) in &other.cells {
            self.insert(*table, key, *heat);
        }
        if self.cells.len() > cells_max {
            self.shrink(cells_max - cells_max / 4);
        }
    }

    /// The cells, by table and key.
    pub(super) fn cells(&self) -> impl Iterator<Item = CellView<'_>> {
        with_next(self.cells.iter().map(|((table, key), heat)| (*table, &key[..], *heat)))
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.len() * OPEN_CELL_BYTES + self.key_bytes
    }

    /// Makes neighbours with few operations one, until there are at most `cells_max` cells, or one of each table. If that
    /// is not enough, forgets the tables with the fewest operations.
    fn shrink(&mut self, cells_max: usize) {
        let mut cells: Vec<_> = std::mem::take(&mut self.cells).into_iter().collect();
        while cells.len() > cells_max {
            let before = cells.len();
            cells = join_coldest(cells, before - cells_max);
            if cells.len() == before {
                break;
            }
        }
        if cells.len() > cells_max {
            cells.sort_by_key(|(_, heat)| std::cmp::Reverse(heat.operations.sum()));
            cells.truncate(cells_max);
        }
        self.cells = cells.into_iter().collect();
        self.key_bytes = self.cells.keys().map(|(_, key)| key.len()).sum();
        debug_assert!(self.cells.len() <= cells_max, "a column has a bounded number of cells");
    }

    /// The dense form.
    pub(super) fn close(self) -> Column {
        let mut column = Column {
            start: self.start,
            keys: Vec::with_capacity(self.key_bytes),
            cells: Vec::with_capacity(self.cells.len()),
        };
        for ((table, key), CellHeat { operations, is_wide }) in self.cells {
            column.keys.extend_from_slice(&key);
            column.cells.push(DenseCell {
                table,
                key_end: u32::try_from(column.keys.len()).unwrap_or(u32::MAX),
                reads: u32::try_from(operations.reads).unwrap_or(u32::MAX),
                writes: u32::try_from(operations.writes).unwrap_or(u32::MAX),
                is_wide,
            });
        }
        column
    }
}

type OwnedCell = ((TableId, Box<[u8]>), CellHeat);

/// Joins up to `count` pairs of neighbours of one table, those with the fewest operations together.
fn join_coldest(cells: Vec<OwnedCell>, count: usize) -> Vec<OwnedCell> {
    let all = |cells: &[OwnedCell]| cells.iter().map(|(_, heat)| heat.operations.sum()).sum::<u64>();
    let before = all(&cells);
    let sum = |pair: &[OwnedCell]| match pair {
        [a, b] if a.0.0 == b.0.0 => Some(a.1.operations.sum().saturating_add(b.1.operations.sum())),
        _ => None,
    };
    let mut sums: Vec<u64> = cells.windows(2).filter_map(sum).collect();
    if sums.is_empty() {
        return cells;
    }
    debug_assert!(count > 0, "there are cells to be joined");
    let at = count.min(sums.len()) - 1;
    let most = *sums.select_nth_unstable(at).1;
    let mut left = count;
    let mut joined: Vec<OwnedCell> = Vec::with_capacity(cells.len());
    // Whether the last cell has a neighbour in it already: no more than two become one at a time.
    let mut is_joined = false;
    for cell in cells {
        match joined.last_mut() {
            Some(last)
                if !is_joined
                    && left > 0
                    && last.0.0 == cell.0.0
                    && last.1.operations.sum().saturating_add(cell.1.operations.sum()) <= most =>
            {
                last.1.operations.add(cell.1.operations);
                last.1.is_wide = true;
                left -= 1;
                is_joined = true;
            }
            _ => {
                joined.push(cell);
                is_joined = false;
            }
        }
    }
    debug_assert_eq!(all(&joined), before, "no operation gets lost when cells become one");
    joined
}

/// A complete column.
pub(super) struct Column {
    /// Seconds since 1970.
    pub(super) start: i64,
    /// Keys, one after the other.
    keys: Vec<u8>,
    cells: Vec<DenseCell>,
}

struct DenseCell {
    table: TableId,
    key_end: u32,
    reads: u32,
    writes: u32,
    is_wide: bool,
}

/// Adds to each cell the key of the next one of its table.
fn with_next<'a>(cells: impl Iterator<Item = (TableId, &'a [u8], CellHeat)>) -> impl Iterator<Item = CellView<'a>> {
    let mut cells = cells.peekable();
    std::iter::from_fn(move || {
        let (table, key, heat) = cells.next()?;
        let next = cells.peek().filter(|(of, _, _)| *of == table).map(|(_, key, _)| *key);
        debug_assert!(next.is_none_or(|next| key < next), "cells ascend");
        Some(CellView { table, key, next, heat })
    })
}

impl Column {
    /// The cells, by table and key.
    pub(super) fn cells(&self) -> impl Iterator<Item = CellView<'_>> {
        let mut start = 0;
        with_next(self.cells.iter().map(move |cell| {
            let end = cell.key_end as usize;
            let key = self.keys.get(std::mem::replace(&mut start, end)..end);
            let operations = Operations {
                reads: u64::from(cell.reads),
                writes: u64::from(cell.writes),
            };
            let is_wide = cell.is_wide;
            (cell.table, key.unwrap_or_default(), CellHeat { operations, is_wide })
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Column>() + self.keys.capacity() + self.cells.capacity() * size_of::<DenseCell>()
    }
}
