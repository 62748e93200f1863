//! Reads one row after the other from its stored entries.
//!
//! The caller passes the entries of a row in key order, from any source; the cells that the read returns go to a
//! batch. Scans in both directions and reads of single rows use it.

use super::output::Filtering;
use super::partial_rows::PartialRows;
use super::scattered::{BYTES_PER_PROBE, Probes};
use super::sink::ReadSink;
use super::{BATCH_BYTES, Sampled};
use crate::error::{Result, TabletError};
use crate::resolve::{Resolver, Skip, StoredValue};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_filter::{CompiledFilter, FilterError};
use stele_types::key::{self, CellKind, KeySplitter};
use stele_types::{Cell, RowBatch, SeqNo, TableSchema, limits};

/// Bytes of a cell in addition to its own while its row is put together: capacity in a list that has just doubled, and
/// the allocation of a qualifier that no other cell shares.
pub(super) const CELL_COST: usize = size_of::<Cell>() + 40;

/// Bytes of a filter's copies of a cell that the size of a partial row takes into account, at first. It is enough for an
/// interleave of twenty members. Most filters with larger bounds test cells, and never come near them.
const COPIES_BYTES: usize = 64 * size_of::<Cell>();
/// The same at most: a single cell must never be too large for a partial row because of its copies.
const COPIES_BYTES_MAX: usize = BATCH_BYTES / 2;

/// Bytes of rows that a filter searches for one batch, counted once for each time it tries a pattern of values. That is
/// a few milliseconds of work, for which requests of the same event loop wait. A single row may be more.
const SCANNED_BYTES_MAX: usize = 4 << 20;
/// Entries that are read in a row before a pause: about a millisecond. Of a batch most are hidden where it takes more of them, as its
/// rows and bytes are limited.
const ENTRIES_BEFORE_PAUSE: u32 = 16 << 10;

/// The result of the end of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The row is in the batch.
    Row,
    /// Cells must have their values first ([`RowReader::needs_values`]); then [`RowReader::complete`] ends it.
    Values,
    /// It is too large for the reservation: a partial row is to be cut ([`super::At::Cut`]), and the row to be finished
    /// again.
    Piece,
}

/// The state of a read between and within rows.
pub(super) struct RowReader {
    pub(super) filter: Option<Arc<CompiledFilter>>,
    /// Everything stored, unresolved.
    pub(super) raw: bool,
    /// The filter does not read values, and drops them.
    keys_only: bool,
    /// The filter reads values.
    reads_values: bool,
    /// Bytes of a filter's copies of a cell that the size of a partial row takes into account. They are a guess: a filter
    /// that makes more needs a larger reservation, and from then on gets smaller partial rows.
    copies_bytes: usize,
    /// How often the filter searches the bytes of a row, about.
    probes_per_byte: usize,
    /// The random numbers that the filter has drawn in the row.
    draws: Vec<f64>,
    /// Bytes that the row being read may take.
    pub(super) reservation: usize,
    /// Bytes at which the row is checked: the same, or those of a partial row if that is less, or [`BYTES_PER_PROBE`]
    /// behind the last check for scattered values.
    pub(super) limit: usize,
    pub(super) probes: Probes,
    pub(super) partial_rows: PartialRows,
    resolver: Resolver,
    pub(super) sink: ReadSink,
    splitter: KeySplitter,
    /// The row read last was settled by its last entry's column, and a row that begins with a put in the same one may be taken by
    /// [`RowReader::begin_same_column`]. Never with a filter.
    same_column: bool,
    /// The filter lets the row in that is being read or was read last.
    is_admitted: bool,
    /// The row that was let in when it was given up: when it is begun again, nothing is drawn about it again.
    admitted: Sampled,
    /// Rows begun since the batch was taken.
    pub(super) rows_begun: usize,
    /// Bytes of rows in the batch. When that is as many as a batch may have the batch ends.
    pub(super) batch_bytes: usize,
    /// Bytes that the filter has searched since the batch was taken.
    scanned: usize,
    /// Entries that may be read before other requests of the event loop get their turn.
    entries_left: u32,
}

impl RowReader {
    pub(super) fn new(schema: Arc<TableSchema>, filter: Option<Arc<CompiledFilter>>, raw: bool) -> Self {
        let mut resolver = Resolver::new(schema.clone(), SeqNo::ZERO);
        if let Some(filter) = &filter {
            resolver.set_families_before(&filter.pushdown().families_before);
        }
        let filter = filter.filter(|f| !f.passes_all());
        let copies_bytes = filter.as_ref().map_or(0, |f| f.bytes_per_cell_max());
        RowReader {
            raw,
            copies_bytes: copies_bytes.min(COPIES_BYTES),
            probes_per_byte: 1 + filter.as_ref().map_or(0, |f| f.patterns_per_value()),
            draws: Vec::new(),
            reservation: usize::MAX,
            limit: BYTES_PER_PROBE,
            probes: Probes::default(),
            partial_rows: PartialRows::default(),
            keys_only: filter.as_ref().is_some_and(|f| f.pushdown().keys_only),
            reads_values: filter.as_ref().is_some_and(|f| f.reads_values()),
            resolver,
            sink: ReadSink::new(schema, filter.as_deref()),
            filter,
            splitter: KeySplitter::default(),
            same_column: false,
            is_admitted: false,
            admitted: Sampled::default(),
            rows_begun: 0,
            batch_bytes: 0,
            scanned: 0,
            entries_left: ENTRIES_BEFORE_PAUSE,
        }
    }

    /// How many bytes a row may take from now on: one that takes more is refused as [`TabletError::NeedsMemory`].
    pub(super) fn set_reservation(&mut self, reservation: usize) {
        self.reservation = reservation;
        self.set_limit();
    }

    /// To be called when either of its two inputs changes.
    pub(super) fn set_limit(&mut self) {
        self.limit = self.limit_max().min(BYTES_PER_PROBE);
    }

    /// Bytes at which the row, or a partial row of it, has to end.
    pub(super) fn limit_max(&self) -> usize {
        self.partial_rows.bytes.unwrap_or(usize::MAX).min(self.reservation)
    }

    /// The snapshot and the time as of which rows are read from now on.
    pub(super) fn set_time(&mut self, snapshot: SeqNo, now_micros: i64) {
        self.resolver.set_snapshot(snapshot);
        self.sink.set_now(now_micros);
    }

    /// The encoded row that is being read or was read last.
    #[inline]
    pub(super) fn row(&self) -> &[u8] {
        self.sink.row.encoded()
    }

    /// Rows in the batch so far.
    #[inline]
    fn batch_rows(&self) -> usize {
        self.sink.output.rows()
    }

    /// Whether the batch may be complete: [`RowReader::look`] says whether it is. At most `rows_max` rows with cells are wanted in
    /// it.
    #[inline]
    pub(super) fn is_full(&self, rows_max: u64) -> bool {
        self.batch_bytes >= BATCH_BYTES || self.rows_begun >= self.probes.rows || self.batch_rows() as u64 >= rows_max
    }

    /// Ends the batch and begins another.
    pub(super) fn take_batch(&mut self) -> RowBatch {
        self.rows_begun = 0;
        self.batch_bytes = 0;
        self.scanned = 0;
        self.entries_left = ENTRIES_BEFORE_PAUSE;
        self.begin_probes(0, Duration::ZERO);
        self.set_limit();
        (self.partial_rows.continues, self.partial_rows.unfinished) = (false, false);
        self.sink.batch_taken();
        self.sink.output.take_batch()
    }

    /// Forgets the row being read, but not that the filter lets it in: it may be begun again, with a larger reservation.
    /// If it were sampled again each time, a row would be rarer the larger it is.
    pub(super) fn abandon(&mut self) {
        if self.filter.is_some() && std::mem::take(&mut self.is_admitted) {
            self.admitted.row.clear();
            self.admitted.row.extend_from_slice(self.sink.row.encoded());
            self.admitted.draws = std::mem::take(&mut self.draws);
        }
        self.same_column = false;
        self.resolver.abandon_row();
        // Also where no partial row of it has ended: a cell may be set aside while the first one waits for values.
        self.partial_rows.abandon();
        self.sink.end_partial_rows();
    }

    /// The row that the filter lets in when it is begun again; gives up the one being read.
    pub(super) fn take_admitted(&mut self) -> Sampled {
        self.abandon();
        std::mem::take(&mut self.admitted)
    }

    /// Lets this row in, without asking chance.
    pub(super) fn set_admitted(&mut self, row: Sampled) {
        self.admitted = row;
    }

    /// Reserves memory in an empty batch.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.sink.output.reserve(rows, rows * self.row().len());
    }

    /// Reserves memory for one row in an empty batch: for exactly its key, which then can be shared without a copy.
    pub(super) fn reserve_one(&mut self, row: &[u8]) {
        self.sink.output.reserve(1, row.len());
    }

    /// Begins the row of `key`; whether the filter may let anything of it through. `None` when that is no cell key.
    #[inline]
    pub(super) fn begin(&mut self, key: &[u8], env: &Env) -> Option<bool> {
        let (row_end, is_plain) = key::measure_row_prefix(key)?;
        self.sink.row.set(key.get(..row_end)?, is_plain);
        Some(self.begin_here(env))
    }

    /// Begins the row with this encoded prefix, as [`RowReader::begin`] does with one that may be none; `is_plain` says that
    /// nothing in it is escaped.
    pub(super) fn begin_row(&mut self, prefix: &[u8], is_plain: bool, env: &Env) -> bool {
        self.sink.row.set(prefix, is_plain);
        self.begin_here(env)
    }

    /// Counts the row with this encoded prefix as read: there is nothing of it.
    pub(super) fn pass_row(&mut self, prefix: &[u8]) {
        self.same_column = false;
        self.is_admitted = false;
        self.sink.row.set(prefix, false);
        self.rows_begun += 1;
    }

    fn begin_here(&mut self, env: &Env) -> bool {
        self.same_column = false;
        self.rows_begun += 1;
        self.resolver.begin_row();
        self.sink.begin_row();
        let Some(filter) = &self.filter else {
            return true;
        };
        let row = &self.sink.row;
        self.draws.clear();
        if self.admitted.row == row.encoded() {
            self.draws.extend_from_slice(&self.admitted.draws);
            self.is_admitted = true;
        } else {
            let searched = {
                let key = row.decoded();
                self.is_admitted = filter.admits_row(&key, &mut rng(env));
                filter.key_bytes_searched(&key)
            };
            self.add_scanned(searched);
        }
        self.is_admitted
    }

    /// Whether [`RowReader::begin_same_column`] may say yes.
    #[inline]
    pub(super) fn is_same_column(&self) -> bool {
        self.same_column
    }

    /// Begins the row of this entry and takes the entry, if both are as they mostly are: a put in the column that the row
    /// before has ended in, which settles that column. Else nothing has been done. In place of [`RowReader::begin`] and
    /// [`RowReader::take`], which do the same in five times as many instructions. `row_end` and `is_plain` are as
    /// [`key::measure_row_prefix`] gives them.
    #[inline]
    pub(super) fn begin_same_column(
        &mut self,
        key: &[u8],
        row_end: usize,
        is_plain: bool,
        value: impl StoredValue,
    ) -> bool {
        if !self.same_column {
            return false;
        }
        let put = self.splitter.put_in_same_column(key, row_end);
        let (Some((timestamp, seq)), Some(row)) = (put, key.get(..row_end)) else {
            return false;
        };
        if !self.resolver.sees(seq) {
            return false;
        }
        self.sink.row.set(row, is_plain);
        self.rows_begun += 1;
        self.sink.begin_row();
        let skip = self.sink.take_in_same_column(timestamp, value);
        self.resolver.settled_in_same_column(timestamp, skip);
        true
    }

    /// Whether a key is of the row being read.
    #[inline]
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        // Most neighbours differ in the last byte before the terminator.
        let row = self.row();
        let last = row.len().saturating_sub(3);
        key.get(last) == row.get(last) && key.starts_with(row)
    }

    /// Counts an entry; whether a pause is due.
    #[inline]
    pub(super) fn is_pause_due(&mut self) -> bool {
        debug_assert!(self.entries_left > 0, "a pause that is due is taken");
        self.entries_left -= 1;
        if self.entries_left > 0 {
            return false;
        }
        self.entries_left = ENTRIES_BEFORE_PAUSE;
        true
    }

    /// Takes the next entry of the row and returns the entries that may be skipped behind it. `None` when the key is no
    /// cell key.
    #[inline]
    pub(super) fn take(&mut self, key: &[u8], value: impl StoredValue) -> Option<Skip> {
        debug_assert!(
            key.starts_with(self.sink.row.encoded()),
            "entries are of the row that is read"
        );
        let parts = self.splitter.split(key, self.sink.row.encoded().len())?;
        if self.raw {
            if self.resolver.sees(parts.seq) {
                self.sink.push_raw(key, parts, value.into_bytes());
            }
            return Some(Skip::Nothing);
        }
        let spared = self.keys_only && parts.kind.is_put();
        let skip = if spared {
            let mut parts = *parts;
            parts.kind = CellKind::Put;
            self.resolver.push(key, &parts, Bytes::new, &mut self.sink)
        } else {
            self.resolver.push(key, parts, value, &mut self.sink)
        };
        Some(skip)
    }

    /// The memory that the row, or the partial row of it that is being read, takes so far. A partial row includes a guess
    /// at the filter's copies, because less of the row can be read where there are many.
    #[inline]
    pub(super) fn cost(&self) -> usize {
        let cells = self.sink.cells().saturating_mul(self.cell_cost());
        self.sink.bytes().saturating_add(cells)
    }

    /// Bytes of a cell in addition to its own in this.
    #[inline]
    pub(super) fn cell_cost(&self) -> usize {
        match self.partial_rows.bytes {
            Some(_) => CELL_COST + self.copies_bytes,
            None => CELL_COST,
        }
    }

    /// The error of a filter about this many cells, whose own cost the filter does not know. If its copies took too much
    /// memory the next partial rows are smaller.
    pub(super) fn filter_error(&mut self, error: FilterError, cells: usize, own: usize) -> TabletError {
        let FilterError::NeedsMemory { bytes } = error else {
            return error.into();
        };
        if cells > 1 {
            self.copies_bytes = self.copies_bytes.saturating_mul(8).min(COPIES_BYTES_MAX);
        }
        TabletError::NeedsMemory {
            bytes: bytes.saturating_add(own),
        }
    }

    /// Whether the row can go on as it is; if not, [`RowReader::check_in_row`] says whether it can nevertheless, and
    /// [`RowReader::outgrown`] how else.
    #[inline]
    pub(super) fn fits(&self) -> bool {
        self.sink.bytes() <= limits::ROW_BYTES_MAX && self.cost() <= self.limit
    }

    /// A row that cannot be assembled within its limit is refused rather than cut.
    #[inline]
    pub(super) fn check_size(&self) -> Result<()> {
        let (bytes, cost) = (self.sink.bytes(), self.cost());
        if bytes <= limits::ROW_BYTES_MAX && cost <= self.reservation {
            return Ok(());
        }
        Err(match bytes <= limits::ROW_BYTES_MAX {
            true => TabletError::NeedsMemory { bytes: cost },
            false => self.too_large(),
        })
    }

    #[cold]
    pub(super) fn too_large(&self) -> TabletError {
        let start = self.row().get(..64).unwrap_or(self.row());
        TabletError::RowTooLarge {
            row_start: start.escape_ascii().to_string(),
            limit: limits::ROW_BYTES_MAX,
        }
    }

    /// Ends the row: the filter's output for its cells goes to the batch.
    #[inline]
    pub(super) fn finish(&mut self, env: &Env) -> Result<Finish> {
        debug_assert!(!self.partial_rows.is_between(), "a row ends within a batch");
        let may_be_same_column = self.filter.is_none() && !self.raw;
        self.same_column = may_be_same_column && self.resolver.is_settled_in(self.splitter.column());
        self.resolver.end_row(&mut self.sink);
        if self.cost() > self.reservation && self.partial_rows.bytes.is_some() {
            return Ok(Finish::Piece);
        }
        self.check_size()?;
        if self.sink.row_refers() && !self.needs_values().is_empty() {
            return Ok(Finish::Values);
        }
        self.complete(env)?;
        Ok(Finish::Row)
    }

    /// Ends a row of one entry, which [`RowReader::begin_same_column`] has taken.
    #[inline]
    pub(super) fn finish_same_column(&mut self, env: &Env) -> Result<()> {
        self.resolver.end_settled_row();
        self.check_size()?;
        self.complete(env)
    }

    /// The cells of the row that must have their values before it is complete.
    pub(super) fn needs_values(&mut self) -> &mut [Cell] {
        self.sink.output.needs_values(self.reads_values)
    }

    /// Whether a cell of the batch may still be without its value.
    pub(super) fn batch_refers(&self) -> bool {
        self.sink.batch_refers()
    }

    /// Ends the row, all cells of which have the values they need.
    #[inline]
    pub(super) fn complete(&mut self, env: &Env) -> Result<()> {
        if self.partial_rows.is_within() {
            return self.end_partial_rows(env);
        }
        if self.sink.cells() == 0 {
            return Ok(());
        }
        let left = match self.filter.clone() {
            None => self.sink.end_row(None)?,
            Some(filter) => self.end_filtered(&filter, env)?,
        };
        self.batch_bytes += left;
        if self.filter.is_some() {
            self.count_scanned();
        }
        // A filter may have made many cells of one whose value is still to come.
        if self.sink.row_refers() && left > limits::ROW_BYTES_MAX + self.row().len() {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Ends the row with the cells that the filter makes of it. Returns its weight.
    fn end_filtered(&mut self, filter: &CompiledFilter, env: &Env) -> Result<usize> {
        let own = self.cost();
        let (mut drawn, draws) = (0, &mut self.draws);
        let mut rng = || {
            let draw = draws.get(drawn).copied().unwrap_or_else(rng(env));
            drawn += 1;
            if drawn > draws.len() {
                draws.push(draw);
            }
            draw
        };
        let filtering = Filtering {
            filter,
            memory: self.reservation.saturating_sub(own),
            rng: &mut rng,
        };
        let left = self.sink.end_row(Some(filtering));
        left.map_err(|error| self.filter_error(error, self.sink.cells(), own))
    }

    /// Counts the row that the filter has searched. Where that was enough work for one batch the batch ends with it,
    /// however little has passed.
    fn count_scanned(&mut self) {
        let copies = self.sink.cells().saturating_mul(self.copies_bytes);
        let bytes = self
            .sink
            .bytes()
            .saturating_add(copies)
            .saturating_mul(self.probes_per_byte);
        self.add_scanned(bytes);
    }

    fn add_scanned(&mut self, bytes: usize) {
        self.scanned = self.scanned.saturating_add(bytes);
        if self.scanned >= SCANNED_BYTES_MAX {
            self.batch_bytes = self.batch_bytes.max(BATCH_BYTES);
        }
    }
}

impl RowReader {
    /// The cells of the batch.
    pub(super) fn batch_cells(&mut self) -> &mut [Cell] {
        self.sink.output.cells_mut()
    }
}

/// Uniform in [0, 1).
pub(super) fn rng(env: &Env) -> impl FnMut() -> f64 + '_ {
    || (env.random_u64() >> 11) as f64 / (1u64 << 53) as f64
}
