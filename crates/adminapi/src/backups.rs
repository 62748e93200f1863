//! `stele.admin.v1.Backups`: `docs/backups.md`.

use prost::Message;

/// Path of the call that begins a work.
pub const BEGIN_BACKUP_WORK_PATH: &str = "/stele.admin.v1.Backups/BeginWork";
/// Path of the call that asks how far a work is.
pub const GET_BACKUP_WORK_PATH: &str = "/stele.admin.v1.Backups/GetWork";
/// Path of the call that calls a work off.
pub const CANCEL_BACKUP_WORK_PATH: &str = "/stele.admin.v1.Backups/CancelWork";
/// Path of the call that lists the backups at a destination.
pub const LIST_BACKUPS_PATH: &str = "/stele.admin.v1.Backups/ListBackups";

/// Where backups are.
#[derive(Clone, PartialEq, Message)]
pub struct BackupDestination {
    /// A folder of the server, or a URL as of the server's own data.
    #[prost(string, tag = "1")]
    pub address: String,
    /// Settings of the store.
    #[prost(message, repeated, tag = "2")]
    pub options: Vec<DestinationOption>,
}

/// A setting of a store.
#[derive(Clone, PartialEq, Message)]
pub struct DestinationOption {
    /// Its key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Begins a work; the response is a [`BackupWork`].
#[derive(Clone, PartialEq, Message)]
pub struct BeginBackupWorkRequest {
    /// Where.
    #[prost(message, optional, tag = "1")]
    pub destination: Option<BackupDestination>,
    /// The name of the backup.
    #[prost(string, tag = "2")]
    pub backup: String,
    /// 1 create, 2 restore, 3 verify, 4 delete, 5 prune the archive of the log.
    #[prost(uint32, tag = "3")]
    pub task: u32,
    /// Create: of these, `projects/P/instances/I/tables/T`; none for all. Restore: only of this one, if any.
    #[prost(string, repeated, tag = "4")]
    pub tables: Vec<String>,
    /// Restore: the name that the one table gets; empty for its own.
    #[prost(string, tag = "5")]
    pub target: String,
    /// Bytes that are read or written each second at most; 0 for no limit.
    #[prost(uint64, tag = "6")]
    pub bytes_per_second: u64,
    /// Files that are copied concurrently; 0 for the server's default.
    #[prost(uint32, tag = "7")]
    pub parallel: u32,
    /// Create: notes digests of the rows. Verify: compares with those.
    #[prost(bool, tag = "8")]
    pub digests: bool,
    /// Restore: microseconds since 1970 of the moment whose rows the tables get; 0 for that of the backup. Without a backup it is
    /// the newest one from which the moment can be reached.
    #[prost(int64, tag = "9")]
    pub at_micros: i64,
    /// Restore to a moment, and prune: the archive of the log; absent for that of the server's own.
    #[prost(message, optional, tag = "10")]
    pub archive: Option<BackupDestination>,
}

/// Asks how far a work is; the response is a [`BackupWork`].
#[derive(Clone, PartialEq, Message)]
pub struct GetBackupWorkRequest {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// Calls a work off.
#[derive(Clone, PartialEq, Message)]
pub struct CancelBackupWorkRequest {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// A work.
#[derive(Clone, PartialEq, Message)]
pub struct BackupWork {
    /// Its number on the server since its start.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The step that runs.
    #[prost(string, tag = "2")]
    pub step: String,
    /// Files, as far as they are known.
    #[prost(uint64, tag = "3")]
    pub files: u64,
    /// Files that are done.
    #[prost(uint64, tag = "4")]
    pub files_done: u64,
    /// Bytes of the files.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// Bytes that are done.
    #[prost(uint64, tag = "6")]
    pub bytes_done: u64,
    /// Files that the work copied.
    #[prost(uint64, tag = "7")]
    pub files_copied: u64,
    /// Bytes that the work copied.
    #[prost(uint64, tag = "8")]
    pub bytes_copied: u64,
    /// Whether it has ended.
    #[prost(bool, tag = "9")]
    pub is_done: bool,
    /// The gRPC code that it ended with; 0 for success.
    #[prost(uint32, tag = "10")]
    pub code: u32,
    /// The error that it ended with.
    #[prost(string, tag = "11")]
    pub error: String,
    /// Tables that were restored, `I/T`.
    #[prost(string, repeated, tag = "12")]
    pub tables: Vec<String>,
    /// Damage that was found, at most a hundred pieces.
    #[prost(string, repeated, tag = "13")]
    pub damage: Vec<String>,
    /// Damage beyond those.
    #[prost(uint64, tag = "14")]
    pub more_damage: u64,
}

/// Asks for the backups at a destination.
#[derive(Clone, PartialEq, Message)]
pub struct ListDestinationRequest {
    /// Where.
    #[prost(message, optional, tag = "1")]
    pub destination: Option<BackupDestination>,
    /// The archive of the log; absent for that of the server's own.
    #[prost(message, optional, tag = "2")]
    pub archive: Option<BackupDestination>,
}

/// The backups at a destination, oldest first.
#[derive(Clone, PartialEq, Message)]
pub struct ListDestinationResponse {
    /// The backups.
    #[prost(message, repeated, tag = "1")]
    pub backups: Vec<DestinationBackup>,
    /// Times in which moments can be restored.
    #[prost(message, repeated, tag = "2")]
    pub restorable: Vec<RestorableTime>,
}

/// A time in which every moment can be restored.
#[derive(Clone, PartialEq, Message)]
pub struct RestorableTime {
    /// Microseconds since 1970 of the first moment.
    #[prost(int64, tag = "1")]
    pub from_micros: i64,
    /// The same of the last moment.
    #[prost(int64, tag = "2")]
    pub to_micros: i64,
}

/// A backup at a destination.
#[derive(Clone, PartialEq, Message)]
pub struct DestinationBackup {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Microseconds since 1970 at which it was begun.
    #[prost(int64, tag = "2")]
    pub begun_micros: i64,
    /// Microseconds since 1970 at which it was complete; absent while it is not.
    #[prost(int64, optional, tag = "3")]
    pub completed_micros: Option<i64>,
    /// Its tables, `I/T`.
    #[prost(string, repeated, tag = "4")]
    pub tables: Vec<String>,
    /// Its files.
    #[prost(uint64, tag = "5")]
    pub files: u64,
    /// Bytes of the files.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// Of these, bytes that earlier backups do not have.
    #[prost(uint64, tag = "7")]
    pub copied_bytes: u64,
}
