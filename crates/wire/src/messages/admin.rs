//! `AdminService`: calls about one region, sent to the server of that region.

use super::basic::{RegionInfo, RegionSpecifier, ServerName, TableName};
use super::cluster::RegionLoad;
use bytes::Bytes;

/// Service name in the connection header.
pub const ADMIN_SERVICE: &str = "AdminService";

/// Argument of `FlushRegion`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FlushRegionRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// Only if its last flush was before this time, in ms since 1970.
    #[prost(uint64, optional, tag = "2")]
    pub if_older_than_ts: Option<u64>,
    /// Whether read replicas are notified when nothing was flushed.
    #[prost(bool, optional, tag = "3")]
    pub write_flush_wal_marker: Option<bool>,
    /// Only this family.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub family: Option<Bytes>,
}

/// Response of `FlushRegion`, sent when the flush is over.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FlushRegionResponse {
    /// Time of its last flush, in ms since 1970.
    #[prost(uint64, required, tag = "1")]
    pub last_flush_time: u64,
    /// Whether there was something to flush.
    #[prost(bool, optional, tag = "2")]
    pub flushed: Option<bool>,
    /// See the request.
    #[prost(bool, optional, tag = "3")]
    pub wrote_flush_wal_marker: Option<bool>,
}

/// Argument of `CompactRegion`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CompactRegionRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// All files into one.
    #[prost(bool, optional, tag = "2")]
    pub major: Option<bool>,
    /// Only this family.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub family: Option<Bytes>,
}

/// Argument of `GetRegionInfo`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetRegionInfoRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// Whether the response has the state of compactions.
    #[prost(bool, optional, tag = "2")]
    pub compaction_state: Option<bool>,
    /// Whether the response has a row to split at.
    #[prost(bool, optional, tag = "3")]
    pub best_split_row: Option<bool>,
}

/// Compactions of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CompactionStateKind {
    /// None.
    None = 0,
    /// Of some files.
    Minor = 1,
    /// Of all files.
    Major = 2,
    /// Both.
    MajorAndMinor = 3,
}

/// Response of `GetRegionInfo`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetRegionInfoResponse {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region_info: RegionInfo,
    /// Its compactions.
    #[prost(enumeration = "CompactionStateKind", optional, tag = "2")]
    pub compaction_state: Option<i32>,
    /// Whether it can be split.
    #[prost(bool, optional, tag = "4")]
    pub splittable: Option<bool>,
    /// Whether it can be merged.
    #[prost(bool, optional, tag = "5")]
    pub mergeable: Option<bool>,
    /// A row to split at.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub best_split_row: Option<Bytes>,
}

/// Response of `GetOnlineRegion`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetOnlineRegionResponse {
    /// The server's regions.
    #[prost(message, repeated, tag = "1")]
    pub region_info: Vec<RegionInfo>,
}

/// Argument of `GetRegionLoad`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetRegionLoadRequest {
    /// Only of this table.
    #[prost(message, optional, tag = "1")]
    pub table_name: Option<TableName>,
}

/// Response of `GetRegionLoad`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetRegionLoadResponse {
    /// The regions.
    #[prost(message, repeated, tag = "1")]
    pub region_loads: Vec<RegionLoad>,
}

/// Response of `GetServerInfo`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetServerInfoResponse {
    /// The server.
    #[prost(message, required, tag = "1")]
    pub server_info: ServerInfo,
}

/// A server.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerInfo {
    /// The server.
    #[prost(message, required, tag = "1")]
    pub server_name: ServerName,
    /// Port of its web pages.
    #[prost(uint32, optional, tag = "2")]
    pub webui_port: Option<u32>,
}

/// Argument of `ClearRegionBlockCache`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClearRegionBlockCacheRequest {
    /// The regions.
    #[prost(message, repeated, tag = "1")]
    pub region: Vec<RegionSpecifier>,
}

/// Response of `ClearRegionBlockCache`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ClearRegionBlockCacheResponse {
    /// The numbers.
    #[prost(message, required, tag = "1")]
    pub stats: CacheEvictionStats,
}

/// The blocks that were taken out of a cache.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CacheEvictionStats {
    /// Their number.
    #[prost(int64, optional, tag = "1")]
    pub evicted_blocks: Option<i64>,
    /// Their size.
    #[prost(int64, optional, tag = "2")]
    pub bytes_evicted: Option<i64>,
    /// Size of the cache.
    #[prost(int64, optional, tag = "3")]
    pub max_cache_size: Option<i64>,
}
