//! Reads of one tablet.

use crate::error::{from_tablet, not_here};
use crate::row_cache::{Lookup, Reading, RowCache, RowRead};
use crate::server::TabletServer;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{RowStream, ServiceError, ServiceResult, TabletRead, TabletSample};
use stele_filter::{CompiledFilter, Filter};
use stele_tablet::{ScanSpec, Tablet, TabletScanner};
use stele_types::{Cell, RowBatch, RowRange, RowSet, TableSchema, TabletId};

/// Rows of a sample at most, so that its answer stays small.
const SAMPLE_ROWS_MAX: usize = 4096;

impl TabletServer {
    /// Starts a read.
    pub(crate) fn open_read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        let served = self.served(tablet)?;
        served.tablet.check_open().map_err(from_tablet)?;
        let schema = served.tablet.schema();
        let reading = match self.look_up(&served.tablet, &schema, &request) {
            Lookup::Hit(batch) => return Ok(Box::new(OneBatch(Some(batch)))),
            Lookup::Miss(reading) => Some((reading, self.row_cache.clone())),
            Lookup::Uncached => None,
        };
        let filter = compile(request.filter.as_deref(), &schema)?;
        if let Some(row) = single_row(&served.tablet, &request)
            && let Some(mut batch) = served.tablet.get_row(row, filter.as_ref()).map_err(from_tablet)?
        {
            batch.scanned_through = Some(row.clone());
            if let Some((reading, cache)) = reading {
                cache.install(reading, &batch, &served.tablet.schema(), served.tablet.wall_micros());
            }
            return Ok(Box::new(OneBatch(Some(batch))));
        }
        let spec = ScanSpec {
            rows: request.rows,
            filter,
            reversed: request.reversed,
            raw: request.raw,
            rows_limit: request.rows_limit,
        };
        Ok(Box::new(TabletRows {
            scanner: TabletScanner::new(served.tablet.clone(), spec),
            reading,
        }))
    }

    /// Looks in the row cache, when the read is of one row of the tablet.
    fn look_up(&self, tablet: &Tablet, schema: &TableSchema, request: &TabletRead) -> Lookup {
        let Some(row) = single_row(tablet, request) else {
            return Lookup::Uncached;
        };
        let read = RowRead {
            tablet: tablet.id(),
            schema,
            row,
            filter: request.filter.as_ref(),
        };
        self.row_cache.lookup(&read, tablet.wall_micros())
    }

    /// How a tablet's bytes are distributed.
    pub(crate) async fn sample_tablet(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        let served = self.served(tablet)?;
        let state = served.tablet.state();
        let bytes = state.file_bytes() + state.memtable_bytes();
        let mut rows = Vec::new();
        if bytes > every {
            for row in served.tablet.sample_rows(every).await.map_err(from_tablet)? {
                let before = served.tablet.bytes_before(&row).await.map_err(from_tablet)?;
                rows.push((row, before.min(bytes)));
                if rows.len() >= SAMPLE_ROWS_MAX {
                    break;
                }
            }
        }
        Ok(TabletSample { bytes, rows })
    }
}

/// The row, when the read is of one row of the tablet, resolved.
fn single_row<'a>(tablet: &Tablet, request: &'a TabletRead) -> Option<&'a Bytes> {
    let [range] = request.rows.ranges() else { return None };
    let row = range.as_single()?;
    (!request.raw && request.rows_limit != Some(0) && tablet.range().contains(row)).then_some(row)
}

/// The cells of one row, for a read-modify-write that holds its latch.
pub(crate) async fn read_row(
    tablet: &Arc<Tablet>,
    row: &Bytes,
    filter: Option<Arc<CompiledFilter>>,
) -> ServiceResult<Vec<Cell>> {
    if let Some(batch) = tablet.get_row(row, filter.as_ref()).map_err(from_tablet)? {
        return Ok(batch.into_cells());
    }
    let rows = RowSet::new(vec![RowRange::single(row)]);
    let mut scanner = TabletScanner::new(
        tablet.clone(),
        ScanSpec {
            rows,
            filter,
            reversed: false,
            raw: false,
            rows_limit: None,
        },
    );
    let mut cells = Vec::new();
    while let Some(batch) = scanner.next_batch().await.map_err(from_tablet)? {
        cells.append(&mut batch.into_cells());
    }
    Ok(cells)
}

/// Compiles a filter against a schema.
pub(crate) fn compile(filter: Option<&Filter>, schema: &TableSchema) -> ServiceResult<Option<Arc<CompiledFilter>>> {
    let compiled = filter.map(|f| f.compile(schema)).transpose();
    Ok(compiled
        .map_err(|e| ServiceError::new(e.kind(), e.to_string()))?
        .map(Arc::new))
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
    /// Of a single row that may be worth keeping: its one batch goes there.
    reading: Option<(Reading, Arc<RowCache>)>,
}

#[async_trait]
impl RowStream for TabletRows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        if self.scanner.tablet().check_open().is_err() {
            // The tablet was split or dropped: what is left is read from what took its place.
            return Err(not_here(self.scanner.tablet().id()));
        }
        let batch = self.scanner.next_batch().await.map_err(from_tablet)?;
        if let (Some((reading, cache)), Some(batch)) = (self.reading.take(), &batch) {
            let tablet = self.scanner.tablet();
            cache.install(reading, batch, &tablet.schema(), tablet.wall_micros());
        }
        Ok(batch)
    }
}
