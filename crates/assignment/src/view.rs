//! The input of a decision: the catalog, the sessions, and the reports of the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stele_types::{Epoch, ServerId, TableId, TabletId};

/// The cluster at one moment. The catalog in it is at least as new as the reports.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Servers that the coordinator knows, dead ones until their log is deleted.
    pub servers: BTreeMap<ServerId, ServerView>,
    /// All tables.
    pub tables: Vec<TableView>,
    /// No tablet is moved for balance: an administrator has switched that off.
    pub no_balance: bool,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// Its session with the coordinator.
    pub session: Session,
    /// The record of its commit log.
    pub log: LogState,
    /// How many streams that log has; 0 if a tablet may have records in any part of it.
    pub log_streams: u32,
    /// It is about to stop: its tablets move away, and it gets no others.
    pub draining: bool,
    /// It has answered the leader in this round. One that does not gets no tablets: nobody could tell it to open them.
    pub answers: bool,
    /// Its newest report by tablet; empty until the first one.
    pub report: BTreeMap<TabletId, Report>,
}

/// A server's session with the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Its lease is kept alive.
    Alive,
    /// It has ended, this long ago. The server knows that by its own clock and serves nothing any more.
    Ended(Duration),
}

/// The record of a commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Its server may append to it.
    Open,
    /// Storage refuses every further append; the records in it are complete.
    Sealed,
}

/// A server's word on one tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The epoch under which it has or had the tablet.
    pub epoch: Epoch,
    /// The tablet's state there.
    pub state: ServedState,
}

/// The state of a tablet on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedState {
    /// It replays logs; the tablet is not served yet.
    Opening,
    /// The tablet is served, and memtables may hold records of former logs that its files lack.
    Replayed,
    /// The tablet is served, and its files have all records of former logs.
    Serving,
    /// The tablet is not served any more, and its files have everything.
    Closed,
    /// The tablet was never served under this epoch, and will not be.
    Unopened,
}

/// One table.
#[derive(Clone, Debug)]
pub struct TableView {
    /// Which table.
    pub id: TableId,
    /// Its tablets in row order.
    pub tablets: Vec<TabletView>,
}

/// One tablet.
#[derive(Clone, Debug)]
pub struct TabletView {
    /// Which tablet.
    pub id: TabletId,
    /// Bytes of its files and memtables, as reported last.
    pub bytes: u64,
    /// Requests per second, reads and writes, as reported last.
    pub requests: u64,
    /// How long its owner and its range have been the same.
    pub unchanged_for: Duration,
    /// Its assignment in the catalog.
    pub assignment: Assignment,
    /// Failed attempts to open or to close it.
    pub attempts: Attempted,
}

/// Failed attempts to open or to close a tablet ([`crate::Attempts`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempted {
    /// The next one is not due yet.
    pub waits: bool,
    /// Servers that were unable to open it a short time ago.
    pub unable: BTreeSet<ServerId>,
    /// Its owner has failed to close it for a move.
    pub closing: FailedClosing,
}

/// Whether the owner of a tablet that moves fails to close it, say because the tablet cannot be flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedClosing {
    /// It has not failed, or once.
    #[default]
    None,
    /// It failed several times in a row, and is tried again now. Other moves do not wait for this one.
    Due,
    /// The same, and the next attempt is not due yet.
    Waits,
}

/// A tablet's assignment in the catalog: the one source of truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// `None` before the first assignment.
    pub owner: Option<Owner>,
    /// The owner shall close it, or refuse to open it, and this server shall have it then.
    pub moving_to: Option<ServerId>,
    /// Sealed logs that may hold records which the tablet's files lack, ascending.
    pub logs: Vec<ServerId>,
}

impl Assignment {
    /// Whether the log of a server may hold records which the tablet's files lack.
    pub fn needs_log_of(&self, server: ServerId) -> bool {
        self.owner.is_some_and(|owner| owner.server == server) || self.logs.contains(&server)
    }
}

/// The server that serves a tablet, or that is to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which server.
    pub server: ServerId,
    /// The epoch of this assignment. It grows with each assignment of the tablet.
    pub epoch: Epoch,
}

impl View {
    /// All tablets.
    pub fn tablets(&self) -> impl Iterator<Item = &TabletView> {
        self.tables.iter().flat_map(|table| &table.tablets)
    }

    /// A server's word on a tablet.
    pub fn report(&self, server: ServerId, tablet: TabletId) -> Option<Report> {
        self.servers.get(&server)?.report.get(&tablet).copied()
    }
}

impl ServerView {
    /// Whether its log is sealed, after which it acknowledges no write.
    pub fn is_sealed(&self) -> bool {
        self.log == LogState::Sealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tablet_needs_the_logs_of_its_owner_and_of_former_ones() {
        let owner = Owner {
            server: ServerId(3),
            epoch: Epoch(7),
        };
        let tablet = Assignment {
            owner: Some(owner),
            moving_to: Some(ServerId(4)),
            logs: vec![ServerId(1), ServerId(2)],
        };
        let needed = |server: &u32| tablet.needs_log_of(ServerId(*server));
        assert_eq!((1..6).filter(needed).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!Assignment::default().needs_log_of(ServerId(1)));
    }
}
