//! The parts that the services of one server share.
//!
//! Each service copies from here, when it is made, the parts that it needs, and owns its state. No service refers to another
//! through this.

use crate::admission::Admission;
use crate::heat::Heat;
use crate::log::CommitLog;
use crate::metrics::ServerMetrics;
use crate::options::ServerOptions;
use crate::row_cache::RowCache;
use crate::schemas::ChangedSchemas;
use crate::stopping::Stopping;
use crate::tablets::Tablets;
use crate::times::Times;
use crate::work::{Compactions, FlushDemand};
use std::sync::Arc;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tablet::TabletContext;
use stele_types::Epoch;

/// All shared parts of a server.
pub(crate) struct Parts {
    /// Clock and tasks, storage, open files, memory of memtables: the parts that tablets share, too.
    pub(crate) context: TabletContext,
    pub(crate) options: ServerOptions,
    /// The root of the server's log: that of the data where one server owns it.
    pub(crate) log_root: Arc<dyn Storage>,
    /// The server's ownership generation, under which it makes new tablets. Where several servers share the data root, it is
    /// the server's number, and assigned tablets have epochs of their own.
    pub(crate) epoch: Epoch,
    pub(crate) cache: Arc<Cache>,
    pub(crate) row_cache: Arc<RowCache>,
    pub(crate) tablets: Arc<Tablets>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) flushes: Arc<FlushDemand>,
    pub(crate) compactions: Arc<Compactions>,
    pub(crate) schemas: Arc<ChangedSchemas>,
    pub(crate) metrics: ServerMetrics,
    pub(crate) heat: Arc<Heat>,
    pub(crate) stopping: Stopping,
    /// Where servers share the data root and archive their logs.
    pub(crate) times: Option<Arc<Times>>,
}
