//! Scans: a scanner for each region in turn, and rows assembled from their results.
//!
//! The response that opens a scanner already holds rows. A scanner that the server has lost is opened again behind the
//! last whole row. Parts of a row that had arrived by then are dropped, and the row is read again. As in HBase's own
//! client there is one request at a time.

use super::requests;
use super::rows::{Assembly, RowReader};
use crate::target::{Row, Scan};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use stele_hbaseclient::locations::Region;
use stele_hbaseclient::socket::{Method, Socket};
use stele_hbaseclient::{Cluster, Failure, Remedy};
use stele_wire::messages::{self, RegionSpecifier, ScanRequest, ScanResponse, decode};

/// Bytes after which a response ends: HBase's `hbase.client.scanner.max.result.size`.
const RESULT_BYTES: u64 = 2 << 20;

/// Rows of a response without an explicit number: as many as those bytes hold.
const ROWS_UNLIMITED: u32 = i32::MAX as u32;

const SCAN: Method = Method::named("Scan");

/// Priority with which HBase's client closes scanners: closing frees memory of a busy server.
const CLOSE: Method = Method {
    name: "Scan",
    priority: 200,
};

/// Receives rows until it breaks.
pub type Sink<'a> = &'a mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send);

/// Reads a range.
pub async fn run(cluster: &Cluster, table: &str, scan: &Scan, sink: Sink<'_>) -> Result<(), Failure> {
    let mut progress = Progress::new(scan);
    let mut back_off = cluster.new_back_off();
    while !progress.over {
        let (seen, mut region) = (progress.returned, None);
        let result = region_scan(cluster, table, &mut progress, &mut region, sink).await;
        let Err(failure) = result else { continue };
        if let Some(region) = region.filter(|_| failure.forgets()) {
            cluster.forget(table, &region);
        }
        if progress.returned > seen {
            // The scan has progressed, so a later failure is not a repetition of the earlier ones.
            back_off = cluster.new_back_off();
        }
        progress.reopen();
        cluster.back_off(&mut back_off, failure).await?;
    }
    Ok(())
}

/// How far a scan is.
struct Progress<'a> {
    scan: &'a Scan,
    /// Start row of the next scanner.
    start: Bytes,
    /// Whether that row itself is included.
    include_start: bool,
    /// The last row given to the sink.
    last: Option<Bytes>,
    /// Rows given to the sink.
    returned: u64,
    assembly: Assembly,
    over: bool,
}

impl<'a> Progress<'a> {
    fn new(scan: &'a Scan) -> Self {
        Self {
            scan,
            start: scan.start.clone(),
            include_start: true,
            last: None,
            returned: 0,
            assembly: Assembly::default(),
            over: scan.limit == Some(0) || (!scan.end.is_empty() && scan.start >= scan.end),
        }
    }

    fn left(&self) -> Option<u64> {
        self.scan.limit.map(|limit| limit.saturating_sub(self.returned))
    }

    /// Gives a row to the sink.
    fn give(&mut self, row: &Row, sink: Sink<'_>) {
        if self.over {
            return;
        }
        self.returned += 1;
        self.last = Some(row.key.clone());
        self.over = sink(row).is_break() || self.left() == Some(0);
    }

    /// Takes the results of a response.
    fn take(&mut self, response: &ScanResponse, cells: Bytes, sink: Sink<'_>) -> Result<(), Failure> {
        let mut reader = RowReader::new(cells);
        let (counts, partial) = (&response.cells_per_result, &response.partial_flag_per_result);
        for (at, count) in counts.iter().enumerate() {
            let Some(piece) = reader.row(*count as usize)? else {
                continue;
            };
            let (ended, row) = self.assembly.push(piece, partial.get(at).copied().unwrap_or_default());
            for row in [ended, row].into_iter().flatten() {
                self.give(&row, sink);
            }
        }
        reader.finish()
    }

    /// The region is finished: so is its last row, and the scan continues behind it.
    fn region_done(&mut self, region: &Region, sink: Sink<'_>) {
        if let Some(row) = self.assembly.take() {
            self.give(&row, sink);
        }
        self.over |= region.end.is_empty() || (!self.scan.end.is_empty() && region.end >= self.scan.end);
        self.start = region.end.clone();
        self.include_start = true;
        self.last = None;
    }

    /// A scanner was lost: the next one begins behind the last whole row.
    fn reopen(&mut self) {
        let _ = self.assembly.take();
        if let Some(last) = self.last.take() {
            self.start = last;
            self.include_start = false;
        }
    }

    fn open_request(&self, region: &Region) -> ScanRequest {
        let rows = self.rows_per_fetch();
        let scan = messages::Scan {
            column: requests::columns(&self.scan.columns),
            start_row: Some(self.start.clone()),
            stop_row: Some(self.scan.end.clone()),
            max_versions: requests::max_versions(&self.scan.columns),
            max_result_size: Some(RESULT_BYTES),
            caching: Some(rows),
            include_start_row: Some(self.include_start),
            ..messages::Scan::default()
        };
        let region = Some(RegionSpecifier::named(region.name.clone()));
        ScanRequest {
            region,
            scan: Some(scan),
            ..self.request()
        }
    }

    fn request(&self) -> ScanRequest {
        ScanRequest {
            number_of_rows: Some(self.rows_per_fetch()),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            // One server takes a larger limit for no limit, so the limit is enforced here.
            limit_of_rows: self
                .left()
                .and_then(|left| u32::try_from(left).ok())
                .filter(|left| *left < ROWS_UNLIMITED),
            ..ScanRequest::default()
        }
    }

    fn rows_per_fetch(&self) -> u32 {
        self.scan
            .rows_per_fetch
            .unwrap_or(ROWS_UNLIMITED)
            .clamp(1, ROWS_UNLIMITED)
    }
}

/// Continues in the region that has the next row, until the region or the scan is over.
async fn region_scan(
    cluster: &Cluster,
    table: &str,
    progress: &mut Progress<'_>,
    at: &mut Option<Arc<Region>>,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let region = at.insert(cluster.locate(table, &progress.start).await?).clone();
    let socket = region.server.socket().await?;
    let answer = socket.call(SCAN, &progress.open_request(&region), &())?.await?;
    let mut response: ScanResponse = decode("ScanResponse", answer.message)?;
    let mut cells = answer.cells;
    let scanner_id = response.scanner_id;
    let mut next_call_seq = 0;
    loop {
        progress.take(&response, cells, sink)?;
        let more_in_region = response.more_results_in_region.unwrap_or_default();
        if response.more_results == Some(false) {
            if let Some(row) = progress.assembly.take() {
                progress.give(&row, sink);
            }
            progress.over = true;
            return Ok(());
        }
        if !more_in_region {
            progress.region_done(&region, sink);
            return Ok(());
        }
        let scanner_id = scanner_id.ok_or_else(|| Failure::Protocol("a scanner without an id".into()))?;
        if progress.over {
            close(&socket, scanner_id);
            return Ok(());
        }
        let request = ScanRequest {
            scanner_id: Some(scanner_id),
            next_call_seq: Some(next_call_seq),
            ..progress.request()
        };
        next_call_seq += 1;
        let answer = next(cluster, &socket, &request).await?;
        response = decode("ScanResponse", answer.message)?;
        cells = answer.cells;
    }
}

/// Fetches the next rows of a scanner. A server that was too busy to process the request has not counted it, so the
/// same one is sent again.
async fn next(
    cluster: &Cluster,
    socket: &Socket,
    request: &ScanRequest,
) -> Result<stele_wire::frame::Response, Failure> {
    let mut back_off = cluster.new_back_off();
    loop {
        match socket.call(SCAN, request, &())?.await {
            Err(failure) if failure.remedy() == Remedy::Wait => cluster.back_off(&mut back_off, failure).await?,
            other => return other,
        }
    }
}

/// Closes a scanner, without waiting for the response. If the request is lost, the scanner's lease ends by itself.
fn close(socket: &Socket, scanner_id: u64) {
    let request = ScanRequest {
        scanner_id: Some(scanner_id),
        number_of_rows: Some(0),
        close_scanner: Some(true),
        ..ScanRequest::default()
    };
    drop(socket.call(CLOSE, &request, &()));
}
