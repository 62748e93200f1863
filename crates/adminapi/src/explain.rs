//! `stele.admin.v1.Reads`: `docs/explain.md`.

use prost::Message;
use prost::bytes::Bytes;

/// Path of the call that makes a read and tells the work that it took.
pub const EXPLAIN_READ_PATH: &str = "/stele.admin.v1.Reads/ExplainRead";

/// Asks for the work behind a read.
#[derive(Clone, PartialEq, Message)]
pub struct ExplainReadRequest {
    /// A message `google.bigtable.v2.ReadRowsRequest`.
    #[prost(bytes = "bytes", tag = "1")]
    pub read: Bytes,
}

/// The work behind a read.
#[derive(Clone, PartialEq, Message)]
pub struct ExplainReadResponse {
    /// By tablet, in the order of the read.
    #[prost(message, repeated, tag = "1")]
    pub tablets: Vec<TabletWork>,
    /// Tablets were left out, and not read: there are too many.
    #[prost(bool, tag = "2")]
    pub incomplete: bool,
}

/// The part of a read in one tablet. Counts of files and blocks are of the server that answers; those of a tablet on another
/// one are 0.
#[derive(Clone, PartialEq, Message)]
pub struct TabletWork {
    /// The tablet.
    #[prost(uint64, tag = "1")]
    pub tablet: u64,
    /// `host:port` of the other server that has the tablet; empty for this one.
    #[prost(string, tag = "2")]
    pub server: String,
    /// The tablet's first row.
    #[prost(bytes = "bytes", tag = "3")]
    pub start: Bytes,
    /// The row before which the tablet ends; empty for the end of the table.
    #[prost(bytes = "bytes", tag = "4")]
    pub end: Bytes,
    /// Time of the read in it.
    #[prost(uint64, tag = "5")]
    pub micros: u64,
    /// Rows returned.
    #[prost(uint64, tag = "6")]
    pub rows: u64,
    /// Cells before the filter.
    #[prost(uint64, tag = "7")]
    pub cells_seen: u64,
    /// Cells returned.
    #[prost(uint64, tag = "8")]
    pub cells_passed: u64,
    /// Rows that the row cache had.
    #[prost(uint64, tag = "9")]
    pub row_cache_hits: u64,
    /// Memtables of the tablet that are not empty.
    #[prost(uint64, tag = "10")]
    pub memtables: u64,
    /// Sorted runs of the tablet.
    #[prost(uint64, tag = "11")]
    pub runs: u64,
    /// Files of the tablet.
    #[prost(uint64, tag = "12")]
    pub files: u64,
    /// Files of which a block or a value was used.
    #[prost(uint64, tag = "13")]
    pub files_used: u64,
    /// Questions to bloom filters.
    #[prost(uint64, tag = "14")]
    pub filters_asked: u64,
    /// Those that ruled a file out.
    #[prost(uint64, tag = "15")]
    pub filters_excluded: u64,
    /// Blocks from the block cache, those of indexes among them.
    #[prost(uint64, tag = "16")]
    pub blocks_cached: u64,
    /// Blocks from storage.
    #[prost(uint64, tag = "17")]
    pub blocks_read: u64,
    /// Bytes read from storage for them, as stored.
    #[prost(uint64, tag = "18")]
    pub block_bytes_read: u64,
    /// Values read from value files.
    #[prost(uint64, tag = "19")]
    pub values_read: u64,
    /// Bytes of them, as stored.
    #[prost(uint64, tag = "20")]
    pub value_bytes_read: u64,
}
