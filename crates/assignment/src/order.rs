//! The steps that a leader carries out.

use crate::view::{Assignment, Owner};
use stele_types::{ServerId, TabletId};

/// One step. Each may be repeated, and none depends on another of the same decision. A change of an assignment is
/// conditional on the whole assignment that the decision saw: a late one could name a log that is deleted meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Seal the log of a dead server in storage, then record that it is sealed.
    Seal(ServerId),
    /// Replace a tablet's assignment: next epoch, no move.
    Assign {
        /// Which tablet.
        tablet: TabletId,
        /// The assignment that the decision saw.
        seen: Assignment,
        /// The next owner.
        to: ServerId,
        /// All logs that the next owner must replay.
        logs: Vec<ServerId>,
    },
    /// Record that a tablet moves.
    Move {
        /// Which tablet.
        tablet: TabletId,
        /// The assignment that the decision saw.
        seen: Assignment,
        /// The next owner.
        to: ServerId,
    },
    /// Record that a tablet does not move, as its target is dead or drains.
    Stay {
        /// Which tablet.
        tablet: TabletId,
        /// The assignment that the decision saw.
        seen: Assignment,
    },
    /// Ask the owner to open a tablet that it does not report under this epoch.
    Open {
        /// Which tablet.
        tablet: TabletId,
        /// Its owner.
        owner: Owner,
        /// Logs to replay.
        logs: Vec<ServerId>,
    },
    /// Ask the owner to flush a tablet twice and to close it. One that has not opened it shall not do so any more.
    Close {
        /// Which tablet.
        tablet: TabletId,
        /// Its owner.
        owner: Owner,
    },
    /// Ask a server to stop serving a tablet that is not its own, without changing any of the tablet's files.
    Abandon {
        /// Which tablet.
        tablet: TabletId,
        /// The former owner.
        server: ServerId,
    },
    /// Record that a tablet's files have all records of its former logs.
    Forget {
        /// Which tablet.
        tablet: TabletId,
        /// The assignment that the decision saw.
        seen: Assignment,
    },
    /// Delete a sealed log with its record: no tablet needs it, and none will.
    DeleteLog(ServerId),
}
