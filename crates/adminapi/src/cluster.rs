//! `stele.admin.v1.Cluster`: `docs/cluster.md`.

use prost::Message;

/// Path of the call that tells servers and tablets.
pub const GET_CLUSTER_STATUS_PATH: &str = "/stele.admin.v1.Cluster/GetStatus";
/// Path of the call that moves a tablet.
pub const MOVE_TABLET_PATH: &str = "/stele.admin.v1.Cluster/MoveTablet";
/// Path of the call that moves all tablets away from a server.
pub const DRAIN_SERVER_PATH: &str = "/stele.admin.v1.Cluster/DrainServer";

/// Asks for the status of the cluster.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetClusterStatusRequest {
    /// Whether tablets are listed.
    #[prost(bool, tag = "1")]
    pub tablets: bool,
}

/// Servers and tablets at one moment.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClusterStatus {
    /// The number of the leader.
    #[prost(uint32, tag = "1")]
    pub leader: u32,
    /// Servers that live, and former ones whose logs are needed.
    #[prost(message, repeated, tag = "2")]
    pub servers: Vec<Server>,
    /// Tablets, by table and row.
    #[prost(message, repeated, tag = "3")]
    pub tablets: Vec<Tablet>,
    /// Tablets that are not served, or move.
    #[prost(uint64, tag = "4")]
    pub unsettled: u64,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Server {
    /// Its number: one life of a process.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Whether it has a session.
    #[prost(bool, tag = "2")]
    pub lives: bool,
    /// Whether its log is sealed.
    #[prost(bool, tag = "3")]
    pub sealed: bool,
    /// Whether its tablets move away.
    #[prost(bool, tag = "4")]
    pub drains: bool,
    /// Address for other servers.
    #[prost(string, tag = "5")]
    pub peer: String,
    /// Address of the Bigtable API.
    #[prost(string, tag = "6")]
    pub bigtable: String,
    /// Address of the HBase API.
    #[prost(string, tag = "7")]
    pub hbase: String,
    /// Address of health and metrics.
    #[prost(string, tag = "8")]
    pub http: String,
    /// Version of the program.
    #[prost(string, tag = "9")]
    pub version: String,
    /// Tablets that it owns.
    #[prost(uint64, tag = "10")]
    pub tablets: u64,
    /// Bytes of its memtables.
    #[prost(uint64, tag = "11")]
    pub memtable_bytes: u64,
    /// Bytes of its log.
    #[prost(uint64, tag = "12")]
    pub log_bytes: u64,
}

/// One tablet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Tablet {
    /// The table, as instance/table.
    #[prost(string, tag = "1")]
    pub table: String,
    /// Its number.
    #[prost(uint64, tag = "2")]
    pub tablet: u64,
    /// Its first row.
    #[prost(bytes = "vec", tag = "3")]
    pub start: Vec<u8>,
    /// The server that owns it; 0 for none.
    #[prost(uint32, tag = "4")]
    pub owner: u32,
    /// Bytes of files and memtables.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// The event that it waits for; empty when it is served and does not move.
    #[prost(string, tag = "6")]
    pub waits_for: String,
}

/// Moves a tablet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MoveTabletRequest {
    /// Which tablet.
    #[prost(uint64, tag = "1")]
    pub tablet: u64,
    /// The server that shall have it.
    #[prost(uint32, tag = "2")]
    pub server: u32,
}

/// Moves all tablets away from a server, or ends that.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DrainServerRequest {
    /// Which server.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Let it have tablets again.
    #[prost(bool, tag = "2")]
    pub undo: bool,
}
