//! Snapshots of tables.

/// Kinds of snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SnapshotType {
    /// Of a disabled table.
    Disabled = 0,
    /// Of an enabled table, after a flush.
    Flush = 1,
    /// Of an enabled table, without writes that are not in files.
    SkipFlush = 2,
}

/// A snapshot.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapshotDescription {
    /// Its name.
    #[prost(string, required, tag = "1")]
    pub name: String,
    /// The table, as text.
    #[prost(string, optional, tag = "2")]
    pub table: Option<String>,
    /// Time of its creation, in ms since 1970.
    #[prost(int64, optional, tag = "3")]
    pub creation_time: Option<i64>,
    /// Its kind.
    #[prost(enumeration = "SnapshotType", optional, tag = "4")]
    pub r#type: Option<i32>,
    /// Version of its format.
    #[prost(int32, optional, tag = "5")]
    pub version: Option<i32>,
    /// The user who made it.
    #[prost(string, optional, tag = "6")]
    pub owner: Option<String>,
    /// Seconds that it is kept; 0 for ever.
    #[prost(int64, optional, tag = "8")]
    pub ttl: Option<i64>,
}

/// Response of `GetCompletedSnapshots`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetCompletedSnapshotsResponse {
    /// The snapshots.
    #[prost(message, repeated, tag = "1")]
    pub snapshots: Vec<SnapshotDescription>,
}

/// Argument of `Snapshot`, `DeleteSnapshot`, `RestoreSnapshot` and `IsSnapshotDone`. The last may come without a snapshot.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapshotRequest {
    /// The snapshot.
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<SnapshotDescription>,
    /// Of a repeated call; `Snapshot` and `RestoreSnapshot` only.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// The same.
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
}

/// Response of `Snapshot`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapshotResponse {
    /// How long a client waits at most, in ms.
    #[prost(int64, required, tag = "1")]
    pub expected_timeout: i64,
    /// The procedure that takes the snapshot. Clients before HBase 2.5 ask `IsSnapshotDone` instead.
    #[prost(int64, optional, tag = "2")]
    pub proc_id: Option<i64>,
}

/// Response of `IsSnapshotDone`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct IsSnapshotDoneResponse {
    /// Whether it exists.
    #[prost(bool, optional, tag = "1")]
    pub done: Option<bool>,
    /// The snapshot.
    #[prost(message, optional, tag = "2")]
    pub snapshot: Option<SnapshotDescription>,
}

/// A procedure that is found by name, of `ExecProcedure` and `IsProcedureDone`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ProcedureDescription {
    /// The kind of procedure.
    #[prost(string, required, tag = "1")]
    pub signature: String,
    /// Its object.
    #[prost(string, optional, tag = "2")]
    pub instance: Option<String>,
    /// Time of its creation, in ms since 1970.
    #[prost(int64, optional, tag = "3")]
    pub creation_time: Option<i64>,
    /// Its arguments.
    #[prost(message, repeated, tag = "4")]
    pub configuration: Vec<super::basic::NameStringPair>,
}

/// Argument of `ExecProcedure`, `ExecProcedureWithRet` and `IsProcedureDone`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExecProcedureRequest {
    /// The procedure.
    #[prost(message, optional, tag = "1")]
    pub procedure: Option<ProcedureDescription>,
}

/// Response of `ExecProcedure` and `ExecProcedureWithRet`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExecProcedureResponse {
    /// How long a client waits at most, in ms.
    #[prost(int64, optional, tag = "1")]
    pub expected_timeout: Option<i64>,
    /// The procedure's result.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub return_data: Option<bytes::Bytes>,
}
