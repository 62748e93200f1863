//! A scan of one region.
//!
//! Rows come in batches from the service interface. Those that a call does not return wait in the scanner for the next
//! one, with the memory that is reserved for them. If others need that memory, they are dropped and read again.
//!
//! Invariants:
//! * Rows that wait are reserved, also while a call returns a part of the first one.
//! * A response has the memory of its rows until its client has taken it. A row that is not cut, or a single cell, may be far longer
//!   than a response usually is.
//! * Rows pin a bounded amount of memory: if a filter leaves few, they are copied.

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::filtering::RowFilter;
use crate::idle_bytes::Counted;
use crate::names;
use crate::pace::Pace;
use crate::regions::Region;
use crate::row_memory::{BATCH_BYTES, RowMemory};
use crate::scan_batch::{Batch, CallLimits};
use crate::selection::{self, Selection, Wanted};
use crate::waiting::{Filling, Waiting};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{ReadRows, RowStream};
use stele_filter::Filter;
use stele_memory::Reservation;
use stele_types::{Cell, RowBatch, RowRange, RowSet, TableSchema};
use stele_wire::exception;
use stele_wire::messages::{NameBytesPair, Scan};

/// Attribute: tombstones and hidden cells are returned, too.
const RAW: &str = "_raw_";

/// Rows that weigh less than one part in this many of their batch are copied. The engine bounds the memory that a batch pins by as many
/// times its weight.
const KEPT_PARTS_MAX: usize = 4;

/// A scan of one region.
pub(crate) struct RegionScanner {
    pub schema: Arc<TableSchema>,
    /// Bytes of a response that the client asks for.
    pub result_bytes: Option<u64>,
    pub wants_cursor: bool,
    selection: Selection,
    filter: Option<RowFilter>,
    reversed: bool,
    /// Cells of a result at most.
    cells_max: Option<usize>,
    /// Rows of the scan at most, if nothing below must read more.
    rows_limit: u64,
    /// Rows that were not read, or that must be read again.
    left: RowRange,
    /// Rows of the regions that the scan comes to after this one; `None` after the last region.
    beyond: Option<RowRange>,
    stream: Option<Box<dyn RowStream>>,
    /// The stream has ended.
    at_end: bool,
    /// Whether the filter has kept the last row that it saw. Of a filter that is over, that row has ended it.
    is_over_with_row: bool,
    /// Rows that were read and not returned. Of the first, some cells may have been returned.
    waiting: Waiting,
    /// Bytes of the batch that the rows are of, before the selection unless they were copied: they share its buffers.
    batch_bytes: usize,
    /// Memory of the rows that wait.
    memory: Option<Reservation>,
    /// Set while no call uses the scanner.
    pub idle: Option<Counted>,
}

/// The rows of a scan within a region.
fn rows_of(scan: &Scan, region: &RowRange) -> RowRange {
    let bound = |row: &Option<Bytes>, included: bool| match row.clone().filter(|row| !row.is_empty()) {
        None => Bound::Unbounded,
        Some(row) if included => Bound::Included(row),
        Some(row) => Bound::Excluded(row),
    };
    let start = bound(&scan.start_row, scan.include_start_row.unwrap_or(true));
    let stop = bound(&scan.stop_row, includes_stop_row(scan));
    let range = match scan.reversed() {
        false => RowRange::from_bounds(start, stop),
        true => RowRange::from_bounds(stop, start),
    };
    range.intersect(region)
}

/// The rows of the regions that a scan comes to after a region.
fn beyond(region: &RowRange, reversed: bool) -> Option<RowRange> {
    Some(match reversed {
        false => RowRange {
            start: region.end.clone()?,
            end: None,
        },
        true if region.start.is_empty() => return None,
        true => RowRange {
            start: Bytes::new(),
            end: Some(region.start.clone()),
        },
    })
}

/// Whether the scan has its stop row. Clients before 1.4 have no such field, and send a Get as a scan that begins and stops at its row.
pub(crate) fn includes_stop_row(scan: &Scan) -> bool {
    let is_get = || scan.start_row == scan.stop_row && scan.start_row.as_ref().is_some_and(|row| !row.is_empty());
    scan.include_stop_row.unwrap_or_else(is_get)
}

fn is_set(attributes: &[NameBytesPair], name: &str) -> bool {
    let given = attributes.iter().find(|pair| pair.name == name);
    given.is_some_and(|pair| pair.value.as_deref().is_some_and(|value| value != [0]))
}

impl RegionScanner {
    /// Checks a scan. `rows_max` is known if the client limits its rows.
    pub fn new(
        shared: &Context,
        region: &Region,
        schema: Arc<TableSchema>,
        scan: &Scan,
        rows_max: Option<u64>,
    ) -> Outcome<Self> {
        let mut selection = Selection::new(
            &schema,
            &Wanted {
                columns: &scan.column,
                times: scan.time_range.as_ref(),
                family_times: &scan.cf_time_range,
                versions: selection::versions(scan.max_versions)?,
                store_limit: scan.store_limit,
                store_offset: scan.store_offset.unwrap_or(0),
                raw: is_set(&scan.attribute, RAW),
            },
        )?;
        selection.is_filtered = scan.filter.is_some();
        let filter = match &scan.filter {
            Some(filter) => {
                let on_demand = selection::on_demand(scan.load_column_families_on_demand);
                let shape = selection.shape(&schema, scan.reversed(), on_demand);
                Some(RowFilter::decode(filter, &schema, &shape, shared)?)
            }
            None => None,
        };
        let cells_max = scan.batch_size.filter(|cells| *cells > 0 && *cells < i32::MAX as u32);
        if cells_max.is_some() && filter.as_ref().is_some_and(RowFilter::needs_whole_rows) {
            let message = "Cannot set batch on a scan using a filter that returns true for filter.hasFilterRow";
            return Err(Failure::new(exception::INCOMPATIBLE_FILTER, message));
        }
        Ok(RegionScanner {
            result_bytes: scan.max_result_size,
            wants_cursor: scan.need_cursor_result(),
            reversed: scan.reversed(),
            cells_max: cells_max.map(|cells| cells as usize),
            rows_limit: rows_max.filter(|_| selection.is_pushed_down()).unwrap_or(0),
            left: rows_of(scan, &region.range),
            beyond: beyond(&region.range, scan.reversed()),
            schema,
            selection,
            filter,
            stream: None,
            at_end: false,
            is_over_with_row: false,
            waiting: Waiting::default(),
            batch_bytes: 0,
            memory: None,
            idle: None,
        })
    }

    /// The results of a call.
    pub async fn next(&mut self, shared: &Context, limits: &CallLimits) -> Outcome<Batch> {
        let mut batch = Batch {
            more_in_region: true,
            ..Batch::default()
        };
        self.check_unchanged(shared)?;
        if limits.results == 0 {
            return Ok(batch);
        }
        let limits = CallLimits {
            // A filter that judges whole rows has results of whole rows.
            partials: limits.partials && !self.filter.as_ref().is_some_and(RowFilter::needs_whole_rows),
            ..*limits
        };
        let mut memory = self.memory_of_call(shared, &limits).await?;
        let mut pace = Pace::new(&shared.env);
        let deadline = limits.heartbeat.map(|time| shared.env.now() + time);
        let mut filling = Filling::new(&limits, self.cells_max);
        loop {
            let waiting = &mut self.waiting;
            if waiting.move_to(&mut batch, &mut filling, &self.schema, &mut pace).await {
                break;
            }
            // A full response ends before a row behind it does: HBase has not come to that row.
            let is_over = self.filter.as_ref().is_some_and(RowFilter::is_over);
            if self.at_end || is_over && (self.is_over_with_row || !filling.is_full(&batch)) {
                batch.more_in_region = false;
                // A client ignores the rows of a response that ends the scan like this.
                batch.is_over |= batch.rows.is_empty() && self.filter_ends_scan();
                break;
            }
            // The next row that passes may be far away.
            if filling.is_full(&batch) {
                break;
            }
            memory.keeps_rows = !batch.rows.is_empty();
            match self.read_on(shared, &mut memory, &mut pace).await {
                Ok((seen, passed)) => {
                    batch.rows_seen += seen.max(passed);
                    batch.rows_passed += passed;
                }
                Err(_) if memory.was_too_small => {
                    // The rows so far are returned. The next call reads on behind them.
                    self.stream = None;
                    break;
                }
                Err(failure) => return Err(failure),
            }
            if self.waiting.is_empty() && deadline.is_some_and(|deadline| shared.env.now() >= deadline) {
                batch.is_heartbeat = true;
                batch.reached = self.reached();
                break;
            }
            shared.env.yield_now().await;
        }
        let (response, rows) = memory.into_parts();
        let (response, rows) = self.hand_over(response, rows, filling.bytes());
        batch.memory = response;
        self.keep_or_drop_waiting(shared, rows);
        Ok(batch)
    }

    /// Whether the filter ends the scan with this region. It is not asked about rows outside of its ranges, and a client
    /// would visit all later regions in vain.
    fn filter_ends_scan(&self) -> bool {
        let Some(filter) = &self.filter else { return false };
        filter.is_done() || self.beyond.as_ref().is_some_and(|rows| !filter.may_pass(rows))
    }

    /// Fails if the table has been changed since the scan began. The client opens the scanner again behind its last row.
    fn check_unchanged(&self, shared: &Context) -> Outcome<()> {
        let now = shared.schema(&self.schema.name)?;
        if (now.id, now.version) == (self.schema.id, self.schema.version) {
            return Ok(());
        }
        let message = format!("table {} was changed during the scan", names::to_text(&now.name));
        Err(Failure::new(exception::UNKNOWN_SCANNER, message))
    }

    /// The memory of a call: of its response, and of batches of rows. Rows that wait keep their memory, and then nothing
    /// is waited for: no one may hold memory and wait for more.
    async fn memory_of_call(&mut self, shared: &Context, limits: &CallLimits) -> Outcome<RowMemory> {
        let mut memory = RowMemory::new(&shared.responses, &shared.env);
        if let Some(rows) = self.memory.take().filter(|_| !self.waiting.is_empty()) {
            if let Some(response) = shared.responses.try_reserve(limits.bytes) {
                // Without more, the next batch is smaller.
                let _ = rows.try_grow(BATCH_BYTES.saturating_sub(rows.counted()));
                memory.hold(rows, response);
                return Ok(memory);
            }
            if !self.drop_waiting() {
                let response = rows.split(limits.bytes);
                memory.hold(rows, response);
                return Ok(memory);
            }
        }
        memory.reserve(BATCH_BYTES + limits.bytes).await?;
        memory.set_aside(limits.bytes);
        Ok(memory)
    }

    /// Reads the next batch of rows; returns how many were seen, and how many of them passed.
    async fn read_on(&mut self, shared: &Context, memory: &mut RowMemory, pace: &mut Pace<'_>) -> Outcome<(u64, u64)> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let rows = match &self.filter {
                    Some(filter) => filter.rows_within(&self.left),
                    None => vec![self.left.clone()],
                };
                let mut read = ReadRows::new(self.schema.name.clone(), RowSet::new(rows));
                read.id = Some(self.schema.id);
                read.filter = self.pushdown();
                read.rows_limit = self.rows_limit;
                read.reversed = self.reversed;
                read.raw = self.selection.raw;
                self.stream.insert(shared.service.read_rows(read).await?)
            }
        };
        let Some(batch) = stream.next_within(memory).await? else {
            self.at_end = true;
            self.stream = None;
            return Ok((0, 0));
        };
        if let Some(through) = batch.scanned_through.clone() {
            self.pass(through);
        }
        let (seen, before) = (batch.seen.rows, self.waiting.len());
        self.filter_rows(batch, pace).await?;
        let passed = self.waiting.len().saturating_sub(before) as u64;
        self.skip_rows();
        Ok((seen, passed))
    }

    /// The filter below. Cells and values that no answer depends on are not read.
    fn pushdown(&self) -> Option<Arc<Filter>> {
        let selected = self.selection.pushdown(&self.schema);
        let narrowed = match &self.filter {
            Some(filter) if !self.selection.raw => filter.narrowed(&self.schema, self.selection.selects_below()),
            _ => Vec::new(),
        };
        if narrowed.is_empty() {
            return selected;
        }
        let selected = selected.map(|selected| Filter::clone(&selected));
        let mut chain: Vec<Filter> = selected.into_iter().chain(narrowed).collect();
        match chain.len() {
            1 => chain.pop().map(Arc::new),
            _ => Some(Arc::new(Filter::Chain(chain))),
        }
    }

    /// Reads on at the row that the filter asks for, if that is farther than the read has come.
    fn skip_rows(&mut self) {
        let Some(next) = self.filter.as_ref().and_then(RowFilter::next_row) else {
            return;
        };
        let mut left = self.left.clone();
        match self.reversed {
            false => left.start = next,
            true => left.end = Some(stele_types::range::successor(&next)),
        }
        // Only rows that are left out are progress: the filter repeats its wish until the row has come.
        let is_farther = match self.reversed {
            false => left.start > self.left.start,
            true => self
                .left
                .end
                .as_ref()
                .is_none_or(|end| left.end.as_ref().is_some_and(|to| to < end)),
        };
        if is_farther {
            self.left = left;
            self.at_end |= self.left.is_empty();
            self.stream = None;
        }
    }

    /// Applies the selection and the filter to the rows of a batch.
    async fn filter_rows(&mut self, mut batch: RowBatch, pace: &mut Pace<'_>) -> Outcome<()> {
        batch.seal();
        let rows: Vec<(Bytes, usize)> = batch.shared_rows().map(|(row, cells)| (row, cells.len())).collect();
        let all = batch.into_cells();
        let keys = rows.iter().map(|(row, _)| row.len());
        self.batch_bytes = all.iter().map(Cell::weight).chain(keys).sum();
        let mut all = all.into_iter();
        for (row, count) in rows {
            if self.filter.as_ref().is_some_and(RowFilter::is_over) {
                break;
            }
            let mut cells: Vec<Cell> = all.by_ref().take(count).collect();
            self.selection.apply(&self.schema, &mut cells);
            let mut units = 1 + count;
            if let Some(filter) = &mut self.filter {
                units += filter.apply(&self.schema, &row, &mut cells)?;
                self.is_over_with_row = !cells.is_empty();
            }
            if !cells.is_empty() {
                self.waiting.push(row, cells);
            }
            pace.spend(units).await;
        }
        let kept = self.waiting.weight();
        if kept < self.batch_bytes / KEPT_PARTS_MAX {
            self.waiting.copy();
            self.batch_bytes = kept;
        }
        Ok(())
    }

    /// All rows up to this one have been read.
    fn pass(&mut self, row: Bytes) {
        match self.reversed {
            false => self.left.start = stele_types::range::successor(&row),
            true => self.left.end = Some(row),
        }
    }

    /// The row that the scan has reached, for a cursor.
    fn reached(&self) -> Option<Bytes> {
        match self.reversed {
            false => self.left.start.strip_suffix(&[0]).map(Bytes::copy_from_slice),
            true => self.left.end.clone(),
        }
    }

    /// The memory of a response of `bytes`, and that of the rows that wait. The returned rows hand theirs over to the response, and all of
    /// it if no others wait.
    fn hand_over(
        &self,
        response: Option<Reservation>,
        rows: Option<Reservation>,
        bytes: usize,
    ) -> (Option<Reservation>, Option<Reservation>) {
        let (Some(mut response), Some(rows)) = (response, rows) else {
            return (None, None);
        };
        if self.waiting.is_empty() {
            response.absorb(rows);
            return (Some(response), None);
        }
        if let missing @ 1.. = bytes.saturating_sub(response.counted()) {
            response.absorb(rows.split_sharing(missing));
        }
        (Some(response), Some(rows))
    }

    /// Keeps the rows that wait, unless responses have taken half of their memory. Then they are read again if they can
    /// be.
    fn keep_or_drop_waiting(&mut self, shared: &Context, memory: Option<Reservation>) {
        if self.waiting.is_empty() {
            return;
        }
        let is_scarce = shared.responses.used() > shared.responses.limit() / 2;
        if is_scarce && self.drop_waiting() {
            return;
        }
        if let Some(memory) = &memory
            && !memory.is_overdrawn()
        {
            memory.shrink_to(self.batch_bytes);
        }
        self.memory = memory;
    }

    /// Bytes that are reserved between calls; at least one with the overdraft, which is taken back as they are.
    pub fn held(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, RowFilter::reserved);
        let memory = self.memory.as_ref();
        filter + memory.map_or(0, |memory| memory.counted().max(usize::from(memory.is_overdrawn())))
    }

    /// Whether a part of a row was returned.
    pub fn is_within_row(&self) -> bool {
        self.waiting.is_within_row()
    }

    /// Whether the scanner has the overdraft.
    pub fn is_overdrawn(&self) -> bool {
        self.memory.as_ref().is_some_and(Reservation::is_overdrawn)
    }

    /// Gives the memory of rows that wait back, if they can be read again. They cannot if a part of one was returned, nor
    /// if a filter has seen them.
    pub fn drop_waiting(&mut self) -> bool {
        if self.waiting.is_within_row() || self.filter.is_some() {
            return false;
        }
        if let Some(first) = self.waiting.first() {
            match self.reversed {
                false => self.left.start = first.clone(),
                true => self.left.end = Some(stele_types::range::successor(first)),
            }
            (self.stream, self.at_end) = (None, false);
            self.waiting.clear();
        }
        self.memory = None;
        true
    }
}

#[cfg(test)]
mod tests;
