//! Serves `Scan`: opens, continues and closes scanners.
//!
//! The first call opens the scanner and returns rows already. A scanner reads one region; the client opens the next one
//! in the next region. A scanner that has reached the end of its region is closed without another call.

use crate::call::{Call, Reply};
use crate::cells::{ResultRow, RowsBlock};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::get::region_and_schema;
use crate::meta_scan::MetaScanner;
use crate::region_scan::RegionScanner;
use crate::regions;
use crate::scan_batch::{Batch, CallLimits};
use crate::scanners::{InUse, LEASE, Scanner};
use std::time::Duration;
use stele_types::TableSchema;
use stele_wire::exception;
use stele_wire::messages::{Cursor, NameInt64Pair, ScanMetrics, ScanRequest, ScanResponse};

/// Bytes of a response if the client does not say: HBase's default.
const RESULT_BYTES: u64 = 2 << 20;
/// Bytes of a response at most, even if the client asks for more.
const RESULT_BYTES_MAX: u64 = 8 << 20;
/// A call that finds nothing for this long responds without rows. A client waits twice as long by default.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(30);

/// Serves a call.
pub(crate) async fn scan(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: ScanRequest = call.message("ScanRequest")?;
    match (request.scanner_id, &request.scan) {
        (Some(number), _) => resume(shared, call, &request, number).await,
        (None, Some(_)) => open(shared, call, &request).await,
        (None, None) => Err(Failure::do_not_retry("Missing required input: scannerId or scan")),
    }
}

async fn open(shared: &Shared, call: &Call, request: &ScanRequest) -> Outcome<Reply> {
    let region = request
        .region
        .as_ref()
        .ok_or_else(|| Failure::do_not_retry("a scan without a region"))?;
    let scan = request
        .scan
        .as_ref()
        .ok_or_else(|| Failure::do_not_retry("a scan without its rows"))?;
    let scanner = if regions::is_meta(region) {
        Scanner::Meta(Box::new(MetaScanner::new(shared, scan)?))
    } else {
        let (region, schema) = region_and_schema(shared, call, region)?;
        let rows_max = rows_limit(request);
        Scanner::Region(Box::new(RegionScanner::new(shared, &region, schema, scan, rows_max)?))
    };
    let in_use = shared.scanners.open(matches!(scanner, Scanner::Meta(_)))?;
    serve(shared, call, request, in_use, scanner).await
}

/// Rows that the scan returns at most, if that is known from its beginning.
fn rows_limit(request: &ScanRequest) -> Option<u64> {
    let limit = request.limit_of_rows.filter(|limit| *limit > 0).map(u64::from);
    let only_call = request
        .close_scanner()
        .then(|| u64::from(request.number_of_rows.unwrap_or(0)));
    limit.into_iter().chain(only_call).min()
}

async fn resume(shared: &Shared, call: &Call, request: &ScanRequest, number: u64) -> Outcome<Reply> {
    if request.renew() {
        shared.scanners.renew(number, request.next_call_seq)?;
        return call.reply(&ScanResponse {
            scanner_id: Some(number),
            ttl: Some(LEASE.as_millis() as u32),
            more_results: Some(true),
            ..ScanResponse::default()
        });
    }
    if request.close_scanner() && request.number_of_rows.unwrap_or(0) == 0 {
        shared.scanners.close(number);
        return call.reply(&ScanResponse {
            scanner_id: Some(number),
            more_results: Some(false),
            more_results_in_region: Some(false),
            ..ScanResponse::default()
        });
    }
    let (in_use, scanner) = shared.scanners.take(number, request.next_call_seq)?;
    let outcome = serve(shared, call, request, in_use, scanner).await;
    outcome.map_err(|failure| {
        // The client opens the scanner again behind the last row that it has.
        match failure.class {
            exception::REGION_TOO_BUSY => Failure::new(exception::SCANNER_RESET, failure.message),
            _ => failure,
        }
    })
}

/// Reads the rows of a call, and puts the scanner back unless it is over or failed.
async fn serve(
    shared: &Shared,
    call: &Call,
    request: &ScanRequest,
    in_use: InUse<'_>,
    mut scanner: Scanner,
) -> Outcome<Reply> {
    let limits = limits(call, request, scanner.result_bytes());
    let batch = match &mut scanner {
        Scanner::Region(scanner) => scanner.next(shared, &limits).await?,
        Scanner::Meta(scanner) => scanner.next(shared, &limits).await?,
    };
    let schema = scanner.schema().clone();
    let number = in_use.number();
    let (reply, stays_open) = reply(call, request, number, &schema, batch, scanner.wants_cursor())?;
    if stays_open {
        in_use.put_back(scanner);
    }
    Ok(reply)
}

fn limits(call: &Call, request: &ScanRequest, result_bytes: Option<u64>) -> CallLimits {
    let results = request.number_of_rows.unwrap_or(u32::from(!request.close_scanner()));
    let waits = call.request.header.timeout.filter(|timeout| *timeout > 0);
    let time = waits.map_or(SEARCH_TIME_MAX, |ms| Duration::from_millis(u64::from(ms)) / 2);
    let bytes = result_bytes.filter(|bytes| *bytes > 0).unwrap_or(RESULT_BYTES);
    CallLimits {
        results: results as usize,
        rows_left: request.limit_of_rows.filter(|limit| *limit > 0).map(u64::from),
        bytes: bytes.min(RESULT_BYTES_MAX) as usize,
        partials: request.client_handles_partials(),
        heartbeat: request.client_handles_heartbeats().then_some(time.min(SEARCH_TIME_MAX)),
    }
}

impl Scanner {
    fn schema(&self) -> &std::sync::Arc<TableSchema> {
        match self {
            Scanner::Region(scanner) => &scanner.schema,
            Scanner::Meta(_) => &crate::meta_table::SCHEMA,
        }
    }

    fn result_bytes(&self) -> Option<u64> {
        match self {
            Scanner::Region(scanner) => scanner.result_bytes,
            Scanner::Meta(scanner) => scanner.result_bytes,
        }
    }

    fn wants_cursor(&self) -> bool {
        match self {
            Scanner::Region(scanner) => scanner.wants_cursor,
            Scanner::Meta(_) => false,
        }
    }
}

/// The response of a call, and whether the scanner stays open.
fn reply(
    call: &Call,
    request: &ScanRequest,
    number: u64,
    schema: &TableSchema,
    mut batch: Batch,
    wants_cursor: bool,
) -> Outcome<(Reply, bool)> {
    let stays_open = batch.more_in_region && !batch.is_over && !request.close_scanner();
    let in_message = call.client.cells == crate::cells::CellPlace::Message;
    let result = |(row, partial): (&mut ResultRow, &bool)| {
        let mut result = call.client.cells.take_result(schema, row);
        result.partial = Some(*partial);
        result
    };
    let metric = |name: &str, value: u64| NameInt64Pair {
        name: Some(name.to_owned()),
        value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
    };
    let response = ScanResponse {
        cells_per_result: match in_message {
            true => Vec::new(),
            false => batch.rows.iter().map(|row| row.cells.len() as u32).collect(),
        },
        results: match in_message {
            true => batch.rows.iter_mut().zip(&batch.partial).map(result).collect(),
            false => Vec::new(),
        },
        partial_flag_per_result: match in_message {
            true => Vec::new(),
            false => batch.partial,
        },
        scanner_id: Some(number),
        more_results: Some(!batch.is_over),
        more_results_in_region: Some(batch.more_in_region && !batch.is_over),
        ttl: Some(LEASE.as_millis() as u32),
        stale: Some(false),
        heartbeat_message: Some(batch.is_heartbeat),
        mvcc_read_point: request.scan.is_some().then_some(1),
        cursor: batch
            .reached
            .filter(|_| wants_cursor)
            .map(|row| Cursor { row: Some(row) }),
        scan_metrics: request.track_scan_metrics().then(|| ScanMetrics {
            metrics: vec![
                metric("ROWS_SCANNED", batch.rows_seen),
                metric("ROWS_FILTERED", batch.rows_seen.saturating_sub(batch.rows_passed)),
            ],
        }),
    };
    let mut reply = call.reply_with(
        &response,
        &RowsBlock {
            schema,
            rows: &batch.rows,
        },
    )?;
    reply.memory = batch.memory;
    Ok((reply, stays_open))
}
