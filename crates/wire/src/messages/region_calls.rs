//! Calls of the master about single regions.

use super::basic::{RegionInfo, RegionSpecifier, ServerName};
use bytes::Bytes;

/// Argument of `SplitRegion`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SplitRegionRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region_info: RegionInfo,
    /// First row of the second half; the middle when absent or empty.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub split_row: Option<Bytes>,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Argument of `TruncateRegion`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TruncateRegionRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region_info: RegionInfo,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
}

/// Argument of `MergeTableRegions`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MergeTableRegionsRequest {
    /// The regions.
    #[prost(message, repeated, tag = "1")]
    pub region: Vec<RegionSpecifier>,
    /// Also regions that are no neighbours.
    #[prost(bool, optional, tag = "3")]
    pub forcible: Option<bool>,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "4")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "5")]
    pub nonce: Option<u64>,
}

/// Argument of `MoveRegion`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MoveRegionRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// Where to; the master chooses when absent.
    #[prost(message, optional, tag = "2")]
    pub dest_server_name: Option<ServerName>,
}

/// A request that begins with a region, of which nothing else matters here (`AssignRegion`, `UnassignRegion`,
/// `OfflineRegion`, `GetStoreFile`, `getLastMajorCompactionTimestampForRegion`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OneRegion {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
}

/// Response of `getLastMajorCompactionTimestamp` and `getLastMajorCompactionTimestampForRegion`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MajorCompactionTimestampResponse {
    /// The time in ms since 1970; 0 if unknown.
    #[prost(int64, required, tag = "1")]
    pub compaction_timestamp: i64,
}
