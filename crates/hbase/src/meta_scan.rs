//! Scans of `hbase:meta`.

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::filtering::RowFilter;
use crate::meta_rows::MetaRows;
use crate::meta_table::{KeyRange, SCHEMA};
use crate::pace::Pace;
use crate::region_scan::includes_stop_row;
use crate::row_memory::RowMemory;
use crate::scan_batch::{Batch, CallLimits};
use crate::selection::{self, Selection, Wanted};
use crate::waiting::{Filling, Waiting};
use bytes::Bytes;
use stele_wire::exception;
use stele_wire::messages::Scan;

/// Memory of one row, and of the rows that wait: never more than one. Its largest part is the key of a region.
const ROW_BYTES: usize = 256 << 10;

/// A scan of `hbase:meta`. Each call makes its rows again.
pub(crate) struct MetaScanner {
    /// Bytes of a response that the client asks for.
    pub result_bytes: Option<u64>,
    /// Keys of which no row was made.
    left: KeyRange,
    reversed: bool,
    selection: Selection,
    filter: Option<RowFilter>,
    /// Cells of a result at most.
    cells_max: Option<usize>,
    waiting: Waiting,
}

impl MetaScanner {
    /// Checks a scan.
    pub fn new(shared: &Context, scan: &Scan) -> Outcome<Self> {
        let bound = |key: &Option<Bytes>, included: bool| {
            let key = key.clone().filter(|key| !key.is_empty());
            key.map(|key| (key, included))
        };
        let start = bound(&scan.start_row, scan.include_start_row.unwrap_or(true));
        let stop = bound(&scan.stop_row, includes_stop_row(scan));
        let left = match scan.reversed() {
            false => KeyRange { low: start, high: stop },
            true => KeyRange { low: stop, high: start },
        };
        let mut selection = Selection::new(
            &SCHEMA,
            &Wanted {
                columns: &scan.column,
                times: scan.time_range.as_ref(),
                family_times: &scan.cf_time_range,
                versions: selection::versions(scan.max_versions)?,
                store_limit: scan.store_limit,
                store_offset: scan.store_offset.unwrap_or(0),
                raw: false,
            },
        )?
        .without_pushdown();
        selection.is_filtered = scan.filter.is_some();
        let filter = match &scan.filter {
            Some(filter) => {
                let on_demand = selection::on_demand(scan.load_column_families_on_demand);
                let shape = selection.shape(&SCHEMA, scan.reversed(), on_demand);
                Some(RowFilter::decode(filter, &SCHEMA, &shape, shared)?)
            }
            None => None,
        };
        let cells_max = scan.batch_size.filter(|cells| *cells > 0 && *cells < i32::MAX as u32);
        if cells_max.is_some() && filter.as_ref().is_some_and(RowFilter::needs_whole_rows) {
            let message = "Cannot set batch on a scan using a filter that returns true for filter.hasFilterRow";
            return Err(Failure::new(exception::INCOMPATIBLE_FILTER, message));
        }
        Ok(MetaScanner {
            result_bytes: scan.max_result_size,
            left,
            reversed: scan.reversed(),
            selection,
            filter,
            cells_max: cells_max.map(|cells| cells as usize),
            waiting: Waiting::default(),
        })
    }

    /// The rows of a call.
    pub async fn next(&mut self, shared: &Context, limits: &CallLimits) -> Outcome<Batch> {
        let mut batch = Batch {
            more_in_region: true,
            ..Batch::default()
        };
        if limits.results == 0 {
            return Ok(batch);
        }
        let mut memory = RowMemory::new(&shared.responses, &shared.env);
        memory.reserve(limits.bytes + ROW_BYTES).await?;
        let mut pace = Pace::new(&shared.env);
        let rows_left = limits.rows_left.and_then(|rows| usize::try_from(rows).ok());
        let wanted = limits.results.min(rows_left.unwrap_or(usize::MAX));
        let mut rows = MetaRows::new(shared, self.left.clone(), self.reversed, wanted).await?;
        let mut filling = Filling::new(limits, self.cells_max);
        loop {
            let waiting = &mut self.waiting;
            let is_full = waiting.move_to(&mut batch, &mut filling, &SCHEMA, &mut pace).await;
            let is_over = self.filter.as_ref().is_some_and(RowFilter::is_over);
            if self.waiting.is_empty() && (is_over || !rows.has_more()) {
                batch.more_in_region = false;
                let filter_is_done = self.filter.as_ref().is_some_and(RowFilter::is_done);
                batch.is_over |= filter_is_done && batch.rows.is_empty();
            }
            if is_full || batch.rows.len() >= limits.results || !batch.more_in_region {
                break;
            }
            let Some(row) = rows.next(&mut pace).await? else {
                continue;
            };
            let passed = Some((row.row.clone(), false));
            match self.reversed {
                false => self.left.low = passed,
                true => self.left.high = passed,
            }
            batch.rows_seen += 1;
            let mut cells = row.cells;
            self.selection.apply(&SCHEMA, &mut cells);
            if let Some(filter) = &mut self.filter {
                pace.spend(filter.apply(&SCHEMA, &row.row, &mut cells)?).await;
            }
            if !cells.is_empty() {
                self.waiting.push(row.row, cells);
                batch.rows_passed += 1;
            }
        }
        batch.memory = memory.into_reserved();
        Ok(batch)
    }
}
