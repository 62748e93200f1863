//! The status of a cluster, for its administrators.

use serde::{Deserialize, Serialize};
use stele_types::{Epoch, ServerId, TabletId};

/// Servers and tablets at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The leader.
    pub leader: ServerId,
    /// Servers that live, and former ones whose logs are needed.
    pub servers: Vec<ServerStatus>,
    /// All tablets, by table and row.
    pub tablets: Vec<TabletStatus>,
    /// The leader's last check of files and owners. A leader of an earlier version has none.
    #[serde(default)]
    pub check: ClusterCheck,
}

/// The last comparison of the catalog, the manifests of tablets, and the files of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterCheck {
    /// Milliseconds since it began; `None` if the leader has completed none yet.
    pub began_millis_ago: Option<u64>,
    /// Tablets that were compared.
    pub tablets: u64,
    /// Files that tablets or snapshots name. Each was there, with as many bytes as it should have, but for the findings.
    pub files: u64,
    /// Bytes of those that tablets name.
    pub bytes: u64,
    /// Files that nothing needs; they are deleted after a grace period.
    pub unneeded: u64,
    /// Contradictions: a file that is missing, a tablet with two owners, a manifest that cannot be read.
    pub findings: Vec<String>,
    /// Further ones that are not described.
    pub more: u64,
    /// Why no later check was completed; empty if none has failed since.
    pub waits_for: String,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its number.
    pub server: ServerId,
    /// Whether it has a session.
    pub lives: bool,
    /// Whether its log is sealed.
    pub sealed: bool,
    /// Whether its tablets move away.
    pub drains: bool,
    /// Addresses: of other servers, Bigtable, HBase, HTTP.
    pub addresses: [String; 4],
    /// Version of the program.
    pub version: String,
    /// Tablets that it owns.
    pub tablets: usize,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
}

/// One tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletStatus {
    /// The table.
    pub table: String,
    /// Which tablet.
    pub tablet: TabletId,
    /// Its first row.
    pub start: Vec<u8>,
    /// Its owner.
    pub owner: Option<ServerId>,
    /// The epoch of its assignment.
    pub epoch: Epoch,
    /// The next owner, if it moves.
    pub moving_to: Option<ServerId>,
    /// Whether its owner serves it.
    pub serves: bool,
    /// Logs of former servers that it needs.
    pub logs: Vec<ServerId>,
    /// Bytes of files and memtables.
    pub bytes: u64,
    /// The event that it waits for; empty when it is served and does not move.
    pub waits_for: String,
    /// Since when it has not been served, or moves, as the leader has seen it. 0 of a leader of an earlier version.
    #[serde(default)]
    pub waited_millis: u64,
}
