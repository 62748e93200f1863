//! The operations that every driver of a server under test provides.
//!
//! Terms: a *target* is one server (or cluster) named by a URL. A *connection* is the set of sockets that the clients
//! of one generator thread share. The family's own client libraries share them in this way (calls are pipelined).
//!
//! The interface is as narrow as the experiments allow, so that a driver adds almost nothing to the cost of its
//! protocol. The generator's own cost is measured against the `null://` target and printed with every report.
//!
//! Rules for drivers:
//! * A response is returned as the server gave it. Drivers never judge values; [`crate::activity`] does.
//! * Retries follow the protocol's own client library, are bounded, and are counted ([`Connection::retries`]).
//! * An operation that a protocol lacks fails with [`TargetError::Unsupported`] and the reason, which the report shows.

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;

pub mod bigtable;
pub mod dial;
pub mod hbase;
pub mod lying;
pub mod memory;
pub mod null;
pub mod open;

pub use open::{TargetUrl, open};

/// Errors of a call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TargetError {
    /// The protocol, or this server, has no such operation.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The server could not be reached, or the connection broke, and retries did not help.
    #[error("connection: {0}")]
    Connection(String),
    /// The server was busy, or a tablet was moving, for longer than the retries lasted.
    #[error("busy: {0}")]
    Busy(String),
    /// No response in time.
    #[error("no response within {0} ms")]
    Timeout(u64),
    /// The server refused the request.
    #[error("refused: {0}")]
    Refused(String),
    /// The server's response violates the protocol.
    #[error("protocol: {0}")]
    Protocol(String),
}

impl TargetError {
    /// One word, under which failures are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "unsupported",
            Self::Connection(_) => "connection",
            Self::Busy(_) => "busy",
            Self::Timeout(_) => "timeout",
            Self::Refused(_) => "refused",
            Self::Protocol(_) => "protocol",
        }
    }
}

/// The result of a call on a target.
pub type Result<T> = std::result::Result<T, TargetError>;

/// A table to be created.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Name without namespace. The bench only ever creates and drops tables whose names start with `bench-`.
    pub name: String,
    /// Its families, at least one.
    pub families: Vec<String>,
    /// Most versions of a cell in a family.
    pub max_versions: u32,
    /// First rows of all tablets but the first, ascending; empty for one tablet.
    pub splits: Vec<Vec<u8>>,
    /// Block compression, where the protocol lets the client choose.
    pub compression: Compression,
    /// Served from memory, where the protocol lets the client choose.
    pub in_memory: bool,
    /// Bytes of an sstable block, where the protocol lets the client choose; the server's default when absent.
    pub block_bytes: Option<u32>,
}

/// Block compression of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// The server's choice.
    #[default]
    ServerDefault,
    /// None.
    None,
    /// Snappy, as the 2012 evaluation used.
    Snappy,
}

/// One cell as a server returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Family name.
    pub family: Bytes,
    /// Qualifier within the family.
    pub qualifier: Bytes,
    /// In the server's unit. The generator only compares it.
    pub timestamp: i64,
    /// The value.
    pub value: Bytes,
}

/// One row as a server returned it: key and at least one cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Row key.
    pub key: Bytes,
    /// Its cells in the server's order.
    pub cells: Vec<Cell>,
}

/// A write of whole cells to one row, at the server's time.
#[derive(Debug, Clone)]
pub struct Put {
    /// Row key.
    pub key: Bytes,
    /// Family, qualifier and value of each cell.
    pub cells: Vec<(Arc<str>, Bytes, Bytes)>,
}

impl Put {
    /// Bytes of key, qualifiers and values: the volume in the documents' terms.
    pub fn volume(&self) -> u64 {
        let cells: usize = self.cells.iter().map(|(_, q, v)| q.len() + v.len()).sum();
        (self.key.len() + cells) as u64
    }
}

/// The columns of a read.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// Families; all of them when empty.
    pub families: Vec<Arc<str>>,
    /// Qualifiers within those families; all of them when empty. Never set without exactly one family.
    pub qualifiers: Vec<Bytes>,
    /// Newest versions of each column; zero stands for one.
    pub versions: u32,
}

/// A range of rows to read.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// First row.
    pub start: Bytes,
    /// First row behind the range; empty for the end of the table.
    pub end: Bytes,
    /// Most rows returned; unbounded when absent.
    pub limit: Option<u64>,
    /// Rows per call, where the protocol has that parameter (HBase's caching). The client library's default when
    /// absent.
    pub rows_per_fetch: Option<u32>,
    /// Which columns.
    pub columns: Columns,
}

/// One server under test.
#[async_trait]
pub trait Target: Send + Sync {
    /// Short name for tables and charts, such as `stele` or `hbase`.
    fn name(&self) -> &str;

    /// Whether written data can be read again. False for `null://`, whose responses are prepared and never checked.
    fn stores(&self) -> bool {
        true
    }

    /// Creates a table, and returns when it can be written.
    async fn create_table(&self, table: &TableSpec) -> Result<()>;

    /// Drops a table with all its contents. A missing table is no error.
    async fn drop_table(&self, name: &str) -> Result<()>;

    /// Asks the server to write its memory to files, where the protocol has such a call.
    async fn flush_table(&self, name: &str) -> Result<()>;

    /// Opens the connection that the clients of one thread share. Called on that thread, inside its runtime.
    async fn connect(&self) -> Result<Arc<dyn Connection>>;

    /// The server's description of itself (version, cluster id), for the report.
    async fn describe(&self) -> Result<Vec<(String, String)>>;
}

/// The sockets shared by the clients of one thread. Calls may overlap freely.
#[async_trait]
pub trait Connection: Send + Sync {
    /// Writes one row; returns when the server has acknowledged it.
    async fn put(&self, table: &str, put: Put) -> Result<()>;

    /// Writes many rows, as the flush of a client's write buffer; returns when every row is acknowledged. On an error,
    /// any of the rows may or may not be written.
    async fn put_many(&self, table: &str, puts: Vec<Put>) -> Result<()>;

    /// Reads one row; `None` if it does not exist or has none of the columns.
    async fn get(&self, table: &str, key: Bytes, columns: &Columns) -> Result<Option<Row>>;

    /// Reads rows in order and passes each to `sink`, until that breaks or the range is done.
    async fn scan(
        &self,
        table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()>;

    /// Adds to a big-endian 64-bit counter and returns its new value.
    async fn increment(&self, table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64>;

    /// Writes `put` if the newest version of the column equals `expected` (`None`: if the column has no value). Returns
    /// whether it did.
    async fn check_and_put(
        &self,
        table: &str,
        family: &str,
        qualifier: Bytes,
        expected: Option<Bytes>,
        put: Put,
    ) -> Result<bool>;

    /// Deletes columns of a row: those of `qualifiers` in `family`, or the whole row when `family` is `None`.
    async fn delete(&self, table: &str, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()>;

    /// Requests sent again so far.
    fn retries(&self) -> u64;
}
