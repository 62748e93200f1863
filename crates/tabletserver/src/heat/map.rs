//! The heat map: operations by table, range of rows and time.
//!
//! Terms: a *column* is a span of time. A *cell* of a column is a row key with the operations on it and on the rows up to
//! the next cell of its table. A *level* is a sequence of columns of one length; each level is made of the columns of the
//! one before.
//!
//! A column has a bounded number of cells. When there are too many, the neighbours with the fewest operations become
//! one, a *wide* cell. So hot rows keep cells of their own.
//!
//! Invariants:
//! * Columns of a level are in ascending order of time and do not overlap.
//! * The cells of a column ascend by table and key.
//! * The reservation covers all that is kept; the oldest columns of the finest level go when it cannot grow.
//!
//! Pure but for the reservation: no clock.

mod column;
mod grid;

use column::{Column, OpenColumn};
pub use grid::{HeatGrid, HeatQuery};
use std::collections::VecDeque;
use stele_memory::Reservation;
use stele_types::TableId;

/// Seconds of a column, and columns, of each level: half an hour, four hours, two days.
const LEVELS: [(i64, usize); 3] = [(10, 180), (60, 240), (600, 288)];
/// Bytes of the buffer of samples, which the reservation covers as well.
const BUFFER_BYTES: usize = 384 << 10;
/// Bytes that a cell takes with its key, about: from it follows the number of cells of a column.
const CELL_BYTES: usize = 48;
/// Cells of a column at least and at most: few are better than none, and more than a screen has no use.
const CELLS_MIN: usize = 16;
const CELLS_MAX: usize = 512;

/// A cell: its key, the key of the next one of its table, and its operations.
struct CellView<'a> {
    table: TableId,
    key: &'a [u8],
    next: Option<&'a [u8]>,
    heat: CellHeat,
}

/// The operations of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct CellHeat {
    operations: Operations,
    /// They are on several rows from its key on.
    is_wide: bool,
}

/// Operations on rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Rows read.
    pub reads: u64,
    /// Rows written.
    pub writes: u64,
}

impl Operations {
    fn add(&mut self, other: Operations) {
        self.reads += other.reads;
        self.writes += other.writes;
    }

    fn sum(self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// The map of one server.
pub struct HeatMap {
    levels: [Level; LEVELS.len()],
    cells_max: usize,
    reservation: Reservation,
}

struct Level {
    seconds: i64,
    columns_max: usize,
    /// Oldest first.
    closed: VecDeque<Column>,
    open: OpenColumn,
}

impl HeatMap {
    /// An empty map that may take `limit` bytes of the reservation's part.
    pub(super) fn new(reservation: Reservation, limit: usize) -> Self {
        let columns: usize = LEVELS.iter().map(|(_, columns)| columns + 1).sum();
        let cells = limit.saturating_sub(BUFFER_BYTES) / columns / CELL_BYTES;
        assert_eq!(reservation.counted(), 0, "nothing is kept at first");
        HeatMap {
            levels: LEVELS.map(|(seconds, columns_max)| Level {
                seconds,
                columns_max,
                closed: VecDeque::new(),
                open: OpenColumn::default(),
            }),
            cells_max: cells.clamp(CELLS_MIN, CELLS_MAX),
            reservation,
        }
    }

    /// Adds operations on a row to the present.
    pub(super) fn add(&mut self, table: TableId, key: &[u8], operations: Operations) {
        let cells_max = self.cells_max;
        let [finest, ..] = &mut self.levels;
        finest.open.add(table, key, operations, cells_max);
    }

    /// Closes the columns that end before this time. A clock that goes backward closes none.
    pub(super) fn advance(&mut self, wall_seconds: i64) {
        for at in 0..self.levels.len() {
            let level = &mut self.levels[at];
            let start = wall_seconds - wall_seconds.rem_euclid(level.seconds);
            debug_assert_eq!(
                start.rem_euclid(level.seconds),
                0,
                "a column starts at a multiple of its length"
            );
            if start <= level.open.start {
                break;
            }
            let is_first = level.open.start == i64::MIN;
            let mut full = OpenColumn::starting(start);
            std::mem::swap(&mut full, &mut level.open);
            if is_first {
                continue;
            }
            if let Some(next) = self.levels.get_mut(at + 1) {
                if next.open.start == i64::MIN {
                    next.open.start = full.start - full.start.rem_euclid(next.seconds);
                }
                next.open.add_all(&full, self.cells_max);
            }
            self.keep(at, full.close());
        }
        self.reserve();
    }

    /// Keeps a column, in place of the oldest of its level if there are too many.
    fn keep(&mut self, at: usize, column: Column) {
        let level = &mut self.levels[at];
        debug_assert!(
            level.closed.back().is_none_or(|last| last.start < column.start),
            "columns ascend by time"
        );
        if level.closed.len() >= level.columns_max {
            level.closed.pop_front();
        }
        level.closed.push_back(column);
        assert!(
            level.closed.len() <= level.columns_max,
            "a level has a bounded number of columns"
        );
    }

    /// Reserves as many bytes as there are, and forgets columns until there are no more than can be reserved.
    fn reserve(&mut self) {
        loop {
            let bytes = BUFFER_BYTES + self.levels.iter().map(Level::bytes).sum::<usize>();
            let reserved = self.reservation.counted();
            if bytes <= reserved {
                self.reservation.shrink_to(bytes);
                return;
            }
            if self.reservation.try_grow(bytes - reserved).is_ok() || !self.forget_oldest() {
                return;
            }
        }
    }

    /// Forgets the oldest column of the finest level that has some.
    fn forget_oldest(&mut self) -> bool {
        self.levels.iter_mut().any(|level| level.closed.pop_front().is_some())
    }
}

impl Level {
    /// The start of the oldest column that is kept.
    fn oldest(&self) -> i64 {
        self.closed.front().map_or(self.open.start, |column| column.start)
    }

    fn bytes(&self) -> usize {
        self.open.bytes() + self.closed.iter().map(Column::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
