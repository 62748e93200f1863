//! Names of tables, regions and servers, schemas, and pairs.
//!
//! They are parts of the messages of several services.

use bytes::Bytes;

/// Namespace of tables whose names have none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Name of a table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct TableName {
    /// `default` for most tables, `hbase` for those of the system.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub namespace: Bytes,
    /// Name within it.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub qualifier: Bytes,
}

/// Kinds of name that a [`RegionSpecifier`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RegionSpecifierType {
    /// By its whole name ([`crate::region::name`]).
    RegionName = 1,
    /// By the hash at the end of the whole name.
    EncodedRegionName = 2,
}

/// The region of a call.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegionSpecifier {
    /// The kind of its name.
    #[prost(enumeration = "RegionSpecifierType", required, tag = "1")]
    pub r#type: i32,
    /// The name.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub value: Bytes,
}

impl RegionSpecifier {
    /// The region of this whole name.
    pub fn named(name: Bytes) -> Self {
        let r#type = RegionSpecifierType::RegionName as i32;
        Self { r#type, value: name }
    }
}

/// A region: a range of a table's rows.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegionInfo {
    /// Time of its creation, in ms since 1970; 1 for the region of `hbase:meta`.
    #[prost(uint64, required, tag = "1")]
    pub region_id: u64,
    /// Its table.
    #[prost(message, required, tag = "2")]
    pub table_name: TableName,
    /// First row; empty for the first region of a table.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub start_key: Option<Bytes>,
    /// First row behind the region; empty for the last region of a table.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub end_key: Option<Bytes>,
    /// Taken off line, as the parents of a split are.
    #[prost(bool, optional, tag = "5")]
    pub offline: Option<bool>,
    /// Has been split.
    #[prost(bool, optional, tag = "6")]
    pub split: Option<bool>,
    /// 0 unless it is a read replica.
    #[prost(int32, optional, tag = "7")]
    pub replica_id: Option<i32>,
}

/// One server process.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ServerName {
    /// Host.
    #[prost(string, required, tag = "1")]
    pub host_name: String,
    /// Port.
    #[prost(uint32, optional, tag = "2")]
    pub port: Option<u32>,
    /// Time of its start, in ms since 1970.
    #[prost(uint64, optional, tag = "3")]
    pub start_code: Option<u64>,
}

/// The server of a region.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegionLocation {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region_info: RegionInfo,
    /// Its server.
    #[prost(message, optional, tag = "2")]
    pub server_name: Option<ServerName>,
    /// Sequence number when it was opened; -1 if unknown.
    #[prost(int64, required, tag = "3")]
    pub seq_num: i64,
}

/// Text and bytes. As an error: a class and its message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NameBytesPair {
    /// The text.
    #[prost(string, required, tag = "1")]
    pub name: String,
    /// The bytes.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

/// Two texts.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NameStringPair {
    /// The key.
    #[prost(string, required, tag = "1")]
    pub name: String,
    /// The value.
    #[prost(string, required, tag = "2")]
    pub value: String,
}

/// Two byte strings.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BytesBytesPair {
    /// The key.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub first: Bytes,
    /// The value.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub second: Bytes,
}

/// A table as its owner described it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableSchema {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub table_name: Option<TableName>,
    /// Attributes, all of them text.
    #[prost(message, repeated, tag = "2")]
    pub attributes: Vec<BytesBytesPair>,
    /// Families.
    #[prost(message, repeated, tag = "3")]
    pub column_families: Vec<ColumnFamilySchema>,
    /// Settings of the server that are different for this table.
    #[prost(message, repeated, tag = "4")]
    pub configuration: Vec<NameStringPair>,
}

/// A family as its owner described it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ColumnFamilySchema {
    /// Its name.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub name: Bytes,
    /// Attributes such as `VERSIONS`, all of them text.
    #[prost(message, repeated, tag = "2")]
    pub attributes: Vec<BytesBytesPair>,
    /// Settings of the server that are different for this family.
    #[prost(message, repeated, tag = "3")]
    pub configuration: Vec<NameStringPair>,
}

/// States of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TableStateKind {
    /// Served.
    Enabled = 0,
    /// Not served.
    Disabled = 1,
    /// On its way to `Disabled`.
    Disabling = 2,
    /// On its way to `Enabled`.
    Enabling = 3,
}

/// State of a table, the value of column `table:state` in `hbase:meta`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TableState {
    /// The state.
    #[prost(enumeration = "TableStateKind", required, tag = "1")]
    pub state: i32,
}

/// Times, in ms unless the table's user gave others.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TimeRange {
    /// First.
    #[prost(uint64, optional, tag = "1")]
    pub from: Option<u64>,
    /// First time behind the range.
    #[prost(uint64, optional, tag = "2")]
    pub to: Option<u64>,
}
