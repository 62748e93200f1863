//! What a server under test must be able to do, whatever its protocol.
//!
//! Terms: a *target* is one server (or cluster) named by a URL; a *connection* is the set of sockets that the clients of
//! one generator thread share, because that is how the family's own client libraries work (calls are pipelined).
//!
//! The seam is as narrow as the experiments allow, so that a driver adds next to nothing to what its protocol costs: the
//! generator's own cost is measured against the `null://` target and printed with every report.
//!
//! Rules for drivers:
//! * An answer is returned as the server gave it. Drivers never judge values; [`crate::activity`] does.
//! * Retries follow the protocol's own client library, are bounded, and are counted ([`Connection::retries`]).
//! * What a protocol cannot do is [`TargetError::Unsupported`] with the reason, and ends up in the report.

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;

pub mod bigtable;
pub mod hbase;
pub mod lying;
pub mod memory;
pub mod null;
pub mod open;

pub use open::{TargetUrl, open};

/// Why a call was not answered as asked.
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
    /// No answer in time.
    #[error("no answer within {0} ms")]
    Timeout(u64),
    /// The server refused the request.
    #[error("refused: {0}")]
    Refused(String),
    /// The server answered something that the protocol does not allow.
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
    /// Name without namespace; the bench only ever makes and drops tables whose names start with `bench-`.
    pub name: String,
    /// Its families, at least one.
    pub families: Vec<String>,
    /// Versions that a family keeps.
    pub max_versions: u32,
    /// First rows of all tablets but the first, ascending; empty for one tablet.
    pub splits: Vec<Vec<u8>>,
    /// Block compression, where the protocol lets the client choose.
    pub compression: Compression,
    /// Marked to be held in memory, where the protocol lets the client choose.
    pub in_memory: bool,
    /// Bytes of an sstable block, where the protocol lets the client choose; the server's default when absent.
    pub block_bytes: Option<u32>,
}

/// Block compression of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// What the server does when nothing is said.
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
    /// In the server's unit; the generator compares, and never interprets it.
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
    /// Bytes of key, qualifiers and values: what the documents call the volume.
    pub fn volume(&self) -> u64 {
        let cells: usize = self.cells.iter().map(|(_, q, v)| q.len() + v.len()).sum();
        (self.key.len() + cells) as u64
    }
}

/// Which columns a read wants.
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
    /// First row not read; empty for the end of the table.
    pub end: Bytes,
    /// Most rows returned; unbounded when absent.
    pub limit: Option<u64>,
    /// Rows per call, where the protocol has such a thing (HBase's caching); the client library's default when absent.
    pub rows_per_fetch: Option<u32>,
    /// Which columns.
    pub columns: Columns,
}

/// One server under test.
#[async_trait]
pub trait Target: Send + Sync {
    /// Short name for tables and charts, such as `stele` or `hbase`.
    fn name(&self) -> &str;

    /// Whether what is written can be read again. False for `null://`, whose answers are made up and never checked.
    fn stores(&self) -> bool {
        true
    }

    /// Makes a table, and returns when it can be written.
    async fn create_table(&self, table: &TableSpec) -> Result<()>;

    /// Drops a table with everything in it; one that does not exist is fine.
    async fn drop_table(&self, name: &str) -> Result<()>;

    /// Asks the server to write what it holds in memory to files, where the protocol can say so.
    async fn flush_table(&self, name: &str) -> Result<()>;

    /// Opens what the clients of one thread share. Called on the thread that will use it, inside its runtime.
    async fn connect(&self) -> Result<Arc<dyn Connection>>;

    /// What the server says of itself (version, cluster id), for the report.
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

    /// Reads rows in order, handing each one to `sink` until that breaks or the range is done.
    async fn scan(
        &self,
        table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()>;

    /// Adds to a big-endian 64-bit counter and returns its new value.
    async fn increment(&self, table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64>;

    /// Writes `put` if the newest version of the column equals `expected` (`None`: if the column has no value); whether
    /// it did.
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
