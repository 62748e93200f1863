//! The log of a server as its archive sees it.
//!
//! Every write of a server that archives its log is synced before it is acknowledged. So neither the archive nor files of tablets
//! ever have a record that the log may lose in a power loss.

use crate::log::CommitLog;
use std::sync::Arc;
use stele_commitlog::{LogClock, LogPosition};
use stele_memory::Pool;
use stele_storage::Storage;
use stele_types::Epoch;

/// The log of a server that archives it.
pub struct ArchivedLog {
    /// Absent where only changes of tables are archived.
    pub(crate) log: Option<Arc<CommitLog>>,
    pub(crate) root: Arc<dyn Storage>,
    pub(crate) clock: Arc<LogClock>,
    pub(crate) epoch: Epoch,
    pub(crate) pool: Pool,
}

impl ArchivedLog {
    /// The acknowledged parts of all segments that wait for the archive, in the order of their numbers. Segments of an
    /// earlier epoch come before those of a later one, and so do records of a tablet.
    pub fn positions(&self) -> Vec<LogPosition> {
        self.log.as_ref().map(|log| log.positions()).unwrap_or_default()
    }

    /// Lets go of closed segments that are archived, or never will be.
    pub fn archived(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.log.iter().for_each(|log| log.archived(number));
        }
    }

    /// The clock and the memory without the log, under another number: for changes of the tables of a cluster.
    pub fn without_log(self, epoch: Epoch) -> ArchivedLog {
        ArchivedLog {
            log: None,
            epoch,
            ..self
        }
    }

    /// The root that the paths of segments are below.
    pub fn root(&self) -> &Arc<dyn Storage> {
        &self.root
    }

    /// The clock of its marks.
    pub fn clock(&self) -> &Arc<LogClock> {
        &self.clock
    }

    /// The pool from which the server reserves memory.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The epoch of the server.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}
