//! Copies values that pin more memory than they have bytes.
//!
//! A value that is read from a file is a slice of its block, and pins all of it. Where most of a block goes into a batch that
//! costs nothing and saves a copy. Where a filter or a rule passes a few bytes of each block, or distant rows are requested,
//! a batch of half a megabyte would pin a hundred, which no account counts. So every now and then the bytes of the blocks that
//! have been passed are compared with the cells that have come of them, whose values are copied when they are few. So are the
//! names of their columns, each of which pins others that it was copied together with (`sink`).
//!
//! Invariant: the values and the names of a batch pin a bounded amount of memory. The bound is [`KEPT_TIMES_MAX`] times
//! the weight of its cells, in addition to [`SLACK_BYTES`] and the blocks passed since the last check. It is a quarter
//! more where blocks are in scratch buffers, which may be that much longer.

use super::output::Output;
use super::row::RowReader;
use super::{BATCH_BYTES, BATCH_ROWS, BATCH_TIME};
use bytes::Bytes;
use std::time::Duration;
use stele_types::{Cell, limits};

/// Rows between two checks.
pub(super) const ROWS_PER_CHECK: usize = 64;
/// Bytes between two checks within a row, counted as for its reservation: those of some four hundred small cells.
pub(super) const BYTES_PER_PROBE: usize = 64 << 10;
/// Passed bytes of blocks below which the cells are not checked.
const SLACK_BYTES: u64 = 256 << 10;
/// The memory that values may pin, as a multiple of the weight of their cells. Copying that few bytes costs hardly
/// anything in comparison with reading the blocks.
const KEPT_TIMES_MAX: u64 = 4;

/// When a read is checked for scattered values, and the results of earlier checks.
#[derive(Default)]
pub(super) struct Probes {
    /// Rows begun in the batch at which it is time.
    pub(super) rows: usize,
    whole_rows: Probe,
    /// Within the row being read: its cells are checked again when it has ended, because a filter may leave few of them.
    in_row: Probe,
    /// Bytes of blocks that merges have passed that are no more.
    passed_before: u64,
    /// When the batch began.
    began: Duration,
}

/// How far the last check has come.
#[derive(Clone, Copy, Default)]
struct Probe {
    /// Of the batch.
    cells: usize,
    /// Bytes of blocks passed.
    passed: u64,
}

impl Probe {
    /// Checks the cells added since the last check, if it is worth it. `passed` bytes of blocks have been passed by now.
    fn again(&mut self, output: &mut Output, passed: u64) {
        let bytes = passed.saturating_sub(self.passed);
        if bytes >= SLACK_BYTES {
            self.cells = output.copy_scattered(self.cells, bytes / KEPT_TIMES_MAX);
            self.passed = passed;
        }
    }
}

impl RowReader {
    /// A batch begins now; the merging iterator has passed this many bytes of blocks before.
    pub(super) fn begin_probes(&mut self, passed: u64, now: Duration) {
        let look = Probe { cells: 0, passed };
        self.probes = Probes {
            rows: 0,
            whole_rows: look,
            in_row: look,
            passed_before: 0,
            began: now,
        };
    }

    /// A merging iterator that has passed this many bytes of blocks is no more.
    pub(super) fn leave_merge(&mut self, passed: u64) {
        self.probes.passed_before += passed;
    }

    /// Checks for scattered values between two rows. Returns whether no more rows fit into the batch, which is to have
    /// at most `rows_max` rows with cells, or whether it has taken long enough. The merging iterator has `passed` this many bytes of blocks.
    pub(super) fn look(&mut self, rows_max: u64, passed: u64, now: Duration) -> bool {
        let passed = passed + self.probes.passed_before;
        self.probes.whole_rows.again(&mut self.sink.output, passed);
        self.probes.in_row = self.probes.whole_rows;
        self.probes.rows = (self.rows_begun + ROWS_PER_CHECK).min(BATCH_ROWS);
        self.set_limit();
        let is_late = self.rows_begun > 0 && now.saturating_sub(self.probes.began) >= BATCH_TIME;
        is_late
            || self.batch_bytes >= BATCH_BYTES
            || self.rows_begun >= BATCH_ROWS
            || self.sink.output.rows() as u64 >= rows_max
    }

    /// The same within a row that has come to its limit; whether it can go on nevertheless.
    #[cold]
    pub(super) fn check_in_row(&mut self, passed: u64) -> bool {
        let (cost, limit_max) = (self.cost(), self.limit_max());
        if cost > limit_max || self.sink.bytes() > limits::ROW_BYTES_MAX {
            return false;
        }
        let passed = passed + self.probes.passed_before;
        self.probes.in_row.again(&mut self.sink.output, passed);
        // Again when the row has ended.
        self.probes.rows = 0;
        self.limit = cost.saturating_add(BYTES_PER_PROBE).min(limit_max);
        true
    }
}

/// Copies the values and the columns' names of cells that weigh less than `bytes` together.
pub(super) fn copy_if_below(cells: &mut [Cell], bytes: u64) {
    let weight = |cell: &Cell| cell.weight() as u64;
    if cells.iter().map(weight).sum::<u64>() < bytes {
        for cell in cells {
            // That of one in a value file is a reference, which stands in a block as well.
            cell.value = Bytes::copy_from_slice(&cell.value);
            cell.qualifier = Bytes::copy_from_slice(&cell.qualifier);
        }
    }
}
