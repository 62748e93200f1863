//! `ClientService`: reads and writes of single rows.
//!
//! [`super::multi`] has batches of rows, [`super::scan`] ranges.
//!
//! The place of cells depends on the call: responses carry them in the cell block, a Mutate in the message, a Multi in
//! the request's cell block. `associated_cell_count` is the number of cells of the block that belong to a result or
//! mutation. Cells of the block are in the order in which messages mention them.

use super::basic::{NameBytesPair, RegionSpecifier, TimeRange};
use bytes::Bytes;

/// Service name in the connection header.
pub const CLIENT_SERVICE: &str = "ClientService";

/// Columns of one family.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Column {
    /// The family.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    /// Qualifiers; all when empty.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub qualifier: Vec<Bytes>,
}

/// A filter: the name of its Java class, and that class's own message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Filter {
    /// Class.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub name: Bytes,
    /// Message.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub serialized_filter: Option<Bytes>,
}

/// A comparator: the name of its Java class, and that class's own message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Comparator {
    /// Class.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub name: Bytes,
    /// Message.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub serialized_comparator: Option<Bytes>,
}

/// Class of the comparator that compares whole values.
pub const BINARY_COMPARATOR: &str = "org.apache.hadoop.hbase.filter.BinaryComparator";

/// Message of [`BINARY_COMPARATOR`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BinaryComparator {
    /// The value to compare with.
    #[prost(message, required, tag = "1")]
    pub comparable: ByteArrayComparable,
}

/// Bytes to compare with.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ByteArrayComparable {
    /// The bytes. Absent stands for an empty value.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

/// Comparisons of two values. In a [`Condition`] the given value stands left of the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CompareType {
    /// `<`
    Less = 0,
    /// `<=`
    LessOrEqual = 1,
    /// `=`
    Equal = 2,
    /// `<>`
    NotEqual = 3,
    /// `>=`
    GreaterOrEqual = 4,
    /// `>`
    Greater = 5,
    /// Never.
    NoOp = 6,
}

/// A read of one row.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Get {
    /// The row.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    /// Columns; all when empty.
    #[prost(message, repeated, tag = "2")]
    pub column: Vec<Column>,
    /// Attributes that change its execution.
    #[prost(message, repeated, tag = "3")]
    pub attribute: Vec<NameBytesPair>,
    /// A filter that each returned cell passes.
    #[prost(message, optional, tag = "4")]
    pub filter: Option<Filter>,
    /// Cells of these times.
    #[prost(message, optional, tag = "5")]
    pub time_range: Option<TimeRange>,
    /// Newest versions of each column; one when absent.
    #[prost(uint32, optional, tag = "6")]
    pub max_versions: Option<u32>,
    /// Whether blocks read are kept in the cache; true when absent.
    #[prost(bool, optional, tag = "7")]
    pub cache_blocks: Option<bool>,
    /// Most columns of each family.
    #[prost(uint32, optional, tag = "8")]
    pub store_limit: Option<u32>,
    /// Columns of each family that are skipped before those.
    #[prost(uint32, optional, tag = "9")]
    pub store_offset: Option<u32>,
    /// Asks only whether there is such a row.
    #[prost(bool, optional, tag = "10")]
    pub existence_only: Option<bool>,
    /// Asks for the row or the one before it, which no server of version 2 answers.
    #[prost(bool, optional, tag = "11")]
    pub closest_row_before: Option<bool>,
    /// Times of single families, instead of `time_range`.
    #[prost(message, repeated, tag = "13")]
    pub cf_time_range: Vec<FamilyTimeRange>,
    /// Whether families that the filter does not need are read only for rows that pass; the server's choice when absent.
    #[prost(bool, optional, tag = "14")]
    pub load_column_families_on_demand: Option<bool>,
}

/// Times of the cells of one family.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FamilyTimeRange {
    /// The family.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub column_family: Bytes,
    /// Its times.
    #[prost(message, required, tag = "2")]
    pub time_range: TimeRange,
}

/// Argument of `Get`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetRequest {
    /// Region of the row.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// The read.
    #[prost(message, required, tag = "2")]
    pub get: Get,
}

/// A cell within a message, for clients without a codec for cell blocks.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CellMessage {
    /// Row key.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub row: Option<Bytes>,
    /// Family.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub family: Option<Bytes>,
    /// Qualifier.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub qualifier: Option<Bytes>,
    /// Time.
    #[prost(uint64, optional, tag = "4")]
    pub timestamp: Option<u64>,
    /// Its meaning: a [`crate::cell::CellType`].
    #[prost(int32, optional, tag = "5")]
    pub cell_type: Option<i32>,
    /// Value.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub value: Option<Bytes>,
}

/// The requested part of a row.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RowResult {
    /// Its cells, if the client has no codec for cell blocks: an encoded [`CellMessage`] each. Decoded ones are several times as large.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub cell: Vec<Bytes>,
    /// Cells of the block that belong to it.
    #[prost(int32, optional, tag = "2")]
    pub associated_cell_count: Option<i32>,
    /// Result when only existence was requested.
    #[prost(bool, optional, tag = "3")]
    pub exists: Option<bool>,
    /// Whether it may lag behind other replicas.
    #[prost(bool, optional, tag = "4")]
    pub stale: Option<bool>,
    /// Whether more of the row follows in the next result.
    #[prost(bool, optional, tag = "5")]
    pub partial: Option<bool>,
}

/// Response of `Get`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetResponse {
    /// The row; no cells if it does not exist.
    #[prost(message, optional, tag = "1")]
    pub result: Option<RowResult>,
}

/// Kinds of [`MutationProto`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MutationType {
    /// Bytes appended to the stored value.
    Append = 0,
    /// A number added to the stored one.
    Increment = 1,
    /// Cells written.
    Put = 2,
    /// Cells deleted.
    Delete = 3,
}

/// Extent of one cell of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum DeleteType {
    /// The version of that time, or the newest.
    OneVersion = 0,
    /// All versions of the column up to that time.
    MultipleVersions = 1,
    /// All cells of the family up to that time.
    Family = 2,
    /// All cells of the family of exactly that time.
    FamilyVersion = 3,
}

/// Condition for the acknowledgement of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Durability {
    /// As the table's schema defines it.
    UseDefault = 0,
    /// No log is written.
    SkipWal = 1,
    /// Acknowledged before the log is written.
    AsyncWal = 2,
    /// Acknowledged when the log has left the process.
    SyncWal = 3,
    /// Acknowledged when the log is on disk.
    FsyncWal = 4,
}

/// A change of one row.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MutationProto {
    /// The row.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub row: Option<Bytes>,
    /// Its kind.
    #[prost(enumeration = "MutationType", optional, tag = "2")]
    pub mutate_type: Option<i32>,
    /// Cells, unless they are in the cell block.
    #[prost(message, repeated, tag = "3")]
    pub column_value: Vec<ColumnValue>,
    /// Time of cells that have none of their own; the server's time when absent.
    #[prost(uint64, optional, tag = "4")]
    pub timestamp: Option<u64>,
    /// Attributes that change its execution.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<NameBytesPair>,
    /// See [`Durability`].
    #[prost(enumeration = "Durability", optional, tag = "6")]
    pub durability: Option<i32>,
    /// Of an increment or append: times of the cells that it starts from.
    #[prost(message, optional, tag = "7")]
    pub time_range: Option<TimeRange>,
    /// Cells of the block that belong to it.
    #[prost(int32, optional, tag = "8")]
    pub associated_cell_count: Option<i32>,
    /// With the request's nonce group: makes an increment or append safe to repeat.
    #[prost(uint64, optional, tag = "9")]
    pub nonce: Option<u64>,
}

/// Cells of one family within a message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnValue {
    /// The family.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    /// Its cells.
    #[prost(message, repeated, tag = "2")]
    pub qualifier_value: Vec<QualifierValue>,
}

/// One cell within a message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QualifierValue {
    /// Qualifier.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub qualifier: Option<Bytes>,
    /// Value; of an increment, a big-endian 64-bit number.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
    /// Time.
    #[prost(uint64, optional, tag = "3")]
    pub timestamp: Option<u64>,
    /// Of a delete: see [`DeleteType`].
    #[prost(enumeration = "DeleteType", optional, tag = "4")]
    pub delete_type: Option<i32>,
    /// Serialized tags.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub tags: Option<Bytes>,
}

/// Condition of a mutation, which is carried out only if it holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Condition {
    /// The row.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    /// Family of the column that is compared.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub family: Option<Bytes>,
    /// Its qualifier.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub qualifier: Option<Bytes>,
    /// The comparison.
    #[prost(enumeration = "CompareType", optional, tag = "4")]
    pub compare_type: Option<i32>,
    /// The value compared with. Equal to an empty value also holds for a column that does not exist.
    #[prost(message, optional, tag = "5")]
    pub comparator: Option<Comparator>,
    /// Cells of these times.
    #[prost(message, optional, tag = "6")]
    pub time_range: Option<TimeRange>,
    /// Replaces column and comparator: holds if any cell of the row passes.
    #[prost(message, optional, tag = "7")]
    pub filter: Option<Filter>,
}

/// Argument of `Mutate`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MutateRequest {
    /// Region of the row.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// The change.
    #[prost(message, required, tag = "2")]
    pub mutation: MutationProto,
    /// Condition of the change.
    #[prost(message, optional, tag = "3")]
    pub condition: Option<Condition>,
    /// Names the client, for its nonces.
    #[prost(uint64, optional, tag = "4")]
    pub nonce_group: Option<u64>,
}

/// Response of `Mutate`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MutateResponse {
    /// New values of an increment or append.
    #[prost(message, optional, tag = "1")]
    pub result: Option<RowResult>,
    /// Whether it was carried out: false if the condition did not hold.
    #[prost(bool, optional, tag = "2")]
    pub processed: Option<bool>,
}
