//! `stele.admin.v1.Snapshots`: `docs/snapshots.md`.

use prost::Message;

/// Path of the call that takes a snapshot.
pub const CREATE_SNAPSHOT_PATH: &str = "/stele.admin.v1.Snapshots/CreateSnapshot";
/// Path of the call that lists the snapshots of an instance.
pub const LIST_SNAPSHOTS_PATH: &str = "/stele.admin.v1.Snapshots/ListSnapshots";
/// Path of the call that makes a table of a snapshot, or puts a table back to it.
pub const RESTORE_SNAPSHOT_PATH: &str = "/stele.admin.v1.Snapshots/RestoreSnapshot";
/// Path of the call that deletes a snapshot.
pub const DELETE_SNAPSHOT_PATH: &str = "/stele.admin.v1.Snapshots/DeleteSnapshot";

/// Path of the call that lists tables that the server keeps after an accident.
pub const LIST_KEPT_TABLES_PATH: &str = "/stele.admin.v1.Snapshots/ListKeptTables";

/// Asks for the tables of an instance that the server keeps, or of all instances.
#[derive(Clone, PartialEq, Message)]
pub struct ListKeptTablesRequest {
    /// `projects/P/instances/I`, or `projects/P/instances/-` for all.
    #[prost(string, tag = "1")]
    pub parent: String,
}

/// The tables that the server keeps.
#[derive(Clone, PartialEq, Message)]
pub struct ListKeptTablesResponse {
    /// The tables, by instance and snapshot.
    #[prost(message, repeated, tag = "1")]
    pub tables: Vec<KeptTable>,
}

/// A table before it was deleted, or something of it was dropped.
#[derive(Clone, PartialEq, Message)]
pub struct KeptTable {
    /// `I/T`.
    #[prost(string, tag = "1")]
    pub table: String,
    /// `deleted`, `rows dropped`, `families dropped` or `truncated`.
    #[prost(string, tag = "2")]
    pub event: String,
    /// Microseconds since 1970 at which that happened.
    #[prost(int64, tag = "3")]
    pub kept_micros: i64,
    /// Microseconds since 1970 from which on it is not kept any more.
    #[prost(int64, tag = "4")]
    pub expires_micros: i64,
    /// The snapshot with the table as it was, in the same instance.
    #[prost(string, tag = "5")]
    pub snapshot: String,
    /// Bytes of rows that it refers to, roughly.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
}

/// Takes a snapshot of a table, in the instance of the table.
#[derive(Clone, PartialEq, Message)]
pub struct CreateSnapshotRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub table: String,
    /// The name of the snapshot within the instance.
    #[prost(string, tag = "2")]
    pub snapshot: String,
    /// Seconds after which the server deletes it; 0 for never.
    #[prost(uint64, tag = "3")]
    pub ttl_seconds: u64,
}

/// Asks for the snapshots of an instance.
#[derive(Clone, PartialEq, Message)]
pub struct ListSnapshotsRequest {
    /// `projects/P/instances/I`.
    #[prost(string, tag = "1")]
    pub parent: String,
}

/// The snapshots of an instance, by name.
#[derive(Clone, PartialEq, Message)]
pub struct ListSnapshotsResponse {
    /// The snapshots.
    #[prost(message, repeated, tag = "1")]
    pub snapshots: Vec<Snapshot>,
}

/// Makes a table of a snapshot, or puts a table back to it.
#[derive(Clone, PartialEq, Message)]
pub struct RestoreSnapshotRequest {
    /// `projects/P/instances/I`, with the instance of the snapshot.
    #[prost(string, tag = "1")]
    pub parent: String,
    /// The name of the snapshot.
    #[prost(string, tag = "2")]
    pub snapshot: String,
    /// `projects/P/instances/I/tables/T`: a new table unless `in_place`.
    #[prost(string, tag = "3")]
    pub table: String,
    /// Whether the rows and families of a table that exists are replaced.
    #[prost(bool, tag = "4")]
    pub in_place: bool,
}

/// Deletes a snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteSnapshotRequest {
    /// `projects/P/instances/I`.
    #[prost(string, tag = "1")]
    pub parent: String,
    /// The name of the snapshot.
    #[prost(string, tag = "2")]
    pub snapshot: String,
}

/// A snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct Snapshot {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The id of its table, and the instance of that if it is another.
    #[prost(string, tag = "2")]
    pub table: String,
    /// Microseconds since 1970 at which it was begun.
    #[prost(int64, tag = "3")]
    pub created_micros: i64,
    /// Microseconds since 1970 from which on the server deletes it; absent for never.
    #[prost(int64, optional, tag = "4")]
    pub expires_micros: Option<i64>,
    /// Its tablets.
    #[prost(uint64, tag = "5")]
    pub tablets: u64,
    /// Bytes of rows that it refers to, roughly.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
}
