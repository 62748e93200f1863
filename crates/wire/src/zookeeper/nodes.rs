//! The contents of the nodes by which HBase clients find a cluster. Each is `PBUF` and a message.

use crate::WireError;
use crate::messages::ServerName;
use crate::meta::MAGIC;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// The region of `hbase:meta` is served.
pub const STATE_OPEN: i32 = 3;

/// Of `hbaseid`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterId {
    /// The cluster's id.
    #[prost(string, required, tag = "1")]
    pub cluster_id: String,
}

/// Of `master`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Master {
    /// The active master.
    #[prost(message, required, tag = "1")]
    pub master: ServerName,
    /// Version of its protocol.
    #[prost(uint32, optional, tag = "2")]
    pub rpc_version: Option<u32>,
    /// Port of its web pages.
    #[prost(uint32, optional, tag = "3")]
    pub info_port: Option<u32>,
}

/// Of `meta-region-server`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetaRegionServer {
    /// The server of the region.
    #[prost(message, required, tag = "1")]
    pub server: ServerName,
    /// Version of its protocol.
    #[prost(uint32, optional, tag = "2")]
    pub rpc_version: Option<u32>,
    /// [`STATE_OPEN`] while it is served.
    #[prost(int32, optional, tag = "3")]
    pub state: Option<i32>,
}

/// Of the node of a server below `rs`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RegionServerInfo {
    /// Port of its web pages.
    #[prost(int32, optional, tag = "1")]
    pub info_port: Option<i32>,
}

/// Of `running`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterUp {
    /// When the cluster was started.
    #[prost(string, required, tag = "1")]
    pub start_date: String,
}

/// The data of a node.
pub fn encode(message: &impl Message) -> Bytes {
    let mut data = BytesMut::with_capacity(MAGIC.len() + message.encoded_len());
    data.put_slice(MAGIC);
    data.put_slice(&message.encode_to_vec());
    data.freeze()
}

/// The message in the data of a node; `what` is its type.
///
/// # Errors
/// Data that does not begin with `PBUF`, or that is no such message.
pub fn decode<M: Message + Default>(what: &'static str, mut data: Bytes) -> Result<M, WireError> {
    if !data.starts_with(MAGIC) {
        let found = data.get(..MAGIC.len()).unwrap_or(&data).escape_ascii().to_string();
        return Err(WireError::unexpected(what, "PBUF", found));
    }
    data.advance(MAGIC.len());
    crate::messages::decode(what, data)
}
