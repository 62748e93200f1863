//! Control calls between servers, as JSON (`docs/formats/cluster.md`).

use crate::admin_calls::AdminCall;
use crate::backup_calls::BackupCall;
use crate::openings::Openings;
use crate::tablet_calls::TabletCall;
use serde::{Deserialize, Serialize};
use stele_client::Closing;
use stele_types::{Epoch, Resource, ServerId, TabletId};

/// A control call, as it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The term of the leader that orders it; 0 if no leader does. A server that knows of a later one refuses it: a leader that
    /// has lost its term without knowing it would have tablets abandoned that the next leader has made.
    #[serde(default)]
    pub(crate) term: u64,
    pub(crate) request: Request,
}

/// The request of a control call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// To a member: its tablets, unless the caller knows its list of this version. The answer is a [`ServerReport`].
    Report(u64),
    /// To a member: open these. The answer is an outcome for each.
    Open(Openings),
    /// To a member: close a tablet.
    Close {
        /// Which tablet.
        tablet: TabletId,
        /// The epoch of the assignment that ends.
        epoch: Epoch,
        /// How.
        closing: Closing,
    },
    /// To a member: the outcome of a replacement that it has prepared, for another leader or without an answer.
    EndPreparation {
        /// The first of the old tablets.
        first: TabletId,
        /// Of the preparation, as in its report.
        number: u64,
        /// Whether the catalog names the new tablets.
        committed: bool,
    },
    /// To a member: answer once the catalog is followed up to this revision.
    CatchUp(u64),
    /// To a member that archives its log: move its clock to this moment at least. The answer is its clock; 0 where it archives none.
    Clock(i64),
    /// To a member: the files that it uses.
    FilesInUse,
    /// To a member: whether the process of another one is there.
    Probe(ServerId),
    /// To a member: a call about its tablets.
    Tablets(TabletCall),
    /// To the leader: an administrative call of a client.
    Admin(AdminCall),
    /// To the leader: a call about the cluster.
    Cluster(ClusterCall),
    /// To the leader: a call about backups at destinations.
    Backups(BackupCall),
}

impl Request {
    /// The operation and the resource of a client's call for the audit log, if it changes something.
    pub(crate) fn audited(&self) -> Option<(&'static str, Resource)> {
        match self {
            Request::Admin(call) => call.audited(),
            Request::Backups(call) => call.audited(),
            Request::Cluster(ClusterCall::Move { .. }) => Some(("move_tablet", Resource::Cluster)),
            Request::Cluster(ClusterCall::Drain { .. }) => Some(("drain_server", Resource::Cluster)),
            _ => None,
        }
    }
}

/// A call about the cluster, by its administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClusterCall {
    /// Servers and tablets. The answer is a [`stele_client::ClusterStatus`].
    Status,
    /// Move a tablet.
    Move {
        /// Which tablet.
        tablet: TabletId,
        /// To which server.
        to: ServerId,
    },
    /// Move all tablets away from a server, or end that.
    Drain {
        /// Which server.
        server: ServerId,
        /// Whether it drains.
        drains: bool,
    },
}

/// A server's word on its tablets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerReport {
    /// Of the list of tablets, from 1 on. It grows with each change of the list.
    pub version: u64,
    /// Changes of the list so far, without those of sizes and loads.
    pub changes: u64,
    /// The tablets that it serves, opens, or has closed for a move. Absent if the caller knows this version of the list.
    pub tablets: Option<Vec<TabletReport>>,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// The first tablet of each replacement whose outcome it has not been told, with the number of the preparation.
    pub prepared: Vec<(TabletId, u64)>,
    /// The leader, if it did not answer this server's last probe. An earlier version does not say it.
    #[serde(default)]
    pub unreached: Option<ServerId>,
}

/// A server's word on one tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TabletReport {
    /// Which tablet.
    pub tablet: TabletId,
    /// The epoch under which it has or had it.
    pub epoch: Epoch,
    /// Its state there.
    pub state: TabletState,
    /// Bytes of files and memtables.
    pub bytes: u64,
    /// Rows read and written in a second.
    pub requests: u64,
}

/// The state of a tablet on a server; as in [`stele_assignment::ServedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TabletState {
    /// It replays logs.
    Opening,
    /// It is served, and needs former logs.
    Replayed,
    /// It is served.
    Serving,
    /// It was closed for a move.
    Closed,
    /// It was not opened under this epoch, and is not from now on: another server can have it.
    Unopened,
}
