//! `stele.admin.v1.LocalityGroups`: `docs/locality-groups.md`.

use prost::{Message, Oneof};

/// Path of the call that describes the groups of a table.
pub const GET_GROUPS_PATH: &str = "/stele.admin.v1.LocalityGroups/GetLocalityGroups";
/// Path of the call that changes them.
pub const MODIFY_GROUPS_PATH: &str = "/stele.admin.v1.LocalityGroups/ModifyLocalityGroups";

/// Asks for the groups of a table.
#[derive(Clone, PartialEq, Message)]
pub struct GetLocalityGroupsRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Changes the groups of a table, all or nothing.
#[derive(Clone, PartialEq, Message)]
pub struct ModifyLocalityGroupsRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Made in order.
    #[prost(message, repeated, tag = "2")]
    pub modifications: Vec<Modification>,
}

/// A change of one group.
#[derive(Clone, PartialEq, Message)]
pub struct Modification {
    /// The group's name.
    #[prost(string, tag = "1")]
    pub group: String,
    /// The change.
    #[prost(oneof = "Change", tags = "2, 3, 4")]
    pub change: Option<Change>,
}

/// The change of a group.
#[derive(Clone, PartialEq, Oneof)]
pub enum Change {
    /// It is made. Options that are absent take their defaults.
    #[prost(message, tag = "2")]
    Create(Options),
    /// Options that are present change.
    #[prost(message, tag = "3")]
    Alter(Options),
    /// The family of this name is moved to it, with all it has.
    #[prost(string, tag = "4")]
    MoveFamily(String),
}

/// The groups of a table.
#[derive(Clone, PartialEq, Message)]
pub struct LocalityGroupsResponse {
    /// The first is where new families go.
    #[prost(message, repeated, tag = "1")]
    pub groups: Vec<LocalityGroup>,
}

/// A group.
#[derive(Clone, PartialEq, Message)]
pub struct LocalityGroup {
    /// Unique within the table.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Absent ones are the server's defaults.
    #[prost(message, optional, tag = "2")]
    pub options: Option<Options>,
    /// Its families, by name.
    #[prost(string, repeated, tag = "3")]
    pub families: Vec<String>,
    /// Those of them of which compactions have not brought everything yet.
    #[prost(string, repeated, tag = "4")]
    pub arriving: Vec<String>,
}

/// Options of a group, or a change of some.
#[derive(Clone, PartialEq, Message)]
pub struct Options {
    /// `none`, `lz4`, `snappy` or `zstd`.
    #[prost(string, optional, tag = "1")]
    pub compression: Option<String>,
    /// 1 to 19, for zstd.
    #[prost(uint32, optional, tag = "2")]
    pub zstd_level: Option<u32>,
    /// Bytes of the dictionary of each file, for zstd; 0 for none.
    #[prost(uint32, optional, tag = "3")]
    pub dictionary_bytes: Option<u32>,
    /// Content of a data block; 0 for the default.
    #[prost(uint32, optional, tag = "4")]
    pub block_bytes: Option<u32>,
    /// Bits per row of the filter; 0 for none.
    #[prost(uint32, optional, tag = "5")]
    pub filter_bits_per_row: Option<u32>,
    /// Retain its blocks in memory as far as the cache allows.
    #[prost(bool, optional, tag = "6")]
    pub in_memory: Option<bool>,
    /// Bytes at which a file is ended; 0 for the default.
    #[prost(uint64, optional, tag = "7")]
    pub file_bytes: Option<u64>,
}
