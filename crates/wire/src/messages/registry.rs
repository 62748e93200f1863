//! `ClientMetaService`: a client that knows one server finds the others. Every server offers it.

use super::basic::{RegionLocation, ServerName};

/// Service name in the connection header.
pub const CLIENT_META_SERVICE: &str = "ClientMetaService";

/// A request or response without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Response of `GetClusterId`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetClusterIdResponse {
    /// Any text; HBase's own are UUIDs.
    #[prost(string, optional, tag = "1")]
    pub cluster_id: Option<String>,
}

/// Response of `GetActiveMaster`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetActiveMasterResponse {
    /// The master, if there is one.
    #[prost(message, optional, tag = "1")]
    pub server_name: Option<ServerName>,
}

/// Response of `GetMetaRegionLocations`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetMetaRegionLocationsResponse {
    /// The region of `hbase:meta`, and its read replicas.
    #[prost(message, repeated, tag = "1")]
    pub meta_locations: Vec<RegionLocation>,
}

/// Response of `GetBootstrapNodes`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetBootstrapNodesResponse {
    /// Other servers with this service.
    #[prost(message, repeated, tag = "1")]
    pub server_name: Vec<ServerName>,
}

/// Response of `GetMasters`, of clients that take masters as their registry.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetMastersResponse {
    /// All masters.
    #[prost(message, repeated, tag = "1")]
    pub master_servers: Vec<GetMastersResponseEntry>,
}

/// One master.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetMastersResponseEntry {
    /// Its address.
    #[prost(message, required, tag = "1")]
    pub server_name: ServerName,
    /// Whether it is the active one.
    #[prost(bool, required, tag = "2")]
    pub is_active: bool,
}
