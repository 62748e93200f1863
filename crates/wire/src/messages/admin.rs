//! `AdminService`: calls about one region, sent to the server of that region.

use super::basic::RegionSpecifier;
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
