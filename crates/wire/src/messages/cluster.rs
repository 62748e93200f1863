//! `GetClusterStatus`: the servers of a cluster, their load, and the states of regions.

use super::basic::{RegionSpecifier, ServerName, TableName};

/// Parts of a [`ClusterStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ClusterOption {
    /// `hbase_version`.
    HbaseVersion = 0,
    /// `cluster_id`.
    ClusterId = 1,
    /// `live_servers`.
    LiveServers = 2,
    /// `dead_servers`.
    DeadServers = 3,
    /// `master`.
    Master = 4,
    /// `backup_masters`.
    BackupMasters = 5,
    /// `master_coprocessors`.
    MasterCoprocessors = 6,
    /// `regions_in_transition`.
    RegionsInTransition = 7,
    /// `balancer_on`.
    BalancerOn = 8,
    /// `master_info_port`.
    MasterInfoPort = 9,
    /// `servers_name`.
    ServersName = 10,
    /// `table_region_states_count`.
    TableToRegionsCount = 11,
    /// `master_tasks`.
    Tasks = 12,
    /// `unknown_servers`.
    UnknownServers = 13,
}

/// Argument of `GetClusterStatus`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetClusterStatusRequest {
    /// The requested parts; everything when empty.
    #[prost(enumeration = "ClusterOption", repeated, packed = "false", tag = "1")]
    pub options: Vec<i32>,
}

/// Response of `GetClusterStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetClusterStatusResponse {
    /// The requested parts.
    #[prost(message, required, tag = "1")]
    pub cluster_status: ClusterStatus,
}

/// The members of the cluster and their load. Parts that are empty on this server are left out: dead and unknown
/// servers, regions in transition, coprocessors, tasks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterStatus {
    /// Version of the master.
    #[prost(message, optional, tag = "1")]
    pub hbase_version: Option<OneText>,
    /// Region servers with their load.
    #[prost(message, repeated, tag = "2")]
    pub live_servers: Vec<LiveServerInfo>,
    /// The cluster's id.
    #[prost(message, optional, tag = "5")]
    pub cluster_id: Option<OneText>,
    /// The master.
    #[prost(message, optional, tag = "7")]
    pub master: Option<ServerName>,
    /// Servers that can take over as master.
    #[prost(message, repeated, tag = "8")]
    pub backup_masters: Vec<ServerName>,
    /// Whether regions are moved to spread load.
    #[prost(bool, optional, tag = "9")]
    pub balancer_on: Option<bool>,
    /// Port of the master's web pages; -1 for none.
    #[prost(int32, optional, tag = "10")]
    pub master_info_port: Option<i32>,
    /// Region servers.
    #[prost(message, repeated, tag = "11")]
    pub servers_name: Vec<ServerName>,
    /// States of the regions of each table.
    #[prost(message, repeated, tag = "12")]
    pub table_region_states_count: Vec<TableRegionStatesCount>,
}

/// A message that holds one text (`HBaseVersionFileContent`, `ClusterId`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OneText {
    /// The text.
    #[prost(string, required, tag = "1")]
    pub text: String,
}

/// A server that is up.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LiveServerInfo {
    /// The server.
    #[prost(message, required, tag = "1")]
    pub server: ServerName,
    /// Its load.
    #[prost(message, required, tag = "2")]
    pub server_load: ServerLoad,
}

/// The load of a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerLoad {
    /// Requests in a second.
    #[prost(uint64, optional, tag = "1")]
    pub number_of_requests: Option<u64>,
    /// Requests since it was started.
    #[prost(uint64, optional, tag = "2")]
    pub total_number_of_requests: Option<u64>,
    /// Memory in use, in MB.
    #[prost(uint32, optional, tag = "3")]
    pub used_heap_mb: Option<u32>,
    /// Memory that it may use, in MB.
    #[prost(uint32, optional, tag = "4")]
    pub max_heap_mb: Option<u32>,
    /// Its regions.
    #[prost(message, repeated, tag = "5")]
    pub region_loads: Vec<RegionLoad>,
    /// Beginning of the time that the report is about, in ms since 1970.
    #[prost(uint64, optional, tag = "7")]
    pub report_start_time: Option<u64>,
    /// End of that time.
    #[prost(uint64, optional, tag = "8")]
    pub report_end_time: Option<u64>,
    /// Port of its web pages.
    #[prost(uint32, optional, tag = "9")]
    pub info_server_port: Option<u32>,
}

/// The load of a region. Numbers that this server does not count by region are left out.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegionLoad {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region_specifier: RegionSpecifier,
    /// Families.
    #[prost(uint32, optional, tag = "2")]
    pub stores: Option<u32>,
    /// Files.
    #[prost(uint32, optional, tag = "3")]
    pub storefiles: Option<u32>,
    /// Their size in MB, before compression.
    #[prost(uint32, optional, tag = "4")]
    pub store_uncompressed_size_mb: Option<u32>,
    /// Their size in MB.
    #[prost(uint32, optional, tag = "5")]
    pub storefile_size_mb: Option<u32>,
    /// Memory of recent writes, in MB.
    #[prost(uint32, optional, tag = "6")]
    pub mem_store_size_mb: Option<u32>,
    /// Reads.
    #[prost(uint64, optional, tag = "8")]
    pub read_requests_count: Option<u64>,
    /// Writes.
    #[prost(uint64, optional, tag = "9")]
    pub write_requests_count: Option<u64>,
    /// Sequence number up to which writes are in files.
    #[prost(uint64, optional, tag = "15")]
    pub complete_sequence_id: Option<u64>,
    /// The part of the files that is on the server's own disks, 0 to 1.
    #[prost(float, optional, tag = "16")]
    pub data_locality: Option<f32>,
    /// Time of the last major compaction, in ms since 1970.
    #[prost(uint64, optional, tag = "17")]
    pub last_major_compaction_ts: Option<u64>,
    /// A [`super::CompactionStateKind`].
    #[prost(enumeration = "super::CompactionStateKind", optional, tag = "27")]
    pub compaction_state: Option<i32>,
    /// Size of all that belongs to it, in MB.
    #[prost(uint32, optional, tag = "28")]
    pub region_size_mb: Option<u32>,
}

/// How many regions are in each state.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RegionStatesCount {
    /// Served.
    #[prost(uint32, required, tag = "1")]
    pub open_regions: u32,
    /// Replaced by their halves.
    #[prost(uint32, required, tag = "2")]
    pub split_regions: u32,
    /// Not served.
    #[prost(uint32, required, tag = "3")]
    pub closed_regions: u32,
    /// On their way from one state to another.
    #[prost(uint32, required, tag = "4")]
    pub regions_in_transition: u32,
    /// All.
    #[prost(uint32, required, tag = "5")]
    pub total_regions: u32,
}

/// The same for the regions of a table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TableRegionStatesCount {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// The numbers.
    #[prost(message, required, tag = "2")]
    pub region_states_count: RegionStatesCount,
}

/// Response of `ListDecommissionedRegionServers`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerNames {
    /// The servers.
    #[prost(message, repeated, tag = "1")]
    pub server_name: Vec<ServerName>,
}

/// Argument of `DecommissionRegionServers`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DecommissionRegionServersRequest {
    /// The servers.
    #[prost(message, repeated, tag = "1")]
    pub server_name: Vec<ServerName>,
    /// Whether their regions are moved away.
    #[prost(bool, required, tag = "2")]
    pub offload: bool,
}

/// Argument of `RecommissionRegionServer`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RecommissionRegionServerRequest {
    /// The server.
    #[prost(message, required, tag = "1")]
    pub server_name: ServerName,
    /// Regions that are moved to it.
    #[prost(message, repeated, tag = "2")]
    pub region: Vec<RegionSpecifier>,
}

/// Response of `getSecurityCapabilities`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SecurityCapabilitiesResponse {
    /// The capabilities.
    #[prost(enumeration = "SecurityCapability", repeated, packed = "false", tag = "1")]
    pub capabilities: Vec<i32>,
}

/// Capabilities of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SecurityCapability {
    /// Clients name themselves.
    SimpleAuthentication = 0,
    /// Clients prove who they are.
    SecureAuthentication = 1,
    /// Rights of users.
    Authorization = 2,
    /// Rights at single cells.
    CellAuthorization = 3,
    /// Labels of cells.
    CellVisibility = 4,
}
