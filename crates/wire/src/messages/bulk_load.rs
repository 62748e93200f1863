//! Bulk loads: files of cells that a region takes over.

use super::basic::{RegionSpecifier, TableName};
use bytes::Bytes;

/// A file for a family.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FamilyPath {
    /// The family.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    /// URL of the file.
    #[prost(string, required, tag = "2")]
    pub path: String,
}

/// Argument of `BulkLoadHFile`. Tokens of file systems are not read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BulkLoadHFileRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// The files.
    #[prost(message, repeated, tag = "2")]
    pub family_path: Vec<FamilyPath>,
    /// Whether the cells are newer than those that are there.
    #[prost(bool, optional, tag = "3")]
    pub assign_seq_num: Option<bool>,
    /// From `PrepareBulkLoad`; the same for all calls of one load.
    #[prost(string, optional, tag = "5")]
    pub bulk_token: Option<String>,
    /// Whether the files stay where they are.
    #[prost(bool, optional, tag = "6")]
    pub copy_file: Option<bool>,
    /// Clusters that the load has come through.
    #[prost(string, repeated, tag = "7")]
    pub cluster_ids: Vec<String>,
    /// Whether the load is to be replicated.
    #[prost(bool, optional, tag = "8")]
    pub replicate: Option<bool>,
}

/// Response of `BulkLoadHFile`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BulkLoadHFileResponse {
    /// False if a file does not fit into the region: the client locates the regions again, and divides the file.
    #[prost(bool, required, tag = "1")]
    pub loaded: bool,
}

/// Argument of `PrepareBulkLoad`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PrepareBulkLoadRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// Some region of it.
    #[prost(message, optional, tag = "2")]
    pub region: Option<RegionSpecifier>,
}

/// Response of `PrepareBulkLoad`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PrepareBulkLoadResponse {
    /// Names the load.
    #[prost(string, required, tag = "1")]
    pub bulk_token: String,
}

/// Argument of `CleanupBulkLoad`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CleanupBulkLoadRequest {
    /// The load.
    #[prost(string, required, tag = "1")]
    pub bulk_token: String,
    /// Some region of the table.
    #[prost(message, optional, tag = "2")]
    pub region: Option<RegionSpecifier>,
}
