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
}
