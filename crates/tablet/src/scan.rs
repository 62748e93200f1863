//! Reads rows of one tablet.
//!
//! A [`TabletScanner`] walks a set of row ranges, resolves each row as of a snapshot, applies the filter, and hands out
//! batches. A row is always read at one snapshot; a scan as a whole is not: at each batch it moves on to the newest
//! state, so that a slow reader pins neither memtables nor obsolete files for long. One that does not come back for the
//! next batch pins none at all: its position is [`Parked`] meanwhile, where the tablet takes it when its state changes.

mod sink;

use crate::error::{Result, TabletError};
use crate::merge::{Merge, Step};
use crate::resolve::{Resolver, Skip};
use crate::state::{ReadOptions, State};
use crate::tablet::Tablet;
use bytes::Bytes;
use parking_lot::Mutex;
use sink::{RawRow, ReadSink};
use std::collections::VecDeque;
use std::sync::Arc;
use stele_filter::{CompiledFilter, Pushdown};
use stele_types::key::{self, KeyParts};
use stele_types::{RowBatch, RowRange, RowSet, SeqNo, TableSchema, limits};

/// What to read.
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
/// Rows after which a batch is handed out, and rows looked at without finding any after which an empty batch tells how
/// far the scan has come.
const BATCH_ROWS: usize = 4096;
/// Entries stepped over one by one before a skip turns into a seek: about the cost of one.
const STEPS_BEFORE_SEEK: u32 = 16;
/// Bytes fetched ahead by scans of more than one row.
const READAHEAD_BYTES: usize = 256 << 10;

/// A scan in progress.
pub struct TabletScanner {
    tablet: Arc<Tablet>,
    spec: ScanSpec,
    pushdown: Arc<Pushdown>,
    /// Ranges not finished; the front one is being read. In scan order.
    ranges: VecDeque<RowRange>,
    /// The open position within the front range; rebuilt when the tablet's state changes.
    position: Option<Position>,
    /// Where the position is between batches; made when the first one ends.
    parked: Option<Arc<Parked>>,
    resolver: Resolver,
    sink: ReadSink,
    schema: Arc<TableSchema>,
}

/// The position of a scan whose reader has a batch and has not asked for the next.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Option<Position>>);

impl Parked {
    pub(crate) fn take(&self) -> Option<Position> {
        self.0.lock().take()
    }
}

pub(crate) struct Position {
    state: Arc<State>,
    snapshot: SeqNo,
    merge: Merge,
    /// Encoded bounds of the front range.
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl TabletScanner {
    /// A scan over the tablet's part of `spec.rows`.
    pub fn new(tablet: Arc<Tablet>, spec: ScanSpec) -> Self {
        let schema = tablet.schema();
        let pushdown = Arc::new(spec.filter.as_ref().map(|f| f.pushdown().clone()).unwrap_or_default());
        let mut ranges: VecDeque<RowRange> = spec.rows.intersect(tablet.range()).ranges().to_vec().into();
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
        if spec.reversed {
            ranges.make_contiguous().reverse();
        }
        let sink = ReadSink::new(schema.clone(), pushdown.clone(), tablet.wall_micros());
        TabletScanner {
            resolver: Resolver::new(schema.clone(), SeqNo::ZERO),
            tablet,
            spec,
            pushdown,
            ranges,
            position: None,
            parked: None,
            sink,
            schema,
        }
    }

    /// The tablet being read.
    pub fn tablet(&self) -> &Arc<Tablet> {
        &self.tablet
    }

    /// The next rows, `None` when all have been read.
    pub async fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        if self.ranges.is_empty() {
            return Ok(None);
        }
        self.position = self.parked.as_ref().and_then(|place| place.take());
        self.refresh();
        let batch = self.fill_batch().await;
        self.park();
        batch.map(Some)
    }

    async fn fill_batch(&mut self) -> Result<RowBatch> {
        let mut batch = RowBatch::default();
        let (mut bytes, mut looked_at) = (0, 0);
        let rows_max = self.spec.rows_limit.unwrap_or(u64::MAX);
        while bytes < BATCH_BYTES && looked_at < BATCH_ROWS && (batch.len() as u64) < rows_max {
            let Some(row) = self.next_row_key().await? else {
                if self.ranges.is_empty() {
                    break;
                }
                continue;
            };
            looked_at += 1;
            bytes += self.read_row(&row, &mut batch).await?;
            self.pass(&row);
            batch.scanned_through = Some(row);
        }
        if let Some(left) = &mut self.spec.rows_limit {
            *left -= batch.len() as u64;
            if *left == 0 {
                self.ranges.clear();
                self.position = None;
            }
        }
        Ok(batch)
    }

    /// Leaves the position where the tablet can take it.
    fn park(&mut self) {
        let Some(position) = self.position.take() else { return };
        let generation = position.state.generation;
        let tablet = &self.tablet;
        let place = self.parked.get_or_insert_with(|| {
            let place = Arc::<Parked>::default();
            tablet.register_parked(&place);
            place
        });
        *place.0.lock() = Some(position);
        // A change of state before that has not found it there.
        if tablet.generation() != generation || tablet.check_open().is_err() {
            drop(place.take());
        }
    }

    /// Moves to the newest state and snapshot, at a row boundary. That takes a new position: cursors that stand where
    /// the old snapshot left them may have passed a part of what the new one shows of a row.
    fn refresh(&mut self) {
        let (generation, visible) = (self.tablet.generation(), self.tablet.visible());
        let current = |p: &Position| p.state.generation == generation && p.snapshot == visible;
        if !self.position.as_ref().is_some_and(current) {
            self.position = None;
        }
        self.sink.set_now(self.tablet.wall_micros());
    }

    fn open(&mut self, range: &RowRange) -> Result<Step> {
        // The state first, then the snapshot: everything acknowledged before is in that state.
        let state = self.tablet.state();
        let snapshot = self.tablet.visible();
        self.resolver.set_snapshot(snapshot);
        let lower = key::row_prefix(&range.start);
        let upper = range.end.as_ref().map(|end| key::row_prefix(end));
        let single = range.as_single().is_some();
        let families = self.pushdown.families();
        let wanted = |group| {
            families
                .as_ref()
                .is_none_or(|f| f.iter().any(|f| self.schema.group_of(*f) == group))
                || self.spec.raw
        };
        let options = ReadOptions {
            fill_cache: true,
            readahead_bytes: if single { 0 } else { READAHEAD_BYTES },
        };
        // An empty start bounds nothing: the first row's prefix is `00 01`, and no key sorts below it.
        let row = single.then_some(&lower[..]);
        let mut merge = Merge::new(state.sources(wanted, &lower, upper.as_deref(), row, options));
        let step = if self.spec.reversed {
            Step::Ready
        } else {
            merge.seek(&lower)?
        };
        self.position = Some(Position {
            state,
            snapshot,
            merge,
            lower,
            upper,
        });
        Ok(step)
    }

    /// The next row of the front range that has entries, the merge standing on its first one. `None` when the range is
    /// finished (and taken off).
    async fn next_row_key(&mut self) -> Result<Option<Bytes>> {
        let Some(range) = self.ranges.front().cloned() else {
            return Ok(None);
        };
        if self.position.is_none() {
            self.open(&range)?;
        }
        let Some(position) = &mut self.position else {
            return Ok(None);
        };
        if self.spec.reversed && !position.seek_last_row().await? {
            return Ok(self.finish_range());
        }
        while position.merge.status() == Step::Pending {
            position.merge.load().await?;
        }
        let key = position.merge.key();
        let within = position.upper.as_deref().is_none_or(|upper| key < upper) && key >= &position.lower[..];
        if key.is_empty() || !within {
            return Ok(self.finish_range());
        }
        let prefix = key::row_prefix_len(key).and_then(|len| key.get(..len));
        let row = prefix.and_then(key::decode_row).map(|row| Bytes::copy_from_slice(&row));
        row.map(Some).ok_or_else(|| TabletError::Corruption {
            path: Arc::from(format!("tablet {}", self.tablet.id())),
            detail: "a stored key is not a cell key".to_owned(),
        })
    }

    fn finish_range(&mut self) -> Option<Bytes> {
        self.ranges.pop_front();
        self.position = None;
        None
    }

    /// Notes that a row has been read, for positions opened later.
    fn pass(&mut self, row: &Bytes) {
        let Some(range) = self.ranges.front_mut() else { return };
        if self.spec.reversed {
            range.end = Some(row.clone());
            if let Some(position) = &mut self.position {
                position.upper = Some(key::row_prefix(row));
            }
        } else {
            range.start = stele_types::range::successor(row);
        }
        if range.is_empty() {
            self.finish_range();
        }
    }

    /// Reads the row the merge stands on and leaves the merge behind it; bytes of the cells it gave.
    async fn read_row(&mut self, row: &Bytes, batch: &mut RowBatch) -> Result<usize> {
        let env = self.tablet.env().clone();
        let mut chance = move || (env.random_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let Some(position) = &mut self.position else {
            return Ok(0);
        };
        let prefix = key::row_prefix(row);
        let admitted = self.spec.filter.as_ref().is_none_or(|f| f.admits_row(row, &mut chance));
        if !admitted {
            position.leave_row(&prefix)?;
            return Ok(0);
        }
        let cells = if self.spec.raw {
            let mut raw = RawRow::new(self.pushdown.clone());
            position.read_raw(&prefix, &mut raw).await?;
            raw.into_cells()
        } else {
            self.sink.begin_row();
            position
                .read_resolved(&prefix, &mut self.resolver, &mut self.sink)
                .await?;
            self.sink.take_cells()
        };
        if cells.is_empty() {
            return Ok(0);
        }
        batch.seen.rows += 1;
        batch.seen.cells += cells.len() as u64;
        let cells = match &self.spec.filter {
            Some(filter) => filter.evaluate(row, cells, &mut chance)?,
            None => cells,
        };
        let bytes = row.len() + cells.iter().map(stele_types::Cell::weight).sum::<usize>();
        batch.push_row(row.clone(), cells);
        Ok(bytes)
    }
}

impl Position {
    /// For reversed scans: stands on the first entry of the last row below `upper`; whether there is one.
    async fn seek_last_row(&mut self) -> Result<bool> {
        let top = [0xff];
        // Every encoded row has a byte below FF at its end, so no key sorts above a run of FFs longer than any row.
        let everything;
        let upper: &[u8] = match &self.upper {
            Some(upper) => upper,
            None => {
                everything = top.repeat(limits::CELL_KEY_BYTES_MAX);
                &everything
            }
        };
        let mut step = self.merge.seek_before(upper)?;
        while step == Step::Pending {
            step = self.merge.load().await?;
        }
        let Some(key) = self.merge.backward_key().filter(|key| *key >= &self.lower[..]) else {
            return Ok(false);
        };
        let row = key[..key::row_prefix_len(key).unwrap_or(key.len())].to_vec();
        let mut step = self.merge.seek(&row)?;
        while step == Step::Pending {
            step = self.merge.load().await?;
        }
        Ok(true)
    }

    fn leave_row(&mut self, prefix: &[u8]) -> Result<Step> {
        self.merge.skip_to(&key::row_prefix_end(prefix))
    }

    async fn read_resolved(&mut self, prefix: &[u8], resolver: &mut Resolver, sink: &mut ReadSink) -> Result<()> {
        resolver.begin_row();
        let mut steps = 0;
        let mut step = self.merge.status();
        loop {
            if step == Step::Pending {
                step = self.merge.load().await?;
                continue;
            }
            let key = self.merge.key();
            if step == Step::End || !key.starts_with(prefix) {
                break;
            }
            let Some(parts) = KeyParts::parse_after_row(key, prefix.len()) else {
                break;
            };
            let skip = resolver.push(key, &parts, || self.merge.value(), sink);
            sink.check_size(prefix)?;
            steps = if skip == Skip::Nothing { 0 } else { steps + 1 };
            let target = if steps > STEPS_BEFORE_SEEK {
                skip_target(key, &parts, skip)
            } else {
                None
            };
            step = match target {
                Some(target) => {
                    steps = 0;
                    self.merge.skip_to(&target)?
                }
                None => self.merge.advance()?,
            };
        }
        resolver.end_row(sink);
        sink.check_size(prefix)
    }

    async fn read_raw(&mut self, prefix: &[u8], raw: &mut RawRow) -> Result<()> {
        let mut step = self.merge.status();
        loop {
            if step == Step::Pending {
                step = self.merge.load().await?;
                continue;
            }
            let key = self.merge.key();
            if step == Step::End || !key.starts_with(prefix) {
                return Ok(());
            }
            if let Some(parts) = KeyParts::parse_after_row(key, prefix.len()) {
                raw.push(key, &parts, self.merge.value());
                raw.check_size(prefix)?;
            }
            step = self.merge.advance()?;
        }
    }
}

/// The first key behind what is skipped.
fn skip_target(key: &[u8], parts: &KeyParts, skip: Skip) -> Option<Vec<u8>> {
    let family_end = parts.qualifier_start.checked_sub(1)?;
    let end = match skip {
        Skip::Nothing => return None,
        Skip::Row => return Some(key::row_prefix_end(&key[..parts.row_end])),
        // Level bytes are 00 and 01, so 02 is behind both.
        Skip::Family => key.get(..family_end)?,
        Skip::Column => key.get(..parts.qualifier_end)?,
    };
    let mut target = end.to_vec();
    target.push(0x02);
    Some(target)
}
