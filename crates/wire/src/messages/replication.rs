//! The call with which a cluster ships its log to another one. The cells travel in the request's cell block.

use bytes::Bytes;

/// Where an entry of the log comes from.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WalKey {
    /// Its region.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub encoded_region_name: Bytes,
    /// Its table: `table` or `namespace:table`.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub table_name: Bytes,
    /// Its number in the log of the region.
    #[prost(uint64, required, tag = "3")]
    pub log_sequence_number: u64,
    /// When it was written, in ms since 1970.
    #[prost(uint64, required, tag = "4")]
    pub write_time: u64,
}

/// An entry of the log: changes that were written together.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WalEntry {
    /// Its origin.
    #[prost(message, required, tag = "1")]
    pub key: WalKey,
    /// Cells within the message; sources have not sent any since HBase 0.96.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub key_value_bytes: Vec<Bytes>,
    /// Cells in the cell block.
    #[prost(int32, optional, tag = "3")]
    pub associated_cell_count: Option<i32>,
}

/// Argument of `ReplicateWALEntry`. The response is empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplicateWalEntryRequest {
    /// The entries, those of a region in the order of its log.
    #[prost(message, repeated, tag = "1")]
    pub entry: Vec<WalEntry>,
    /// Id of the cluster that ships them.
    #[prost(string, optional, tag = "2")]
    pub replication_cluster_id: Option<String>,
}
