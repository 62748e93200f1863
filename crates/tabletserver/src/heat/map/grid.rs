//! A part of the heat map as a grid of times and ranges of rows.
//!
//! The rows of the grid are chosen by their heat: each covers about the same sum of square roots of operations. A
//! plain sum would leave a single row of the grid to each hot key and all others to one; the same number of keys in each
//! would hide hot keys between cold ones.

use super::{CellView, HeatMap, Level, Operations};
use std::collections::{BTreeMap, BTreeSet};
use stele_types::{RowRange, TableId};

/// The part that is wanted.
#[derive(Clone, Debug)]
pub struct HeatQuery {
    /// Which table.
    pub table: TableId,
    /// Which rows.
    pub rows: RowRange,
    /// The first second since 1970.
    pub from: i64,
    /// The second behind the last.
    pub to: i64,
    /// Columns at most.
    pub columns_max: usize,
    /// Ranges of rows at most.
    pub ranges_max: usize,
}

/// Operations by time and range of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatGrid {
    /// The second since 1970 at which each column starts, ascending. Times without columns had no operations, or are
    /// forgotten.
    pub columns: Vec<i64>,
    /// Seconds of a column.
    pub seconds: i64,
    /// The first row of each range, ascending; the first is that of the query. Keys may be cut.
    pub starts: Vec<Vec<u8>>,
    /// Operations on each range in each column: all ranges of the first column, then those of the second.
    pub operations: Vec<Operations>,
}

impl HeatMap {
    /// A part of the map.
    pub fn grid(&self, query: &HeatQuery) -> HeatGrid {
        let level = self.level_from(query.from);
        let span = query.to.saturating_sub(query.from).max(level.seconds);
        let columns = span.div_euclid(level.seconds).max(1);
        let merged = columns.div_euclid(query.columns_max.max(1) as i64)
            + i64::from(columns % query.columns_max.max(1) as i64 > 0);
        let seconds = level.seconds * merged.max(1);
        let cells = cells_of(level, query, seconds);
        let starts = starts_of(&cells, query);
        let columns: BTreeSet<i64> = cells.iter().map(|(start, _)| *start).collect();
        let mut grid = HeatGrid {
            operations: vec![Operations::default(); columns.len() * starts.len()],
            columns: columns.into_iter().collect(),
            seconds,
            starts,
        };
        debug_assert!(grid.starts.is_sorted(), "ranges ascend");
        assert!(!grid.starts.is_empty(), "the first range is always there");
        for (start, cell) in &cells {
            grid.add(*start, cell);
        }
        grid
    }

    /// The finest level that reaches back so far, or as far as any, or the coarsest.
    fn level_from(&self, from: i64) -> &Level {
        let [finest, middle, coarsest] = &self.levels;
        let reaches = |level: &Level, coarser: &[&Level]| {
            let oldest = level.oldest();
            from >= oldest || coarser.iter().all(|other| oldest < other.oldest() + other.seconds)
        };
        if reaches(finest, &[middle, coarsest]) {
            finest
        } else if reaches(middle, &[coarsest]) {
            middle
        } else {
            coarsest
        }
    }
}

impl HeatGrid {
    /// Adds a cell to a column. The operations of a wide one are spread over the ranges up to the next cell, or to the end.
    fn add(&mut self, start: i64, cell: &CellView<'_>) {
        let column = self.columns.partition_point(|column| *column < start);
        let range_of = |key: &[u8]| self.starts.partition_point(|start| start[..] <= *key).saturating_sub(1);
        let first = range_of(cell.key);
        let behind = match cell.next {
            _ if !cell.heat.is_wide => first,
            Some(next) => range_of(next),
            None => self.starts.len(),
        };
        let (ranges, at) = (behind.saturating_sub(first).max(1), column * self.starts.len() + first);
        let share = |all: u64, range: usize| {
            let each = all / ranges as u64;
            if range == 0 {
                all - each * (ranges as u64 - 1)
            } else {
                each
            }
        };
        let Operations { reads, writes } = cell.heat.operations;
        for (range, sum) in self.operations.iter_mut().skip(at).take(ranges).enumerate() {
            sum.add(Operations {
                reads: share(reads, range),
                writes: share(writes, range),
            });
        }
    }
}

/// The cells of the query, each with the start of its column of `seconds`.
fn cells_of<'a>(level: &'a Level, query: &HeatQuery, seconds: i64) -> Vec<(i64, CellView<'a>)> {
    let mut found = Vec::new();
    let mut take = |start: i64, cells: &mut dyn Iterator<Item = CellView<'a>>| {
        if start == i64::MIN || start + level.seconds <= query.from || start >= query.to {
            return;
        }
        let start = start - start.rem_euclid(seconds);
        let wanted = cells.filter(|cell| cell.table == query.table && query.rows.contains(cell.key));
        found.extend(wanted.map(|cell| (start, cell)));
    };
    level
        .closed
        .iter()
        .for_each(|column| take(column.start, &mut column.cells()));
    take(level.open.start, &mut level.open.cells());
    found
}

/// The first rows of the ranges.
fn starts_of(cells: &[(i64, CellView<'_>)], query: &HeatQuery) -> Vec<Vec<u8>> {
    let mut keys: BTreeMap<&[u8], f64> = BTreeMap::new();
    for (_, cell) in cells {
        *keys.entry(cell.key).or_default() += cell.heat.operations.sum() as f64;
    }
    let ranges_max = query.ranges_max.max(1);
    let total: f64 = keys.values().map(|sum| sum.sqrt()).sum();
    let each = if keys.len() <= ranges_max {
        0.0
    } else {
        total / ranges_max as f64
    };
    let mut starts = vec![query.rows.start.to_vec()];
    let mut within = 0.0;
    for (key, sum) in keys {
        let is_first = starts.first().is_some_and(|first| first[..] == *key);
        // A range begins where the one before has its share; hot keys begin one and end one.
        if !is_first && (within >= each || sum.sqrt() >= each) && starts.len() < ranges_max {
            starts.push(key.to_vec());
            within = 0.0;
        }
        within += sum.sqrt();
    }
    debug_assert!(starts.len() <= ranges_max, "no more ranges than asked for");
    starts
}
