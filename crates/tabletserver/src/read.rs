//! Reads of one tablet.
//!
//! A read of one row runs on the calling thread while everything it needs is in memory: in the row cache or in the tablet. All
//! other reads, and a row that must wait for storage, are streams.

use crate::error::{from_tablet, not_here};
use crate::heat::{Heat, Kind};
use crate::read_for_write::{PARTIAL_ROW_BYTES, compile};
use crate::row_cache::{Kept, Lookup, Reading, RowCache, RowRead};
use crate::tablets::Tablets;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{
    BatchReservation, RowStream, ServiceResult, TabletFigures, TabletOperations, TabletRead, TabletSample,
    TabletStorage,
};
use stele_env::work;
use stele_filter::Filter;
use stele_tablet::{PointRead, ScanSpec, Tablet, TabletError, TabletScanner};
use stele_types::{RowBatch, TabletId};

/// Rows of a sample at most, so that its answer stays small.
const SAMPLE_ROWS_MAX: usize = 4096;

/// Memory in addition to a large row: for the batch it comes in.
const ROW_OVERHEAD_BYTES: usize = 1 << 20;

/// The result of a read of one row: at most one row, and perhaps the row cache's.
#[derive(Clone, Debug)]
pub enum OneRow {
    /// Made for the caller.
    Own(RowBatch),
    /// The cache's.
    Shared(Kept),
}

impl OneRow {
    /// A batch of its own.
    pub fn into_batch(self) -> RowBatch {
        match self {
            OneRow::Own(batch) => batch,
            OneRow::Shared(kept) => kept.to_batch(),
        }
    }
}

/// The outcome of a read of one row on the calling thread.
enum AtOnce {
    Found(OneRow),
    /// It has to wait; perhaps the result is worth keeping.
    WouldBlock(Option<Reading>),
}

/// Answers reads of tablets.
pub(crate) struct Reader {
    tablets: Arc<Tablets>,
    row_cache: Arc<RowCache>,
    heat: Arc<Heat>,
}

impl Reader {
    /// Reads of these tablets, the results of hot rows kept in a row cache.
    pub(crate) fn new(tablets: Arc<Tablets>, row_cache: Arc<RowCache>, heat: Arc<Heat>) -> Self {
        Reader {
            tablets,
            row_cache,
            heat,
        }
    }

    /// A row as it is now, read on the calling thread; an empty batch when there is none, or the filter passes
    /// nothing. `None` when that would have to wait for storage: [`TabletService::read`](stele_client::TabletService)
    /// gives the same row then. A row that is not the tablet's is `Unavailable`.
    pub(crate) fn get_row(
        &self,
        tablet: TabletId,
        row: &[u8],
        filter: Option<&Arc<Filter>>,
    ) -> ServiceResult<Option<OneRow>> {
        let tablets = self.tablets.around(tablet);
        let Some(served) = tablets.get(&tablet) else {
            return Err(self.tablets.not_served(tablet));
        };
        if !served.tablet.range().contains(row) {
            return Err(not_here(tablet));
        }
        match self.read_concurrently(&served.tablet, row, filter)? {
            AtOnce::Found(found) => {
                self.heat.note(Kind::Read, tablet, row);
                Ok(Some(found))
            }
            AtOnce::WouldBlock(_) => Ok(None),
        }
    }

    /// Reads a row of the tablet without waiting.
    fn read_concurrently(&self, tablet: &Tablet, row: &[u8], filter: Option<&Arc<Filter>>) -> ServiceResult<AtOnce> {
        tablet.check_open().map_err(from_tablet)?;
        let now = || tablet.wall_micros();
        let lookup = self.row_cache.lookup(&row_read(tablet, row, filter), now);
        let reading = match lookup {
            Lookup::Hit(kept) => {
                work::note(|work| work.row_cache_hits += 1);
                return Ok(AtOnce::Found(OneRow::Shared(kept)));
            }
            Lookup::Miss(reading) => Some(reading),
            Lookup::Uncached => None,
        };
        let compiled = match filter {
            Some(filter) => compile(Some(filter), &tablet.schema())?,
            None => None,
        };
        match tablet.get(row, compiled.as_ref()).map_err(from_tablet)? {
            PointRead::Batch(batch) => {
                debug_assert!(batch.len() <= 1, "a read of one row gives at most that row");
                if let Some(reading) = reading {
                    let read = row_read(tablet, row, filter);
                    self.row_cache.install(reading, &read, &batch, || tablet.schema(), now);
                }
                Ok(AtOnce::Found(OneRow::Own(batch)))
            }
            // The cache would not know it any sooner.
            PointRead::NotFound => Ok(AtOnce::Found(OneRow::Own(RowBatch::default()))),
            PointRead::WouldBlock => Ok(AtOnce::WouldBlock(reading)),
        }
    }

    /// Starts a read.
    pub(crate) fn open_read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        let served = self.tablets.served(tablet)?;
        let mut keep = None;
        if let Some(row) = single_row(&served.tablet, &request) {
            let (filter, now) = (request.filter.as_ref(), || served.tablet.wall_micros());
            let found = match request.waits {
                true => AtOnce::WouldBlock(self.row_cache.reading(&row_read(&served.tablet, row, filter), now)),
                false => self.read_concurrently(&served.tablet, row, filter)?,
            };
            match found {
                AtOnce::Found(found) => {
                    self.heat.note(Kind::Read, tablet, row);
                    let mut batch = found.into_batch();
                    batch.scanned_through = Some(row.clone());
                    return Ok(Box::new(OneBatch(Some(batch))));
                }
                AtOnce::WouldBlock(reading) => {
                    keep = reading.map(|reading| Keep {
                        reading,
                        row: row.clone(),
                        filter: request.filter.clone(),
                        cache: self.row_cache.clone(),
                    });
                }
            }
        }
        served.tablet.check_open().map_err(from_tablet)?;
        let filter = compile(request.filter.as_ref(), &served.tablet.schema())?;
        let spec = ScanSpec {
            rows: request.rows,
            filter,
            reversed: request.reversed,
            raw: request.raw,
            rows_limit: request.rows_limit,
        };
        Ok(Box::new(TabletRows {
            scanner: TabletScanner::new(served.tablet.clone(), spec),
            keep,
            heat: self.heat.clone(),
        }))
    }

    /// How a tablet's bytes are distributed.
    pub(crate) async fn sample_tablet(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        let served = self.tablets.served(tablet)?;
        let sample = served.tablet.sample(every, SAMPLE_ROWS_MAX).await;
        let (bytes, rows) = sample.map_err(from_tablet)?;
        Ok(TabletSample { bytes, rows })
    }

    /// The size of a tablet, and the operations on it.
    pub(crate) fn figures_of(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        let served = self.tablets.served(tablet)?;
        let state = served.tablet.state();
        let storage = TabletStorage {
            file_bytes: state.file_bytes(),
            files: state.files(),
            memtable_bytes: state.memtable_bytes(),
        };
        let (reads, writes) = served.traffic.counts();
        Ok(TabletFigures {
            bytes: storage.file_bytes + storage.memtable_bytes,
            storage: Some(storage),
            operations: self.heat.is_counting().then_some(TabletOperations { reads, writes }),
        })
    }
}

/// A read of one row, as the row cache takes it.
fn row_read<'a>(tablet: &Tablet, row: &'a [u8], filter: Option<&'a Arc<Filter>>) -> RowRead<'a> {
    RowRead {
        tablet: tablet.id(),
        schema: tablet.schema_mark(),
        row,
        filter,
    }
}

/// The row, when the read is of one row of the tablet, resolved.
fn single_row<'a>(tablet: &Tablet, request: &'a TabletRead) -> Option<&'a Bytes> {
    let [range] = request.rows.ranges() else { return None };
    let row = range.as_single()?;
    (!request.raw && request.rows_limit != Some(0) && tablet.range().contains(row)).then_some(row)
}

/// The result of a read that did not have to wait.
struct OneBatch(Option<RowBatch>);

#[async_trait]
impl RowStream for OneBatch {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        Ok(self.0.take())
    }
}

/// A scan as a stream of batches.
struct TabletRows {
    scanner: TabletScanner,
    /// Of a single row that may be worth keeping: its one batch goes to the cache.
    keep: Option<Keep>,
    heat: Arc<Heat>,
}

/// A reading, with the parts needed to install it.
struct Keep {
    reading: Reading,
    row: Bytes,
    filter: Option<Arc<Filter>>,
    cache: Arc<RowCache>,
}

impl Keep {
    fn install(self, tablet: &Tablet, batch: &RowBatch) {
        let read = row_read(tablet, &self.row, self.filter.as_ref());
        let (schema, now) = (|| tablet.schema(), || tablet.wall_micros());
        self.cache.install(self.reading, &read, batch, schema, now);
    }
}

impl TabletRows {
    fn check_open(&self) -> ServiceResult<()> {
        if self.scanner.tablet().check_open().is_err() {
            // The tablet was split or dropped: the rest is read from its successors.
            return Err(not_here(self.scanner.tablet().id()));
        }
        Ok(())
    }

    /// Hands a batch on. The first is the one that may be worth caching, if it has the row to its end. Its cells do
    /// not tell that: the first partial row may have none.
    fn pass(&mut self, batch: Option<RowBatch>) -> Option<RowBatch> {
        let keep = self.keep.take().filter(|_| !self.scanner.is_within_row());
        if let (Some(keep), Some(batch)) = (keep, &batch) {
            keep.install(self.scanner.tablet(), batch);
        }
        if let Some(batch) = &batch {
            self.note_heat(batch);
        }
        batch
    }
}

impl TabletRows {
    /// A batch without a row counts as a read of the last row that it has passed.
    fn note_heat(&self, batch: &RowBatch) {
        let tablet = self.scanner.tablet().id();
        match batch.complete_rows() {
            0 => batch
                .scanned_through
                .iter()
                .for_each(|row| self.heat.note(Kind::Read, tablet, row)),
            rows => {
                let keys = || Box::new(batch.rows().map(|(row, _)| row).take(rows)) as Box<dyn Iterator<Item = &[u8]>>;
                self.heat.note_all(Kind::Read, tablet, rows, keys);
            }
        }
    }
}

#[async_trait]
impl RowStream for TabletRows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        self.check_open()?;
        self.scanner.set_partial_rows(None);
        let batch = self.scanner.next_batch().await.map_err(from_tablet)?;
        Ok(self.pass(batch))
    }

    fn blocks_read(&self) -> u64 {
        self.scanner.blocks_read()
    }

    async fn next_within(&mut self, reservation: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        loop {
            self.check_open()?;
            self.scanner.set_reservation(reservation.bytes());
            self.scanner
                .set_partial_rows(reservation.takes_partial_rows().then_some(PARTIAL_ROW_BYTES));
            match self.scanner.next_batch().await {
                Ok(batch) => return Ok(self.pass(batch)),
                // The batch is dropped, so that two scans that need more memory do not wait for each other's.
                Err(TabletError::NeedsMemory { bytes }) => {
                    self.scanner.drop_batch();
                    reservation.renew(space_for(bytes, reservation.bytes())).await?;
                }
                Err(error) => return Err(from_tablet(error)),
            }
        }
    }
}

/// Memory to reserve when a row needs `bytes` and more, and `there` was too little. Four times as much each time, so
/// that reading it again costs a third of reading it.
fn space_for(bytes: usize, there: usize) -> usize {
    let asked = bytes.saturating_add(ROW_OVERHEAD_BYTES).max(there.saturating_mul(4));
    assert!(
        asked > there,
        "a row that is read again gets more memory each time, so that it ends"
    );
    asked
}
