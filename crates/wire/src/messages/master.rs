//! `MasterService`: making and dropping tables, and what the cluster is made of.
//!
//! Calls that take long answer the number of a procedure, whose state is then asked for until it has finished.

use super::basic::{ServerName, TableName, TableSchema};
use bytes::Bytes;

/// Service name in the connection header.
pub const MASTER_SERVICE: &str = "MasterService";

/// Argument of `CreateTable`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateTableRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_schema: TableSchema,
    /// First rows of all its regions but the first.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub split_keys: Vec<Bytes>,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Argument of `DeleteTable`, `DisableTable` and `EnableTable`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TableRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
}

/// Argument of `ModifyTable`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModifyTableRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// What it is to become.
    #[prost(message, required, tag = "2")]
    pub table_schema: TableSchema,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Argument of `truncateTable`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TruncateTableRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// Whether it keeps its regions.
    #[prost(bool, optional, tag = "2")]
    pub preserve_splits: Option<bool>,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Argument of `FlushTable`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FlushTableRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// Its families to be flushed; all when empty.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub column_family: Vec<Bytes>,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Answer of the calls above.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProcedureResponse {
    /// To be asked for; absent if the call is over.
    #[prost(uint64, optional, tag = "1")]
    pub proc_id: Option<u64>,
}

/// Argument of `getProcedureResult`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GetProcedureResultRequest {
    /// Which one.
    #[prost(uint64, required, tag = "1")]
    pub proc_id: u64,
}

/// How far a procedure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ProcedureState {
    /// Not known, or no longer.
    NotFound = 0,
    /// Under way.
    Running = 1,
    /// Over, well or not.
    Finished = 2,
}

/// Answer of `getProcedureResult`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetProcedureResultResponse {
    /// How far it is.
    #[prost(enumeration = "ProcedureState", required, tag = "1")]
    pub state: i32,
    /// When it was begun, in ms since 1970.
    #[prost(uint64, optional, tag = "2")]
    pub submitted_time: Option<u64>,
    /// When it last got further, in ms since 1970.
    #[prost(uint64, optional, tag = "3")]
    pub last_update: Option<u64>,
    /// What came of it.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub result: Option<Bytes>,
    /// Why it failed, if it did.
    #[prost(message, optional, tag = "5")]
    pub exception: Option<ForeignExceptionMessage>,
}

/// An exception of another process.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ForeignExceptionMessage {
    /// That process.
    #[prost(string, optional, tag = "1")]
    pub source: Option<String>,
    /// The exception.
    #[prost(message, optional, tag = "2")]
    pub generic_exception: Option<GenericExceptionMessage>,
}

/// A Java exception.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GenericExceptionMessage {
    /// Its class.
    #[prost(string, optional, tag = "1")]
    pub class_name: Option<String>,
    /// Its text.
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
}

/// Argument of `GetTableNames`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetTableNamesRequest {
    /// A Java regular expression of names; all when absent.
    #[prost(string, optional, tag = "1")]
    pub regex: Option<String>,
    /// Also the system's tables.
    #[prost(bool, optional, tag = "2")]
    pub include_sys_tables: Option<bool>,
    /// Only of this namespace.
    #[prost(string, optional, tag = "3")]
    pub namespace: Option<String>,
}

/// Answer of `GetTableNames`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetTableNamesResponse {
    /// The names.
    #[prost(message, repeated, tag = "1")]
    pub table_names: Vec<TableName>,
}

/// Argument of `GetTableDescriptors`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetTableDescriptorsRequest {
    /// Of these tables; of all when empty.
    #[prost(message, repeated, tag = "1")]
    pub table_names: Vec<TableName>,
    /// A Java regular expression of names.
    #[prost(string, optional, tag = "2")]
    pub regex: Option<String>,
    /// Also the system's tables.
    #[prost(bool, optional, tag = "3")]
    pub include_sys_tables: Option<bool>,
    /// Only of this namespace.
    #[prost(string, optional, tag = "4")]
    pub namespace: Option<String>,
}

/// Answer of `GetTableDescriptors`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetTableDescriptorsResponse {
    /// The tables.
    #[prost(message, repeated, tag = "1")]
    pub table_schema: Vec<TableSchema>,
}

/// Answer of `IsMasterRunning`, which the stock client asks before each other call.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IsMasterRunningResponse {
    /// Whether it is.
    #[prost(bool, required, tag = "1")]
    pub is_master_running: bool,
}

/// Parts of a [`ClusterStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ClusterOption {
    /// `hbase_version`.
    HbaseVersion = 0,
    /// `cluster_id`.
    ClusterId = 1,
    /// `master`.
    Master = 4,
    /// `backup_masters`.
    BackupMasters = 5,
    /// `balancer_on`.
    BalancerOn = 8,
    /// `servers_name`.
    ServersName = 10,
}

/// Argument of `GetClusterStatus`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetClusterStatusRequest {
    /// What is wanted; everything when empty.
    #[prost(enumeration = "ClusterOption", repeated, packed = "false", tag = "1")]
    pub options: Vec<i32>,
}

/// Answer of `GetClusterStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetClusterStatusResponse {
    /// What was asked for.
    #[prost(message, required, tag = "1")]
    pub cluster_status: ClusterStatus,
}

/// What the cluster is made of. Loads of servers and regions are left out.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterStatus {
    /// Version of the master.
    #[prost(message, optional, tag = "1")]
    pub hbase_version: Option<OneText>,
    /// The cluster's id.
    #[prost(message, optional, tag = "5")]
    pub cluster_id: Option<OneText>,
    /// The master.
    #[prost(message, optional, tag = "7")]
    pub master: Option<ServerName>,
    /// Those that wait to be it.
    #[prost(message, repeated, tag = "8")]
    pub backup_masters: Vec<ServerName>,
    /// Whether regions are moved to spread load.
    #[prost(bool, optional, tag = "9")]
    pub balancer_on: Option<bool>,
    /// Region servers.
    #[prost(message, repeated, tag = "11")]
    pub servers_name: Vec<ServerName>,
}

/// A message around one text (`HBaseVersionFileContent`, `ClusterId`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OneText {
    /// The text.
    #[prost(string, required, tag = "1")]
    pub text: String,
}
