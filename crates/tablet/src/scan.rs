//! Reads rows of one tablet.
//!
//! A [`TabletScanner`] walks a set of row ranges, resolves each row as of a snapshot, applies the filter, and returns
//! batches. A row is always read at one snapshot; a scan as a whole is not. At each batch it moves on to the newest
//! state, so that a slow reader pins neither memtables nor obsolete files for long. Between two batches the scan is detached:
//! its position is [`Detached`], where the tablet frees it when the state changes. Only within a row that is read in [`partial_rows`]
//! the position is pinned for a time.

mod backward;
mod detached;
mod get;
mod output;
mod partial_rows;
mod row;
mod rows;
mod same_column;
mod scattered;
mod sink;

pub use get::PointRead;

use crate::error::{Result, TabletError};
use crate::held::{ReadOptions, Times};
use crate::merging::{MergingIterator, Source, Step};
use crate::readahead::{self, AheadShare};
use crate::resolve::Skip;
use crate::state::State;
use crate::tablet::Tablet;
use crate::values::file::ValueFile;
use crate::values::load::{self as values, ValueFiles};
use backward::Gathered;
use bytes::Bytes;
use detached::DetachedScan;
use row::{Finish, RowReader};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use stele_env::{trace, work};
use stele_filter::CompiledFilter;
use stele_types::key::{self, KeyParts};
use stele_types::{Cell, FileId, RowBatch, RowRange, RowSet, SeqNo, TableSchema, limits};

/// The rows, columns and versions to read.
#[derive(Clone)]
pub struct ScanSpec {
    /// Which rows; cut to the tablet's.
    pub rows: RowSet,
    /// Applied to every row.
    pub filter: Option<Arc<CompiledFilter>>,
    /// Descending rows.
    pub reversed: bool,
    /// Everything stored, unresolved.
    pub raw: bool,
    /// Rows with cells after which the scan ends; unbounded when absent. A batch that somebody cuts short afterwards has
    /// cost all of its megabyte.
    pub rows_limit: Option<u64>,
}

/// Bytes of cells after which a batch is handed out.
const BATCH_BYTES: usize = 1 << 20;
/// Rows after which a batch is handed out, and rows read without finding any after which an empty batch tells how far
/// the scan has come. It takes about a millisecond, for which requests of the same event loop wait.
const BATCH_ROWS: usize = 1024;
/// Time after which a batch is handed out between two rows, as far as it is. A filter may pass little of large rows, or nothing: a caller
/// learns how far the scan has come.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// Entries stepped over one by one before a skip turns into a seek: about the cost of one.
const STEPS_BEFORE_SEEK: u32 = 16;
/// Bytes of a key behind its timestamp.
const SEQ_AND_KIND_BYTES: usize = 9;
/// A scan in progress.
pub struct TabletScanner {
    tablet: Arc<Tablet>,
    spec: ScanSpec,
    /// Ranges not finished; the front one is being read. In scan order. Cut to the unread part when a batch ends.
    ranges: VecDeque<RowRange>,
    /// Those finished since the batch began, for one that begins again.
    finished: Vec<RowRange>,
    /// The open position within the front range; rebuilt when the tablet's state changes.
    position: Option<Position>,
    /// Of the row read last, while the next row to be read by itself has no position yet: its cursors are near it.
    row_before: Option<MergingIterator>,
    /// Ranges behind the front one whose missing blocks have been fetched.
    rows_fetched: usize,
    /// Where the position is between batches; made when the first one ends.
    detached: Option<Arc<DetachedScan>>,
    reader: RowReader,
    /// The states that the batch is made of: they hold the value files that its cells refer to.
    states: States,
    schema: Arc<TableSchema>,
    /// Batches returned; the first may be the only one, and reserves no more memory than it needs.
    batches: u64,
    /// See [`TabletScanner::blocks_read`].
    blocks_read: u64,
    /// The batch in the making, or the cell held back before it, has values that were loaded.
    holds_values: bool,
    /// So has the reader, of earlier batches.
    reader_holds: bool,
}

/// The sampling decisions of a scan about the row that it was in when it was given up.
#[derive(Debug, Default)]
pub struct Sampled {
    /// The row that its filter has let in, encoded; empty for none.
    row: Vec<u8>,
    /// The numbers that the filter has drawn since, in this order.
    draws: Vec<f64>,
}

/// States of the tablet, in which value files are searched.
#[derive(Default)]
struct States(Vec<Arc<State>>);

impl ValueFiles for States {
    fn value_file(&self, file: FileId) -> Option<Arc<ValueFile>> {
        self.0.iter().rev().find_map(|state| state.value_file(file))
    }
}

async fn load_values(cells: &mut [Cell], states: &States, tablet: &Tablet, holds_values: bool) -> Result<()> {
    let files = &tablet.context.files;
    let memory = (files.cache(), files.value_memory());
    values::load(cells, states, memory, tablet.env(), holds_values).await
}

pub(crate) struct Position {
    state: Arc<State>,
    snapshot: SeqNo,
    merge: MergingIterator,
    /// Held for the readahead of the merge.
    _ahead: AheadShare,
    /// Encoded bounds of the front range as it was when the position was opened.
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Rows are read in descending order.
    backward: bool,
    /// The state has values in files of their own.
    refers: bool,
    at: At,
    /// Entries of the row being read, on the way backward.
    gathered: Gathered,
    /// Entries stepped over since the last that counted.
    steps: u32,
    /// Other requests get their turn before the row is read on.
    pauses: bool,
}

/// Where a position is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Between rows: the merge is on the next row's first entry, or on its last on the way backward.
    Boundary,
    /// Within a row, on the way forward.
    Row,
    /// Within a row, on the way backward.
    Gathering,
    /// At the end of a row, cells of which must have their values first.
    Values,
    /// Within a row, where a partial row of it ends.
    Cut,
}

/// How far a scan has come without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The batch is complete, or everything has been read.
    Batch,
    /// The merge must load first, or values must be fetched.
    Blocked,
    /// Nothing has to be waited for, but many entries have been read without a pause.
    Paused,
}

impl TabletScanner {
    /// A scan over the tablet's part of `spec.rows`.
    pub fn new(tablet: Arc<Tablet>, mut spec: ScanSpec) -> Self {
        let schema = tablet.schema();
        let rows = std::mem::replace(&mut spec.rows, RowSet::new(Vec::new()));
        let mut ranges: VecDeque<RowRange> = rows.cut_to(tablet.range()).into_ranges().into();
        if let Some(filter) = &spec.filter {
            let pushdown = filter.pushdown();
            if pushdown.no_cells {
                ranges.clear();
            }
            if !pushdown.row_prefix.is_empty() {
                let prefix = RowRange::prefix(&pushdown.row_prefix);
                ranges = ranges
                    .iter()
                    .map(|r| r.intersect(&prefix))
                    .filter(|r| !r.is_empty())
                    .collect();
            }
        }
        if spec.reversed {
            ranges.make_contiguous().reverse();
        }
        let reader = RowReader::new(schema.clone(), spec.filter.clone(), spec.raw);
        TabletScanner {
            reader,
            tablet,
            spec,
            ranges,
            finished: Vec::new(),
            position: None,
            row_before: None,
            rows_fetched: 0,
            detached: None,
            states: States::default(),
            schema,
            batches: 0,
            blocks_read: 0,
            holds_values: false,
            reader_holds: false,
        }
    }

    /// Bytes that a batch may take from now on, filters and unfinished lists included. Two megabytes are always enough
    /// for a batch without large rows. Without a call only the number of rows is limited.
    pub fn set_reservation(&mut self, bytes: usize) {
        self.reader
            .set_reservation(bytes.saturating_sub(BATCH_BYTES).max(BATCH_BYTES));
    }

    /// Whether the reader keeps values of earlier batches until it has read everything. From the next batch on no load
    /// waits for the memory reservation of these.
    pub fn set_reader_holds(&mut self, holds: bool) {
        self.reader_holds = holds;
    }

    /// Gives the scan up. Another one with the same filter may begin the row again that it was in: nothing is drawn about a row
    /// twice.
    pub fn into_sampled(mut self) -> Sampled {
        self.reader.take_admitted()
    }

    /// The sampling decisions of an earlier scan with the same filter. Before the first batch.
    pub fn set_sampled(&mut self, sampled: Sampled) {
        self.reader.set_admitted(sampled);
    }

    /// Blocks of sstables that the scan has waited for. A block and the part of the index above it count once.
    pub fn blocks_read(&self) -> u64 {
        self.blocks_read
    }

    /// The tablet being read.
    pub fn tablet(&self) -> &Arc<Tablet> {
        &self.tablet
    }

    /// The next rows, `None` when all have been read. Should the future be dropped, or fail, the next call begins the
    /// same batch again: after [`TabletError::NeedsMemory`] with a larger reservation, see
    /// [`TabletScanner::set_reservation`].
    pub async fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        if !self.resume()? && !self.begin_batch() {
            return Ok(None);
        }
        loop {
            match self.run()? {
                Progress::Batch => break,
                Progress::Blocked => self.load().await?,
                Progress::Paused => self.tablet.env().yield_now().await,
            }
        }
        if self.reader.batch_refers() {
            debug_assert!(
                !self.states.0.is_empty(),
                "states are held for value files of the batch"
            );
            let cells = self.reader.batch_cells();
            load_values(cells, &self.states, &self.tablet, self.holds_values).await?;
        }
        let batch = self.end_batch();
        self.park();
        Ok(Some(batch))
    }

    /// Begins a batch with the next row; false when there is none.
    fn begin_batch(&mut self) -> bool {
        // Ranges that a call which was dropped, or failed, had passed.
        while let Some(range) = self.finished.pop() {
            self.ranges.push_front(range);
        }
        if self.ranges.is_empty() {
            return false;
        }
        debug_assert!(self.finished.is_empty(), "finished ranges were put back");
        self.position = self.detached.as_ref().and_then(|place| place.take());
        // The row in which a call was dropped.
        self.reader.abandon();
        drop(self.reader.take_batch());
        self.holds_values = self.reader_holds;
        self.refresh();
        self.begin_probes();
        if self.batches > 0 {
            self.reader.reserve(BATCH_ROWS);
        }
        true
    }

    /// Frees the rows that a failed call has read.
    pub fn drop_batch(&mut self) {
        // It has not begun: there was no memory for its first bytes.
        if self.reader.partial_rows.is_between() {
            return;
        }
        self.position = None;
        self.row_before = None;
        self.reader.abandon();
        drop(self.reader.take_batch());
        self.states.0.clear();
    }

    /// Takes the batch, and cuts the ranges to the part behind it.
    fn end_batch(&mut self) -> RowBatch {
        let row = self.pass_batch();
        let (continues, unfinished) = (self.reader.partial_rows.continues, self.reader.partial_rows.unfinished);
        let mut batch = self.reader.take_batch();
        self.states.0.clear();
        self.batches += 1;
        (batch.continues, batch.unfinished) = (continues, unfinished);
        batch.scanned_through = match self.reader.partial_rows.is_between() {
            // The row that it is in is not scanned through.
            true => complete_row(&batch),
            false => row,
        };
        self.count_rows(batch.complete_rows());
        batch
    }

    /// Fetches the blocks or values that a blocked read waits for.
    async fn load(&mut self) -> Result<()> {
        let position = self.position.as_mut().expect("a scan that waits has a position");
        let is_cut = position.at == At::Cut && position.merge.status() != Step::Pending;
        if !is_cut && position.at != At::Values {
            return self.load_rows().await;
        }
        let cells = self.reader.needs_values();
        load_values(cells, &self.states, &self.tablet, self.holds_values).await?;
        self.holds_values = true;
        if is_cut {
            return Ok(());
        }
        self.reader.complete(self.tablet.env())?;
        position.at = At::Boundary;
        if position.backward {
            position.merge.seek_before(self.reader.row())?;
        }
        Ok(())
    }

    /// Reads rows until the batch is complete or something must be loaded.
    fn run(&mut self) -> Result<Progress> {
        loop {
            if self.position.is_none() {
                if self.read_listed()? {
                    return Ok(Progress::Batch);
                }
                if self.position.is_none() && !self.open()? {
                    return Ok(Progress::Batch);
                }
            }
            let Some(position) = &mut self.position else {
                return Ok(Progress::Batch);
            };
            if position.merge.status() == Step::Pending {
                return Ok(Progress::Blocked);
            }
            if std::mem::take(&mut position.pauses) {
                return Ok(Progress::Paused);
            }
            match position.at {
                At::Boundary => {
                    let rows_max = self.spec.rows_limit.unwrap_or(u64::MAX);
                    if self.reader.is_full(rows_max) {
                        let (passed, now) = (position.merge.passed_bytes(), self.tablet.env().now());
                        if self.reader.look(rows_max, passed, now) {
                            return Ok(Progress::Batch);
                        }
                    }
                    if self.reader.is_same_column()
                        && position.read_same_column(&mut self.reader, &self.tablet, rows_max)?
                    {
                        continue;
                    }
                    if !position.has_row() {
                        // A row by itself of which there is nothing counts as read, or a long list of such rows would be
                        // read without a pause. The position may have been opened for more than is left.
                        let range = self.ranges.front().filter(|range| range.as_single().is_some());
                        if let Some(row) = range.map(|range| key::row_prefix(&range.start))
                            && self.reader.row() != row
                        {
                            self.reader.pass_row(&row);
                        }
                        self.finish_range();
                    } else if self.spec.reversed {
                        position.begin_row_backward(&mut self.reader, &self.tablet)?;
                    } else {
                        position.begin_row(&mut self.reader, &self.tablet)?;
                    }
                }
                At::Row => position.read_row(&mut self.reader, &self.tablet)?,
                At::Gathering => position.gather_row(&mut self.reader, &self.tablet)?,
                At::Values => return Ok(Progress::Blocked),
                At::Cut => return self.cut(),
            }
        }
    }

    /// Cuts the ranges to the part behind the batch; the last row that was read, if one was.
    fn pass_batch(&mut self) -> Option<Bytes> {
        let mut row = None;
        if self.reader.rows_begun > 0 {
            row = key::decode_row(self.reader.row()).map(|row| Bytes::copy_from_slice(&row));
        }
        if let Some(row) = &row {
            match self.reader.partial_rows.is_between() {
                true => self.pass_to(row),
                false => self.pass(row),
            }
        }
        self.finished.clear();
        // It would pin files while nobody reads.
        self.row_before = None;
        row
    }

    /// Counts a batch's rows against the limit.
    fn count_rows(&mut self, rows: usize) {
        if let Some(left) = &mut self.spec.rows_limit {
            *left = left.saturating_sub(rows as u64);
            if *left == 0 {
                self.ranges.clear();
                self.position = None;
            }
        }
    }

    /// Moves to the newest state and snapshot, at a row boundary. That takes a new position: cursors that stand where the
    /// old snapshot left them may have passed entries of a row that are visible in the new one.
    fn refresh(&mut self) {
        let (generation, visible) = (self.tablet.generation(), self.tablet.visible());
        let current = |p: &Position| p.state.generation == generation && p.snapshot == visible && p.at == At::Boundary;
        if !self.position.as_ref().is_some_and(current) {
            self.position = None;
        }
        self.states.0.clear();
        self.states.0.extend(self.position.as_ref().map(|p| p.state.clone()));
        self.reader.set_time(visible, self.tablet.wall_micros());
    }

    /// The blocks passed before are no longer in the way of the batch that begins.
    fn begin_probes(&mut self) {
        let passed = self
            .position
            .as_ref()
            .map_or(0, |position| position.merge.passed_bytes());
        self.reader.begin_probes(passed, self.tablet.env().now());
    }

    /// Opens a position at the beginning of the front range; false when there is none.
    fn open(&mut self) -> Result<bool> {
        let Some(range) = self.ranges.front() else {
            return Ok(false);
        };
        let range = range.clone();
        let (state, snapshot) = self.move_on();
        let lower = key::row_prefix(&range.start);
        let single = range.as_single().is_some();
        let upper = match &range.end {
            // No row but the one is between the two, and point reads pass this bound.
            Some(_) if single => Some(key::row_prefix_end(&lower)),
            end => end.as_ref().map(|end| key::row_prefix(end)),
        };
        debug_assert!(self.position.is_none(), "a scan has one position");
        debug_assert!(
            upper.as_ref().is_none_or(|upper| lower < *upper),
            "a range that is opened has rows"
        );
        self.row_before = None;
        let (merge, ahead) = self.seek_range(&state, &lower, upper.as_deref(), single)?;
        self.position = Some(Position {
            refers: state.has_values_apart(),
            state,
            snapshot,
            merge,
            _ahead: ahead,
            lower,
            upper,
            backward: self.spec.reversed,
            at: At::Boundary,
            gathered: Gathered::default(),
            steps: 0,
            pauses: false,
        });
        Ok(true)
    }

    /// The newest state, and a snapshot of it, which rows are read as of from now on.
    fn move_on(&mut self) -> (Arc<State>, SeqNo) {
        // The state first, then the snapshot: everything acknowledged before is in that state.
        let state = self.tablet.state();
        let snapshot = self.tablet.visible();
        self.reader.set_time(snapshot, self.tablet.wall_micros());
        work::note(|work| state.note_sources(work));
        if !self.states.0.last().is_some_and(|last| Arc::ptr_eq(last, &state)) {
            self.states.0.push(state.clone());
        }
        (state, snapshot)
    }

    /// The read-ahead share for the runs among these sources, which have not moved yet. Runs that the range, the
    /// families or the times of the scan leave out are not among them, so they take no share from other scans.
    fn share_of_ahead(&self, sources: &mut [Source]) -> AheadShare {
        let runs = sources.iter().filter(|source| source.reads_ahead()).count();
        if runs == 0 {
            return AheadShare::none();
        }
        let ahead = self.tablet.context.files.scan_ahead().share(runs);
        sources
            .iter_mut()
            .for_each(|source| source.limit_readahead(ahead.run_bytes()));
        ahead
    }

    /// A view of a range, at its first entry, or at its last on the way backward; and its read-ahead share.
    fn seek_range(
        &self,
        state: &State,
        lower: &[u8],
        upper: Option<&[u8]>,
        single: bool,
    ) -> Result<(MergingIterator, AheadShare)> {
        let _planning = trace::lengthy("plan");
        let options = ReadOptions {
            fill_cache: true,
            readahead_bytes: if single { 0 } else { readahead::RUN_BYTES },
            single_row: single && !self.spec.reversed,
            times: match self.spec.raw {
                true => Times::ALL,
                false => Times::of(self.spec.filter.as_deref(), &self.schema),
            },
        };
        // An empty start bounds nothing: the first row's prefix is `00 01`, and no key sorts below it.
        let row = single.then_some(lower);
        let filter = self.spec.filter.as_deref().filter(|_| !self.spec.raw);
        let mut sources = Vec::new();
        state.add_sources(filter, lower, upper, row, options, &mut sources);
        let ahead = match single {
            true => AheadShare::none(),
            false => self.share_of_ahead(&mut sources),
        };
        let mut merge = MergingIterator::new(sources);
        if self.spec.reversed {
            seek_to_end(&mut merge, upper)?;
        } else {
            merge.seek(lower)?;
        }
        Ok((merge, ahead))
    }

    fn finish_range(&mut self) {
        let range = self.ranges.pop_front();
        self.rows_fetched = self.rows_fetched.saturating_sub(1);
        // Cursors of longer ranges read ahead, which a row by itself has no use for.
        let was_row = range.as_ref().is_some_and(|range| range.as_single().is_some());
        let position = self.position.take();
        if let Some(position) = position.as_ref().filter(|_| !was_row) {
            self.reader.leave_merge(position.merge.passed_bytes());
        }
        self.row_before = position.filter(|_| was_row).map(|position| position.merge);
        self.finished.extend(range);
    }

    /// Notes that the rows before this one have been read, and it has not.
    fn pass_to(&mut self, row: &Bytes) {
        if let Some(range) = self.ranges.front_mut().filter(|range| range.contains(row)) {
            if self.spec.reversed {
                range.end = Some(stele_types::range::successor(row));
            } else {
                range.start = row.clone();
            }
        }
    }

    /// Notes that rows have been read up to this one, for positions opened later.
    fn pass(&mut self, row: &Bytes) {
        // The row is in no range when the one that it was in is finished.
        let Some(range) = self.ranges.front_mut().filter(|range| range.contains(row)) else {
            return;
        };
        if self.spec.reversed {
            range.end = Some(row.clone());
        } else {
            range.start = stele_types::range::successor(row);
        }
        if range.is_empty() {
            self.finish_range();
        }
    }
}

/// The last row that the batch has all of.
fn complete_row(batch: &RowBatch) -> Option<Bytes> {
    let (row, _) = batch.rows().nth(batch.complete_rows().checked_sub(1)?)?;
    Some(Bytes::copy_from_slice(row))
}

/// To the last key below `upper`, or to the last of all.
fn seek_to_end(merge: &mut MergingIterator, upper: Option<&[u8]>) -> Result<Step> {
    match upper {
        Some(upper) => merge.seek_before(upper),
        // Every encoded row has a byte below FF at its end, so no key sorts above a run of FFs longer than any row.
        None => merge.seek_before(&[0xff; 2 * limits::ROW_KEY_BYTES_MAX + 2]),
    }
}

impl Position {
    /// Whether the merge is on a row of the range.
    #[inline]
    fn has_row(&self) -> bool {
        let key = self.merge.key();
        if self.backward {
            !key.is_empty() && key >= &self.lower[..]
        } else {
            !key.is_empty() && self.upper.as_deref().is_none_or(|upper| key < upper)
        }
    }

    /// Begins the row the merge is on, or leaves it behind when the filter wants nothing of it.
    #[inline]
    fn begin_row(&mut self, reader: &mut RowReader, tablet: &Tablet) -> Result<()> {
        if reader
            .begin(self.merge.key(), tablet.env())
            .ok_or_else(|| malformed(tablet))?
        {
            self.at = At::Row;
            self.steps = 0;
            return self.read_row(reader, tablet);
        }
        self.merge.skip_to(&key::row_prefix_end(reader.row()))?;
        Ok(())
    }

    /// Reads on in the row; at its end the position is at a boundary.
    #[inline]
    fn read_row(&mut self, reader: &mut RowReader, tablet: &Tablet) -> Result<()> {
        match read_forward(&mut self.merge, reader, &mut self.steps).ok_or_else(|| malformed(tablet))?? {
            Forward::Pending => return Ok(()),
            Forward::Paused => {
                self.pauses = true;
                return Ok(());
            }
            Forward::Piece => {
                self.at = At::Cut;
                return Ok(());
            }
            Forward::End => {}
        }
        match reader.finish(tablet.env())? {
            Finish::Row => self.at = At::Boundary,
            Finish::Values => {
                self.at = At::Values;
                return Ok(());
            }
            Finish::Piece => {
                self.at = At::Cut;
                return Ok(());
            }
        }
        if self.backward {
            self.merge.seek_before(reader.row())?;
        }
        Ok(())
    }
}

/// How far the reader has come in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forward {
    /// To its end.
    End,
    /// The merge must load first.
    Pending,
    /// To where other requests get their turn.
    Paused,
    /// To where a partial row of it ends. Perhaps the merge must load first as well.
    Piece,
}

/// Gives the reader the entries of its row, from the one the merge is on. `None` when a key is no cell key.
#[inline]
fn read_forward(merge: &mut MergingIterator, reader: &mut RowReader, steps: &mut u32) -> Option<Result<Forward>> {
    let mut step = merge.status();
    loop {
        match step {
            Step::Ready => {}
            Step::Pending => return Some(Ok(Forward::Pending)),
            Step::End => return Some(Ok(Forward::End)),
        }
        let key = merge.key();
        if !reader.holds(key) {
            return Some(Ok(Forward::End));
        }
        let skip = reader.take(key, merge.stored_value())?;
        if !reader.fits() && !reader.check_in_row(merge.passed_bytes()) {
            *steps = 0;
            let went_on = reader.outgrown().and_then(|()| merge.advance());
            return Some(went_on.map(|_| Forward::Piece));
        }
        *steps = if skip == Skip::Nothing { 0 } else { *steps + 1 };
        let target = if *steps > STEPS_BEFORE_SEEK {
            skip_target(key, reader.row().len(), skip)
        } else {
            None
        };
        let moved = match target {
            Some(target) => {
                *steps = 0;
                merge.skip_to(&target)
            }
            None => merge.advance(),
        };
        step = match moved {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        if reader.is_pause_due() && step == Step::Ready {
            return Some(Ok(Forward::Paused));
        }
    }
}

#[cold]
fn malformed(tablet: &Tablet) -> TabletError {
    TabletError::Corruption {
        path: Arc::from(format!("tablet {}", tablet.id())),
        detail: "a stored key is not a cell key".to_owned(),
    }
}

/// The first key behind the skipped part.
fn skip_target(key: &[u8], row_end: usize, skip: Skip) -> Option<Vec<u8>> {
    let parts = KeyParts::parse_after_row(key, row_end)?;
    let family_end = parts.qualifier_start.checked_sub(1)?;
    let end = match skip {
        Skip::Nothing => return None,
        Skip::Row => return Some(key::row_prefix_end(&key[..parts.row_end])),
        // Behind every sequence number and kind.
        Skip::Version => {
            let mut target = key.get(..key.len().checked_sub(SEQ_AND_KIND_BYTES)?)?.to_vec();
            target.extend_from_slice(&[0xff; SEQ_AND_KIND_BYTES]);
            return Some(target);
        }
        // Level bytes are 00 and 01, so 02 is behind both.
        Skip::Family => key.get(..family_end)?,
        Skip::Column => key.get(..parts.qualifier_end)?,
    };
    let mut target = end.to_vec();
    target.push(0x02);
    Some(target)
}
