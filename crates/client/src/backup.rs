//! Backups at destinations outside of the data root, as front ends order them.
//!
//! A backup is made by a *work* of the server: it takes as long as copying takes, and goes on when the client that ordered it
//! is gone. The server does one work at a time; in a cluster it is the leader. An interrupted work is continued by the same order.

use crate::error::{ServiceError, ServiceResult};
use serde::{Deserialize, Serialize};
use stele_types::{ErrorKind, TableName};

/// Where backups are: a folder of the server, a prefix of an object store or a directory of HDFS.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupDestination {
    /// The address, as the server's own data have one.
    pub address: String,
    /// Settings of the store, with keys as the server's own data have them. They may be secret.
    pub options: Vec<(String, String)>,
}

impl std::fmt::Debug for BackupDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

/// What to do at a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupTask {
    /// Makes a backup, or completes one that was begun under this name.
    Create {
        /// Of these tables; of all if there are none.
        tables: Vec<TableName>,
    },
    /// Makes tables of a backup. None of them may exist.
    Restore {
        /// Only this table, if any.
        table: Option<TableName>,
        /// The name that it gets, if it is another.
        target: Option<TableName>,
    },
    /// Reads all files of a backup and compares them with their checksums.
    Verify,
    /// Deletes a backup, and files that no other needs.
    Delete,
    /// Deletes parts of an archive of logs that no backup at the destination needs.
    Prune,
}

impl BackupTask {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            BackupTask::Create { .. } => "create",
            BackupTask::Restore { .. } => "restore",
            BackupTask::Verify => "verify",
            BackupTask::Delete => "delete",
            BackupTask::Prune => "prune",
        }
    }
}

/// An order of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOrder {
    /// Where.
    pub destination: BackupDestination,
    /// The name of the backup.
    pub backup: String,
    /// What to do.
    pub task: BackupTask,
    /// Bytes that are read or written each second at most; `None` for as many as possible.
    pub bytes_per_second: Option<u64>,
    /// Files that are copied concurrently; 0 for the server's default.
    pub parallel: u32,
    /// Digests of the rows: a creation notes them, and a verification compares with those.
    #[serde(default)]
    pub digests: bool,
    /// Restore: the moment, in wall-clock microseconds, whose rows the tables get; `None` for that of the backup. Without the
    /// name of a backup it is the newest one from which the moment can be reached.
    #[serde(default)]
    pub at: Option<i64>,
    /// The archive of the log; `None` for that of the server's own.
    #[serde(default)]
    pub archive: Option<BackupDestination>,
}

/// How far a work is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupProgress {
    /// The step that runs, in words.
    pub step: String,
    /// Files of the backup, as far as that is known.
    pub files: u64,
    /// Of these, files that are done.
    pub files_done: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Of these, bytes that are done: copied, read, or there before.
    pub bytes_done: u64,
    /// Files that this work copied.
    pub files_copied: u64,
    /// Bytes that this work copied.
    pub bytes_copied: u64,
}

/// A work that runs, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupWork {
    /// Its number on this server since its start, or in the term of a leader.
    pub number: u64,
    /// How far it is.
    pub progress: BackupProgress,
    /// How it ended; `None` while it runs.
    pub outcome: Option<ServiceResult<BackupOutcome>>,
}

/// A work together with its order, without the options of the destination, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedWork {
    /// The work.
    pub work: BackupWork,
    /// Its order.
    pub order: WorkOrder,
}

/// The order of a work, and its times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkOrder {
    /// [`BackupTask::name`].
    pub task: String,
    /// The name of the backup; empty where the order has none.
    pub backup: String,
    /// The address of the destination.
    pub destination: String,
    /// Wall-clock microseconds at which it began.
    pub begun_micros: i64,
    /// Wall-clock microseconds at which it ended; `None` while it runs.
    pub ended_micros: Option<i64>,
}

/// The result of a work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOutcome {
    /// Tables that were restored.
    pub tables: Vec<TableName>,
    /// Damage that was found, at most a hundred of it.
    pub damage: Vec<String>,
    /// Damage beyond those.
    pub more_damage: u64,
}

/// A backup at a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
    /// Its name.
    pub name: String,
    /// Wall-clock microseconds at which it was begun.
    pub begun_micros: i64,
    /// Wall-clock microseconds at which it was complete; `None` while it is not.
    pub completed_micros: Option<i64>,
    /// Its tables.
    pub tables: Vec<TableName>,
    /// Its files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Of these, bytes that are not those of earlier backups.
    pub copied_bytes: u64,
}

/// Backups at destinations. The server keeps the outcomes of the last works.
#[async_trait::async_trait]
pub trait BackupAdmin: Send + Sync + 'static {
    /// Begins a work and returns its number. `Unavailable` while another runs.
    async fn begin(&self, order: BackupOrder) -> ServiceResult<u64>;

    /// A work; `NotFound` for one that ended long ago, or before the server was started.
    fn work(&self, number: u64) -> ServiceResult<BackupWork>;

    /// The work that runs and the last ones that ended, newest first.
    fn works(&self) -> Vec<OrderedWork>;

    /// Calls a work off; returns immediately. The same order continues it.
    fn cancel(&self, number: u64) -> ServiceResult<()>;

    /// The backups at a destination, oldest first.
    async fn list(&self, destination: BackupDestination) -> ServiceResult<Vec<BackupInfo>>;

    /// The times in which moments can be restored from a destination and an archive of the log: from wall-clock microseconds to
    /// others, exclusive. None without an archive.
    async fn restorable(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> ServiceResult<Vec<(i64, i64)>>;
}

/// The error of a server that cannot make backups.
pub(crate) fn no_backups() -> ServiceError {
    let message = "this server makes no backups at destinations";
    ServiceError::new(ErrorKind::Unimplemented, message)
}
