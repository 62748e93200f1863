//! Assignment of tablets to servers, by the master of a cluster.
//!
//! Terms: an *assignment* gives a tablet to a server under an epoch. A *log* is that of one server, named by it.
//!
//! The master keeps four promises, on which everything acknowledged depends:
//! * An epoch of a tablet is given to one server, and is above all earlier epochs of the tablet. Several tablets may have
//!   the same one.
//! * A tablet is assigned again only after its former server has answered [`TabletAssignments::close_tablet`], after it has declined
//!   the tablet without opening it, or after its log was sealed.
//! * An assignment names each log in which the tablet may have records that are not in its files: those of sealed servers
//!   that had it, except where a later server has flushed it since ([`TabletLoad::logs`]).
//! * A log is deleted only when no tablet needs it.

use crate::error::ServiceResult;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_types::{Epoch, FilesInUse, ServerId, TableSchema, TabletId};

/// A tablet for a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// Which tablet.
    pub tablet: TabletId,
    /// The epoch under which its manifest is claimed, and of its sequence numbers.
    pub epoch: Epoch,
    /// Of its table.
    pub schema: Arc<TableSchema>,
    /// The logs whose records of the tablet are replayed.
    pub logs: Vec<ServerId>,
    /// How many streams these logs have. The tablet has records in one of them ([`stele_types::stream_of`]). A log that is not
    /// named here may have them in any.
    #[serde(default)]
    pub streams: BTreeMap<ServerId, u32>,
}

/// How a server gives a tablet up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closing {
    /// It flushes the tablet first while it serves it, then stops its writers and flushes the rest. The next owner needs no
    /// log of this server. After an error the tablet is served as before.
    HandOver,
    /// Immediately, without a flush. The next owner needs this server's log, which must be sealed first. The server keeps the
    /// log for it.
    Abandon,
}

/// Asked just before a tablet that is handed over is closed to writers: whether another server can get it now. On an error the tablet is served on.
pub type Confirm = BoxFuture<'static, ServiceResult<()>>;

/// Asks nobody.
pub fn unconfirmed() -> Confirm {
    std::future::ready(Ok(())).boxed()
}

/// The load of one tablet. Rates are differences of counters between two calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletLoad {
    /// Which tablet.
    pub tablet: TabletId,
    /// The epoch of its assignment.
    pub epoch: Epoch,
    /// Bytes of its files, without those that compression will save.
    pub bytes: u64,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Rows read and written in a second.
    pub requests: u64,
    /// Bytes that compactions have to read until nothing is due any more.
    pub compaction_debt_bytes: u64,
    /// Logs of other servers that the tablet was opened with and still needs: not everything of them is in its files.
    pub logs: Vec<ServerId>,
}

/// The load of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoad {
    /// The tablets that it serves, by id. A tablet that another owner has claimed is not among them.
    pub tablets: Vec<TabletLoad>,
    /// Bytes of memtables of all tablets.
    pub memtable_bytes: u64,
    /// Bytes of the server's log.
    pub log_bytes: u64,
}

/// The side of a tablet server that assignments reach. A call that was begun is carried out, also when its caller gives
/// up. The master asks for one thing at a time of a tablet. A server that owns its whole data root refuses all calls that
/// change something, with `FailedPrecondition`.
#[async_trait]
pub trait TabletAssignments: Send + Sync + 'static {
    /// Claims tablets, replays their records in the logs, and serves them. Returns an outcome for each assignment, in
    /// their order; others are not affected by one that fails. Of a failed assignment nothing is served, and the call may
    /// be repeated on the same server. An assignment that is served already is `Ok`.
    async fn open_tablets(&self, assignments: Vec<Assignment>) -> Vec<ServiceResult<()>>;

    /// Stops serving the tablet of an assignment. `true` if this call has ended it, `false` if the assignment is not served here, as after
    /// a repeated call: it has perhaps been given up meanwhile, and not been flushed.
    /// `confirm` is awaited for [`Closing::HandOver`] only.
    async fn close_tablet(
        &self,
        tablet: TabletId,
        epoch: Epoch,
        closing: Closing,
        confirm: Confirm,
    ) -> ServiceResult<bool>;

    /// The load of the server and its tablets.
    async fn load(&self) -> ServiceResult<ServerLoad>;

    /// The files that nobody may delete, although no manifest may name them.
    async fn files_in_use(&self) -> ServiceResult<FilesInUse>;
}
