//! Reads all cells of a range of rows, through several regions and scanners.
//!
//! Unlike HBase's own client it does not assemble rows: a consumer gets cells as they arrive, so a row may be larger than
//! memory. A scanner that the server has lost is opened again behind the last whole row. The parts of a row that had
//! arrived by then arrive once more, and [`Cells::again`] says so.
//!
//! A server reads as of the moment at which a scanner was opened. That is of no harm to a reader of visible cells. A copy by
//! a raw scan races with deletes and compactions that came later, so its scanners are replaced after some seconds.
//!
//! Regions that move, split or merge meanwhile cost a lookup. There is one request at a time, and at most one response in
//! memory besides those that the caller holds.

use crate::cluster::Cluster;
use crate::failure::{BackOff, Failure, Remedy};
use crate::locations::Region;
use crate::socket::{Method, Socket};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_wire::cell::{Cell, CellReader};
use stele_wire::frame::Response;
use stele_wire::messages::{self, NameBytesPair, RegionSpecifier, ScanRequest, ScanResponse, decode};
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Bytes after which a response ends: HBase's `hbase.client.scanner.max.result.size`.
const RESULT_BYTES: u64 = 2 << 20;

/// Rows of a response: as many as those bytes hold.
const ROWS_UNLIMITED: u32 = i32::MAX as u32;

/// Age from which a scanner of a raw scan is replaced: rarely enough that opening it costs nothing, and far below the time
/// between compactions of a server.
const RAW_AGE_MAX: Duration = Duration::from_secs(10);

/// Lease of a scanner whose server does not state it: HBase's `hbase.client.scanner.timeout.period`.
const LEASE: Duration = Duration::from_secs(60);

/// Least time between renewals of a lease, for every time that a server states.
const RENEWAL_MIN: Duration = Duration::from_millis(10);

const SCAN: Method = Method::named("Scan");

/// Priority with which HBase's client closes scanners: closing frees memory of a busy server.
const CLOSE: Method = Method {
    name: "Scan",
    priority: 200,
};

/// Rows to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// First row.
    pub start: Bytes,
    /// Whether `start` itself is wanted.
    pub include_start: bool,
    /// Row behind the last one; empty for the end of the table.
    pub end: Bytes,
    /// Whether `end` itself is wanted.
    pub include_end: bool,
}

impl Rows {
    /// Rows from `start` on and before `end`; empty ones stand for the ends of the table.
    pub fn between(start: Bytes, end: Bytes) -> Self {
        Self {
            start,
            include_start: true,
            end,
            include_end: false,
        }
    }

    /// One row.
    pub fn one(row: Bytes) -> Self {
        Self {
            start: row.clone(),
            include_start: true,
            end: row,
            include_end: true,
        }
    }

    /// Whether no row can be in it.
    pub fn is_empty(&self) -> bool {
        if self.end.is_empty() {
            return false;
        }
        self.start > self.end || (self.start == self.end && !(self.include_start && self.include_end))
    }
}

/// Cells to be read of each row: all versions in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Cells that a reader sees.
    Visible,
    /// Also hidden cells and tombstones.
    Raw,
}

/// Consecutive cells of a scan.
#[derive(Debug, Default)]
pub struct Cells {
    /// Cells with their tags, in the order of the table. Tags are empty unless the codec carries them.
    pub cells: Vec<(Cell, Bytes)>,
    /// Whether the last row that had begun before begins again here: its earlier cells are all repeated. If the first row is
    /// another one, or there are no cells, that row has gone meanwhile, and its earlier cells count no more.
    pub again: bool,
    /// The last row that is known to be whole; all rows before it are whole, too.
    pub whole: Option<Bytes>,
    /// Bytes of the cells on the wire.
    pub bytes: u64,
}

/// A scanner at a region's server.
struct Open {
    region: Arc<Region>,
    socket: Arc<Socket>,
    id: Option<u64>,
    next_call_seq: u64,
    /// When it was requested.
    since: Instant,
    /// Time without a call after which the server closes it.
    lease: Duration,
    /// Whether a row has become whole since.
    has_progress: bool,
}

/// A scan in progress.
pub struct Scanner {
    cluster: Arc<Cluster>,
    table: String,
    view: View,
    /// Age from which a scanner is replaced.
    age_max: Option<Duration>,
    /// The rows that the next scanner reads.
    rows: Rows,
    open: Option<Open>,
    /// Row whose cells have been returned, and that is not known to be whole.
    pending: Option<Bytes>,
    /// Whether the pending row began before the latest response.
    is_long: bool,
    /// Whether the pending row is read once more.
    again: bool,
    back_off: BackOff,
    over: bool,
}

impl Scanner {
    /// A scan; nothing is sent yet.
    pub fn new(cluster: Arc<Cluster>, table: &str, rows: Rows, view: View) -> Self {
        Self {
            back_off: cluster.new_back_off(),
            cluster,
            table: table.to_owned(),
            view,
            age_max: (view == View::Raw).then_some(RAW_AGE_MAX),
            over: rows.is_empty(),
            rows,
            open: None,
            pending: None,
            is_long: false,
            again: false,
        }
    }

    /// The next cells; `None` at the end. Some calls return no cells, but rows that are known to be whole now, or that the
    /// last row has gone.
    ///
    /// # Errors
    /// A failure that remains after all retries.
    pub async fn next(&mut self) -> Result<Option<Cells>, Failure> {
        while !self.over {
            let cells = match self.fetch().await {
                Ok(cells) => cells,
                Err(failure) => {
                    self.recover(failure).await?;
                    continue;
                }
            };
            // Parts of a row are no progress: a scanner that is opened again begins the row again.
            match cells.whole.is_some() {
                true => self.back_off = self.cluster.new_back_off(),
                false => self.back_off.responded(Instant::now().into_std()),
            }
            if !cells.cells.is_empty() || cells.whole.is_some() {
                return Ok(Some(cells));
            }
        }
        // The row whose first parts have been returned was the last one, and the new scanner has not found it.
        let gone = std::mem::take(&mut self.again);
        Ok(gone.then(|| Cells {
            again: true,
            ..Cells::default()
        }))
    }

    /// Waits until `time`, and renews the scanner's lease meanwhile. A row larger than a response would never be read
    /// otherwise if the pauses between calls are longer than the lease.
    pub async fn wait_until(&mut self, time: Instant) {
        while let Some(open) = &self.open {
            let renewal = Instant::now() + (open.lease / 3).max(RENEWAL_MIN);
            if renewal >= time {
                break;
            }
            tokio::time::sleep_until(renewal).await;
            if self.is_old() {
                self.leave();
            } else if let Err(failure) = self.renew().await {
                // The next call opens another one, and meets the same failure.
                self.lose(&failure);
            }
        }
        tokio::time::sleep_until(time).await;
    }

    async fn renew(&mut self) -> Result<(), Failure> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let request = ScanRequest {
            scanner_id: open.id,
            next_call_seq: Some(open.next_call_seq),
            number_of_rows: Some(0),
            renew: Some(true),
            ..request()
        };
        match open.socket.call(SCAN, &request, &())?.await {
            // Not counted by the server; there is time for another attempt.
            Err(failure) if failure.remedy() == Remedy::Wait => Ok(()),
            Err(failure) => Err(failure),
            Ok(_) => {
                open.next_call_seq += 1;
                Ok(())
            }
        }
    }

    /// Whether the scanner is to be replaced. The pending row begins again then, so a row of several responses is read to its
    /// end before, and each scanner reads at least one row.
    fn is_old(&self) -> bool {
        let is_old = |open: &Open| self.age_max.is_some_and(|max| open.since.elapsed() >= max) && open.has_progress;
        !self.is_long && self.open.as_ref().is_some_and(is_old)
    }

    /// Closes the scanner. The next one begins behind the last whole row.
    fn leave(&mut self) {
        if let Some(open) = self.open.take() {
            open.close();
        }
        self.again |= self.pending.take().is_some();
    }

    /// Drops a scanner that has failed.
    fn lose(&mut self, failure: &Failure) {
        if let Some(open) = self.open.take()
            && failure.forgets()
        {
            self.cluster.forget(&self.table, &open.region);
        }
        self.again |= self.pending.take().is_some();
    }

    /// Prepares another scanner behind the last whole row.
    async fn recover(&mut self, failure: Failure) -> Result<(), Failure> {
        self.lose(&failure);
        self.cluster.back_off(&mut self.back_off, failure).await
    }

    async fn fetch(&mut self) -> Result<Cells, Failure> {
        if self.is_old() {
            self.leave();
        }
        let (response, cells) = match &mut self.open {
            None => self.open_scanner().await?,
            Some(open) => {
                let request = ScanRequest {
                    scanner_id: open.id,
                    next_call_seq: Some(open.next_call_seq),
                    ..request()
                };
                open.next_call_seq += 1;
                let answer = continued(&self.cluster, &open.socket, &request).await?;
                (decode("ScanResponse", answer.message)?, answer.cells)
            }
        };
        let before = self.pending.clone();
        let mut cells = self.take(&response, cells)?;
        self.is_long = before.is_some() && self.pending == before;
        if response.more_results == Some(false) || !response.more_results_in_region.unwrap_or_default() {
            self.region_done(&mut cells, response.more_results == Some(false))?;
        }
        Ok(cells)
    }

    /// Opens a scanner in the region of the next row; the response holds its first cells.
    async fn open_scanner(&mut self) -> Result<(ScanResponse, Bytes), Failure> {
        let region = self.cluster.locate(&self.table, &self.rows.start).await?;
        let since = Instant::now();
        let attempt = async {
            let socket = region.server.socket().await?;
            let answer = socket.call(SCAN, &self.opening(&region), &())?.await?;
            let response: ScanResponse = decode("ScanResponse", answer.message)?;
            Ok((socket, response, answer.cells))
        };
        let opened: Result<_, Failure> = attempt.await;
        let (socket, response, cells) = opened.inspect_err(|failure| {
            if failure.forgets() {
                self.cluster.forget(&self.table, &region);
            }
        })?;
        self.open = Some(Open {
            region,
            socket,
            id: response.scanner_id,
            next_call_seq: 0,
            since,
            lease: response.ttl.map_or(LEASE, |ms| Duration::from_millis(ms.into())),
            has_progress: false,
        });
        Ok((response, cells))
    }

    fn opening(&self, region: &Region) -> ScanRequest {
        let raw = NameBytesPair {
            name: "_raw_".to_owned(),
            value: Some(Bytes::from_static(&[0xff])),
        };
        let scan = messages::Scan {
            attribute: if self.view == View::Raw { vec![raw] } else { Vec::new() },
            start_row: Some(self.rows.start.clone()),
            include_start_row: Some(self.rows.include_start),
            stop_row: Some(self.rows.end.clone()),
            include_stop_row: Some(self.rows.include_end),
            max_versions: Some(i32::MAX as u32),
            // Every block is read once, and the cache belongs to the server's other clients.
            cache_blocks: Some(false),
            max_result_size: Some(RESULT_BYTES),
            caching: Some(ROWS_UNLIMITED),
            allow_partial_results: Some(true),
            ..messages::Scan::default()
        };
        ScanRequest {
            region: Some(RegionSpecifier::named(region.name.clone())),
            scan: Some(scan),
            ..request()
        }
    }

    /// Takes the results of a response.
    fn take(&mut self, response: &ScanResponse, block: Bytes) -> Result<Cells, Failure> {
        let mut taken = Cells {
            bytes: block.len() as u64,
            ..Cells::default()
        };
        let mut reader = CellReader::new(block);
        for (at, count) in response.cells_per_result.iter().enumerate() {
            let partial = response.partial_flag_per_result.get(at).copied().unwrap_or_default();
            let mut row = None;
            for _ in 0..*count {
                let (cell, tags) = reader.read_with_tags()?;
                if row.as_ref().is_some_and(|row| *row != cell.row) {
                    return Err(Failure::Protocol("a result has cells of two rows".into()));
                }
                row.get_or_insert_with(|| cell.row.clone());
                taken.cells.push((cell, tags));
            }
            if let Some(row) = row {
                self.result(row, partial, &mut taken)?;
            }
        }
        if reader.remaining() > 0 {
            return Err(Failure::Protocol("cells that belong to no result".into()));
        }
        taken.again = !taken.cells.is_empty() && std::mem::take(&mut self.again);
        Ok(taken)
    }

    /// Notes a result's row, which must not be before the rows already read.
    fn result(&mut self, row: Bytes, partial: bool, taken: &mut Cells) -> Result<(), Failure> {
        let floor = &self.rows.start;
        if row < *floor || (row == *floor && !self.rows.include_start) {
            let text = format!("row {} came again in a scan", row.escape_ascii());
            return Err(Failure::Protocol(text));
        }
        match self.pending.take() {
            Some(pending) if pending > row => {
                return Err(Failure::Protocol("rows of a scan out of order".into()));
            }
            Some(pending) if pending < row => self.whole(pending, taken),
            _ => {}
        }
        if partial {
            self.pending = Some(row);
        } else {
            self.whole(row, taken);
        }
        Ok(())
    }

    fn whole(&mut self, row: Bytes, taken: &mut Cells) {
        self.rows.start = row.clone();
        self.rows.include_start = false;
        if let Some(open) = &mut self.open {
            open.has_progress = true;
        }
        taken.whole = Some(row);
    }

    /// The region is finished: so is its last row, and the scan continues behind it.
    fn region_done(&mut self, taken: &mut Cells, scan_over: bool) -> Result<(), Failure> {
        if let Some(pending) = self.pending.take() {
            self.whole(pending, taken);
        }
        let Some(open) = self.open.take() else {
            return Err(Failure::Protocol("a response to no scanner".into()));
        };
        let end = &open.region.end;
        let last = end.is_empty() || (!self.rows.end.is_empty() && (*end > self.rows.end || self.is_behind(end)));
        self.over = scan_over || last;
        self.rows.start = end.clone();
        self.rows.include_start = true;
        Ok(())
    }

    /// Whether the rows end exactly before this row.
    fn is_behind(&self, end: &Bytes) -> bool {
        *end == self.rows.end && !self.rows.include_end
    }
}

impl Open {
    /// Closes the scanner without waiting. If the request is lost, the scanner's lease ends by itself.
    fn close(&self) {
        let Some(id) = self.id else { return };
        let request = ScanRequest {
            scanner_id: Some(id),
            number_of_rows: Some(0),
            close_scanner: Some(true),
            ..ScanRequest::default()
        };
        drop(self.socket.call(CLOSE, &request, &()));
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.close();
        }
    }
}

fn request() -> ScanRequest {
    ScanRequest {
        number_of_rows: Some(ROWS_UNLIMITED),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..ScanRequest::default()
    }
}

/// Fetches the next cells of a scanner. A server that was too busy to process the request has not counted it, so the
/// same one is sent again. Each response is progress of this scanner, so each call has pauses of its own.
async fn continued(cluster: &Cluster, socket: &Socket, request: &ScanRequest) -> Result<Response, Failure> {
    let mut back_off = cluster.new_back_off();
    loop {
        match socket.call(SCAN, request, &())?.await {
            Err(failure) if failure.remedy() == Remedy::Wait => cluster.back_off(&mut back_off, failure).await?,
            other => return other,
        }
    }
}
