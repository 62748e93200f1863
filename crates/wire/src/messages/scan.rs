//! `ClientService.Scan`: ranges of rows, by scanners that the server keeps open between requests.

use super::basic::{NameBytesPair, RegionSpecifier, TimeRange};
use super::client::{Column, FamilyTimeRange, Filter, RowResult};
use bytes::Bytes;

/// Ways for a scan to read files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ReadType {
    /// The server's choice.
    Default = 0,
    /// In long sequential runs.
    Stream = 1,
    /// By position.
    Pread = 2,
}

/// A range of rows to read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Scan {
    /// Columns; all when empty.
    #[prost(message, repeated, tag = "1")]
    pub column: Vec<Column>,
    /// Attributes that change its execution.
    #[prost(message, repeated, tag = "2")]
    pub attribute: Vec<NameBytesPair>,
    /// First row; of a reversed scan the last in the table's order. Empty for the end of the table at which it starts.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub start_row: Option<Bytes>,
    /// Row at which it stops; empty for the other end of the table.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub stop_row: Option<Bytes>,
    /// A filter that each returned cell passes.
    #[prost(message, optional, tag = "5")]
    pub filter: Option<Filter>,
    /// Cells of these times.
    #[prost(message, optional, tag = "6")]
    pub time_range: Option<TimeRange>,
    /// Newest versions of each column; one when absent.
    #[prost(uint32, optional, tag = "7")]
    pub max_versions: Option<u32>,
    /// Whether blocks read are kept in the cache; true when absent.
    #[prost(bool, optional, tag = "8")]
    pub cache_blocks: Option<bool>,
    /// Most cells of a result.
    #[prost(uint32, optional, tag = "9")]
    pub batch_size: Option<u32>,
    /// Bytes after which a response ends.
    #[prost(uint64, optional, tag = "10")]
    pub max_result_size: Option<u64>,
    /// Most cells of each family in a row.
    #[prost(uint32, optional, tag = "11")]
    pub store_limit: Option<u32>,
    /// Cells of each family in a row that are skipped before those.
    #[prost(uint32, optional, tag = "12")]
    pub store_offset: Option<u32>,
    /// Whether families that the filter does not need are read only for rows that pass; the server's choice when absent.
    #[prost(bool, optional, tag = "13")]
    pub load_column_families_on_demand: Option<bool>,
    /// Whether the scan ends with its first response; old clients ask for it.
    #[prost(bool, optional, tag = "14")]
    pub small: Option<bool>,
    /// Backwards.
    #[prost(bool, optional, tag = "15")]
    pub reversed: Option<bool>,
    /// Rows of each response.
    #[prost(uint32, optional, tag = "17")]
    pub caching: Option<u32>,
    /// Whether the client accepts partial rows.
    #[prost(bool, optional, tag = "18")]
    pub allow_partial_results: Option<bool>,
    /// Times of single families, instead of `time_range`.
    #[prost(message, repeated, tag = "19")]
    pub cf_time_range: Vec<FamilyTimeRange>,
    /// Of a scan that continues in the middle of a row: the read point of its beginning.
    #[prost(uint64, optional, tag = "20")]
    pub mvcc_read_point: Option<u64>,
    /// Whether `start_row` itself is wanted; true when absent.
    #[prost(bool, optional, tag = "21")]
    pub include_start_row: Option<bool>,
    /// Whether `stop_row` itself is wanted; false when absent.
    #[prost(bool, optional, tag = "22")]
    pub include_stop_row: Option<bool>,
    /// How files are read.
    #[prost(enumeration = "ReadType", optional, tag = "23")]
    pub read_type: Option<i32>,
    /// Whether heartbeats carry the row that the scan has reached.
    #[prost(bool, optional, tag = "24")]
    pub need_cursor_result: Option<bool>,
}

/// Argument of `Scan`: opens a scanner (`scan` is set), fetches its next rows, or closes it (`scanner_id` is set).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScanRequest {
    /// Region, on opening.
    #[prost(message, optional, tag = "1")]
    pub region: Option<RegionSpecifier>,
    /// The scan, on opening.
    #[prost(message, optional, tag = "2")]
    pub scan: Option<Scan>,
    /// The open scanner.
    #[prost(uint64, optional, tag = "3")]
    pub scanner_id: Option<u64>,
    /// Most rows of the response. Absent on opening: no rows yet.
    #[prost(uint32, optional, tag = "4")]
    pub number_of_rows: Option<u32>,
    /// Closes the scanner.
    #[prost(bool, optional, tag = "5")]
    pub close_scanner: Option<bool>,
    /// 0 for the first request after opening, then one more for each request.
    #[prost(uint64, optional, tag = "6")]
    pub next_call_seq: Option<u64>,
    /// Whether a response may hold partial rows.
    #[prost(bool, optional, tag = "7")]
    pub client_handles_partials: Option<bool>,
    /// Whether there may be responses without rows.
    #[prost(bool, optional, tag = "8")]
    pub client_handles_heartbeats: Option<bool>,
    /// Whether the response carries [`ScanMetrics`].
    #[prost(bool, optional, tag = "9")]
    pub track_scan_metrics: Option<bool>,
    /// Extends the scanner's lease and does nothing else.
    #[prost(bool, optional, tag = "10")]
    pub renew: Option<bool>,
    /// Rows after which the server closes the scanner by itself; zero for never.
    #[prost(uint32, optional, tag = "11")]
    pub limit_of_rows: Option<u32>,
}

/// Response of `Scan`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScanResponse {
    /// Cells of the block that belong to each result.
    #[prost(uint32, repeated, packed = "false", tag = "1")]
    pub cells_per_result: Vec<u32>,
    /// The scanner.
    #[prost(uint64, optional, tag = "2")]
    pub scanner_id: Option<u64>,
    /// False when the whole scan is over.
    #[prost(bool, optional, tag = "3")]
    pub more_results: Option<bool>,
    /// Lease of the scanner in ms.
    #[prost(uint32, optional, tag = "4")]
    pub ttl: Option<u32>,
    /// The rows, if the client has no codec for cell blocks.
    #[prost(message, repeated, tag = "5")]
    pub results: Vec<RowResult>,
    /// Whether rows may lag behind.
    #[prost(bool, optional, tag = "6")]
    pub stale: Option<bool>,
    /// For each result, whether its row continues in the next one.
    #[prost(bool, repeated, packed = "false", tag = "7")]
    pub partial_flag_per_result: Vec<bool>,
    /// False when the region is finished; the scanner is closed then.
    #[prost(bool, optional, tag = "8")]
    pub more_results_in_region: Option<bool>,
    /// Whether the server is still searching and has no rows yet.
    #[prost(bool, optional, tag = "9")]
    pub heartbeat_message: Option<bool>,
    /// Counters of the call.
    #[prost(message, optional, tag = "10")]
    pub scan_metrics: Option<ScanMetrics>,
    /// The read point of the scan.
    #[prost(uint64, optional, tag = "11")]
    pub mvcc_read_point: Option<u64>,
    /// The row that the scan has reached, in a heartbeat.
    #[prost(message, optional, tag = "12")]
    pub cursor: Option<Cursor>,
}

/// A position in a scan.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Cursor {
    /// The row.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub row: Option<Bytes>,
}

/// Counters of a scan.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanMetrics {
    /// By name.
    #[prost(message, repeated, tag = "1")]
    pub metrics: Vec<NameInt64Pair>,
}

/// A named number.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NameInt64Pair {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The number.
    #[prost(int64, optional, tag = "2")]
    pub value: Option<i64>,
}
