//! `stele.admin.v1.Cluster`: `docs/cluster.md`.

use prost::Message;

/// Path of the call that tells servers and tablets.
pub const GET_CLUSTER_STATUS_PATH: &str = "/stele.admin.v1.Cluster/GetStatus";
/// Path of the call that moves a tablet.
pub const MOVE_TABLET_PATH: &str = "/stele.admin.v1.Cluster/MoveTablet";
/// Path of the call that moves all tablets away from a server.
pub const DRAIN_SERVER_PATH: &str = "/stele.admin.v1.Cluster/DrainServer";
/// Path of the call that splits a tablet.
pub const SPLIT_TABLET_PATH: &str = "/stele.admin.v1.Cluster/SplitTablet";
/// Path of the call that merges tablets.
pub const MERGE_TABLETS_PATH: &str = "/stele.admin.v1.Cluster/MergeTablets";
/// Path of the call that tells which work servers do by themselves.
pub const GET_SWITCHES_PATH: &str = "/stele.admin.v1.Cluster/GetSwitches";
/// Path of the call that switches such work on and off.
pub const SET_SWITCHES_PATH: &str = "/stele.admin.v1.Cluster/SetSwitches";

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
    /// The leader's last check. Absent from a server of an earlier version.
    #[prost(message, optional, tag = "5")]
    pub check: Option<ClusterCheck>,
}

/// The last comparison of the catalog, the manifests of tablets, and the files of the cluster.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClusterCheck {
    /// Milliseconds since it began. Absent if the leader has completed none yet.
    #[prost(uint64, optional, tag = "1")]
    pub began_millis_ago: Option<u64>,
    /// Tablets that were compared.
    #[prost(uint64, tag = "2")]
    pub tablets: u64,
    /// Files that tablets or snapshots name.
    #[prost(uint64, tag = "3")]
    pub files: u64,
    /// Bytes of those that tablets name.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// Files that nothing needs; they are deleted after a grace period.
    #[prost(uint64, tag = "5")]
    pub unneeded: u64,
    /// Contradictions, a sentence each.
    #[prost(string, repeated, tag = "6")]
    pub findings: Vec<String>,
    /// Further ones that are not described.
    #[prost(uint64, tag = "7")]
    pub more: u64,
    /// Why no later check was completed; empty if none has failed since.
    #[prost(string, tag = "8")]
    pub waits_for: String,
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
    /// Since when it has not been served, or moves, as the leader has seen it.
    #[prost(uint64, tag = "7")]
    pub waited_millis: u64,
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

/// Splits a tablet. A single server has this call and the following ones, too.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SplitTabletRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Which tablet; 0 for the one with the row.
    #[prost(uint64, tag = "2")]
    pub tablet: u64,
    /// The first row of the upper half; empty for the middle.
    #[prost(bytes = "vec", tag = "3")]
    pub row: Vec<u8>,
}

/// The halves of a tablet.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SplitTabletResponse {
    /// The tablet of the lower rows.
    #[prost(uint64, tag = "1")]
    pub left: u64,
    /// The tablet of the others.
    #[prost(uint64, tag = "2")]
    pub right: u64,
}

/// Makes one tablet of neighbours.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MergeTabletsRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// 2 to 16 neighbours, in any order.
    #[prost(uint64, repeated, tag = "2")]
    pub tablets: Vec<u64>,
}

/// The tablet that was made.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MergeTabletsResponse {
    /// Which tablet.
    #[prost(uint64, tag = "1")]
    pub tablet: u64,
}

/// Asks for the switches.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct GetSwitchesRequest {}

/// The work that servers do by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Switches {
    /// Tablets move to servers with less load.
    #[prost(bool, tag = "1")]
    pub balance: bool,
    /// Tablets are split.
    #[prost(bool, tag = "2")]
    pub split: bool,
    /// Tablets are merged.
    #[prost(bool, tag = "3")]
    pub merge: bool,
    /// Expired snapshots of clients are deleted. Absent from a server of an earlier version.
    #[prost(bool, optional, tag = "4")]
    pub snapshot_cleanup: Option<bool>,
}

/// Switches work on or off; an absent field leaves it as it is. The answer has the positions before.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SetSwitchesRequest {
    /// Of [`Switches::balance`].
    #[prost(bool, optional, tag = "1")]
    pub balance: Option<bool>,
    /// Of [`Switches::split`].
    #[prost(bool, optional, tag = "2")]
    pub split: Option<bool>,
    /// Of [`Switches::merge`].
    #[prost(bool, optional, tag = "3")]
    pub merge: Option<bool>,
    /// Of [`Switches::snapshot_cleanup`].
    #[prost(bool, optional, tag = "4")]
    pub snapshot_cleanup: Option<bool>,
}
