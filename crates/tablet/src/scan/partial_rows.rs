//! Returns large rows as partial rows, over several batches.
//!
//! A row may have millions of cells or hundreds of megabytes, and a reader that can assemble it itself need not have the
//! server do that. So a scan for such a reader returns partial rows. Once the part of a row that was read has come to
//! the bytes of a partial row, the scan returns it. The next batch goes on in the middle of the row. The scan retains
//! the state that the rest of the row depends on. That is the positions of the cursors, the tombstones, the number of
//! versions of the column and of cells of the row, and the counts of the filter (`stele_filter::RowProgress`).
//!
//! Terms: a partial row is *given* when a batch with cells of it has been returned. The cell *held back* is the last
//! that passed the filter: the end of a row needs a cell to carry it. The cell *set aside* has not been filtered: it is
//! larger than the rest of the memory, and the next batch begins with it in as much memory as it takes.
//!
//! Invariants:
//! * A row is read as of one snapshot, in one state of the tablet and at one time, from its first partial row to its
//!   last. So its position *pins* memtables and files that may be obsolete, for a bounded time: [`pinned_until`]. If the
//!   tablet has another state when that is over, the row is begun again, and the batch does not say that it continues
//!   (`RowBatch::continues`). Once too often is an error ([`RESTARTS_MAX`]).
//! * A batch that begins within a row ends with it at the latest: later rows are read as of a newer snapshot.
//! * Between two partial rows a row retains no more than a cell or two.
//! * Rows are returned whole where the filter needs them as a whole, and where stored entries are read unresolved.
//! * The cells of a row, without their overhead in memory, are at most `limits::ROW_BYTES_MAX`.

use super::row::{CELL_COST, RowReader};
use super::sink::weight;
use super::{At, Progress, TabletScanner};
use crate::error::{Result, TabletError};
use std::time::Duration;
use stele_env::Env;
use stele_filter::RowProgress;
use stele_types::{Cell, limits};

/// How long a row of any size that is returned as partial rows may be under way before its position can be taken away.
const PINNED: Duration = Duration::from_secs(10);
/// Speed at which it is to be taken beyond that: eight megabits a second. The largest row may pin a state for less than five
/// minutes.
const TAKEN_BYTES_PER_SECOND: usize = 1 << 20;
/// How often a row is begun again because its position was freed. A reader that is too slow three times in succession is
/// always too slow.
const RESTARTS_MAX: u32 = 2;

/// How a scan returns partial rows, and the state that the rest of the current row depends on.
pub(super) struct PartialRows {
    /// The bytes of a partial row; `None` returns rows as a whole.
    pub(super) bytes: Option<usize>,
    /// [`PINNED`].
    pinned: Duration,
    stage: Stage,
    /// Cells of the row have been handed out.
    given: bool,
    /// The batch began behind given cells.
    pub(super) continues: bool,
    /// The batch has cells of the row, of which more is to come.
    pub(super) unfinished: bool,
    /// Bytes of the cells of earlier partial rows before they were filtered, without the overhead per cell.
    bytes_before: usize,
    /// When the first partial row ended.
    began: Duration,
    progress: Option<RowProgress>,
    held_back: Option<Cell>,
    set_aside: Option<Cell>,
    /// How often the row has been begun again.
    restarts: u32,
}

impl Default for PartialRows {
    fn default() -> Self {
        PartialRows {
            bytes: None,
            pinned: PINNED,
            stage: Stage::Whole,
            given: false,
            continues: false,
            unfinished: false,
            bytes_before: 0,
            began: Duration::ZERO,
            progress: None,
            held_back: None,
            set_aside: None,
            restarts: 0,
        }
    }
}

/// Where the row being read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No partial row of it has ended.
    Whole,
    /// Between the batch that a partial row has ended and the next.
    Between,
    /// In a batch behind that.
    Within,
}

impl PartialRows {
    /// Whether a partial row has ended.
    pub(super) fn is_within(&self) -> bool {
        self.stage != Stage::Whole
    }

    /// Whether one has ended with the batch that was handed out last.
    pub(super) fn is_between(&self) -> bool {
        self.stage == Stage::Between
    }

    /// The row is begun again, or given up.
    pub(super) fn abandon(&mut self) {
        *self = PartialRows {
            bytes: self.bytes,
            pinned: self.pinned,
            restarts: self.restarts,
            ..PartialRows::default()
        };
    }

    /// Whether the cell held back has its value, which may have been loaded.
    fn holds_value(&self) -> bool {
        self.held_back.as_ref().is_some_and(|cell| !cell.is_reference())
    }

    /// The time until which the row pins its state.
    pub(super) fn pinned_until(&self) -> Option<Duration> {
        let taking = Duration::from_secs((self.bytes_before / TAKEN_BYTES_PER_SECOND) as u64);
        self.is_between().then(|| self.began + self.pinned + taking)
    }
}

impl RowReader {
    /// From the next batch on that begins with a row, has rows returned as partial rows of this many bytes, or as a
    /// whole.
    pub(super) fn set_partial_rows(&mut self, bytes: Option<usize>) {
        if self.partial_rows.bytes == bytes {
            return;
        }
        let can = !self.raw && self.filter.as_ref().is_none_or(|filter| filter.progress().is_some());
        self.partial_rows.bytes = bytes.filter(|_| can);
        self.set_limit();
    }

    /// The row has outgrown a partial row, if it is returned as such, or its memory reservation. An error where it
    /// cannot go on.
    #[cold]
    pub(super) fn outgrown(&self) -> Result<()> {
        match self.partial_rows.bytes {
            Some(_) => Ok(()),
            None => self.check_size(),
        }
    }

    /// Before a partial row is cut: whether cells of it must have their values first. One that is too large for the
    /// reservation is set aside.
    pub(super) fn partial_row_needs_values(&mut self) -> bool {
        if self.cost() > self.reservation && self.partial_rows.set_aside.is_none() {
            self.partial_rows.set_aside = self.sink.output.pop_cell();
        }
        self.sink.row_refers() && self.needs_values().iter().any(Cell::is_reference)
    }

    /// Ends a partial row.
    pub(super) fn cut(&mut self, env: &Env) -> Result<()> {
        debug_assert_ne!(self.partial_rows.stage, Stage::Between, "a piece is cut within a batch");
        let mut cells = self.partial_row(env)?;
        let last = cells.pop();
        let held_back = match last {
            Some(last) => self.partial_rows.held_back.replace(last),
            None => None,
        };
        if held_back.is_some() || !cells.is_empty() {
            self.sink
                .output
                .give(&self.sink.row, held_back.into_iter().chain(cells));
            (self.partial_rows.given, self.partial_rows.unfinished) = (true, true);
        }
        if self.partial_rows.stage == Stage::Whole {
            self.partial_rows.began = env.now();
        }
        self.partial_rows.stage = Stage::Between;
        self.sink.end_partial_row();
        Ok(())
    }

    /// Ends the row, of which partial rows have ended before.
    pub(super) fn end_partial_rows(&mut self, env: &Env) -> Result<()> {
        debug_assert!(self.partial_rows.is_within(), "pieces of the row have ended before");
        let cells = self.partial_row(env)?;
        let held_back = self.partial_rows.held_back.take();
        if held_back.is_some() || !cells.is_empty() {
            self.sink
                .output
                .give(&self.sink.row, held_back.into_iter().chain(cells));
        }
        self.sink.output.count_row();
        let continues = self.partial_rows.continues;
        self.partial_rows.abandon();
        (self.partial_rows.continues, self.partial_rows.restarts) = (continues, 0);
        self.sink.end_partial_rows();
        self.batch_bytes = self.batch_bytes.max(super::BATCH_BYTES);
        Ok(())
    }

    /// The cells since the last partial row that pass the filter.
    fn partial_row(&mut self, env: &Env) -> Result<Vec<Cell>> {
        let cells = self.sink.output.take_piece();
        let own = |cell: &Cell| weight(cell) - size_of::<Cell>();
        self.partial_rows.bytes_before += cells.iter().map(own).sum::<usize>();
        if self.partial_rows.bytes_before > limits::ROW_BYTES_MAX {
            return Err(self.too_large());
        }
        let Some(filter) = &self.filter else {
            return Ok(cells);
        };
        let partial_rows = &mut self.partial_rows;
        let progress = match &mut partial_rows.progress {
            Some(progress) => progress,
            none => {
                let progress = filter.progress();
                none.insert(progress.expect("only filters that can go on get pieces of rows: `set_partial_rows`"))
            }
        };
        let kept = partial_rows.held_back.iter().chain(&cells);
        let own: usize = kept.map(|cell| weight(cell).saturating_add(CELL_COST)).sum();
        let (count, memory) = (cells.len(), self.reservation.saturating_sub(own));
        let row = self.sink.row.decoded();
        let filtered = filter.evaluate_partial_row(&row, cells, progress, memory, &mut super::row::rng(env));
        filtered.map_err(|error| self.filter_error(error, count, own))
    }

    /// Whether the row that goes on has the memory for its first bytes.
    fn check_space_to_resume(&self) -> Result<()> {
        let kept = [&self.partial_rows.held_back, &self.partial_rows.set_aside];
        let cost = |cell: &Cell| weight(cell).saturating_add(self.cell_cost());
        let bytes: usize = kept.into_iter().flatten().map(cost).sum();
        match bytes > self.reservation {
            true => Err(TabletError::NeedsMemory { bytes }),
            false => Ok(()),
        }
    }

    /// A batch begins within the row.
    fn resume(&mut self) {
        assert_eq!(
            self.partial_rows.stage,
            Stage::Between,
            "a row goes on behind a piece that has ended"
        );
        self.partial_rows.stage = Stage::Within;
        (self.partial_rows.continues, self.partial_rows.unfinished) = (self.partial_rows.given, false);
        self.rows_begun = 1;
        // The cell held back is in the reservation of the rows that come before a large one, of which there are none
        // here.
        self.sink
            .begin_partial_row(self.partial_rows.set_aside.as_ref().map(weight));
        if let Some(cell) = self.partial_rows.set_aside.take() {
            self.sink.output.cell(cell);
        }
    }
}

impl TabletScanner {
    /// Has rows that the reader can assemble returned as partial rows of this many bytes each, or as a whole, the
    /// default. See [`RowBatch::continues`](stele_types::RowBatch::continues).
    pub fn set_partial_rows(&mut self, bytes: Option<usize>) {
        if !self.reader.partial_rows.is_within() {
            self.reader.set_partial_rows(bytes);
        }
    }

    /// Whether the last batch has ended within a row. It need not have cells of it: all cells of the row read so far may
    /// be held back or filtered out. Then the batch seems to have ended behind a row.
    pub fn is_within_row(&self) -> bool {
        self.reader.partial_rows.is_between()
    }

    /// For tests, which have only the real clock.
    #[cfg(test)]
    pub(crate) fn set_pinned(&mut self, pinned: Duration) {
        self.reader.partial_rows.pinned = pinned;
    }

    /// Goes on within a row, if the last batch has ended in one and it need not be begun again.
    pub(super) fn resume(&mut self) -> Result<bool> {
        if !self.reader.partial_rows.is_between() {
            return Ok(false);
        }
        self.reader.check_space_to_resume()?;
        let position = self.detached.as_ref().and_then(|place| place.take());
        self.states.0.clear();
        let Some(position) = position else {
            self.reader.partial_rows.restarts += 1;
            if self.reader.partial_rows.restarts > RESTARTS_MAX {
                self.ranges.clear();
                let detail = "a large row was taken too slowly for what it keeps the tablet from giving up";
                return Err(TabletError::Busy { detail });
            }
            return Ok(false);
        };
        self.states.0.push(position.state.clone());
        self.position = Some(position);
        self.holds_values = self.reader_holds || self.reader.partial_rows.holds_value();
        self.begin_probes();
        self.reader.resume();
        Ok(true)
    }

    /// Ends a partial row, once its cells have the values that the filter reads.
    pub(super) fn cut(&mut self) -> Result<Progress> {
        if self.reader.partial_row_needs_values() {
            return Ok(Progress::Blocked);
        }
        self.reader.cut(self.tablet.env())?;
        let position = self.position.as_mut().expect("a row that is cut has a position");
        position.at = At::Row;
        Ok(Progress::Batch)
    }
}
