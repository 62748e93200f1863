//! `MasterService`: creates and drops tables, and describes the cluster.
//!
//! The response of a long call holds the number of a procedure. The client polls that procedure's state until it has
//! finished.

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
    /// The new schema.
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

/// Response of the calls above.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProcedureResponse {
    /// The procedure to poll; absent if the call is over.
    #[prost(uint64, optional, tag = "1")]
    pub proc_id: Option<u64>,
}

/// Argument of `getProcedureResult`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GetProcedureResultRequest {
    /// Its number.
    #[prost(uint64, required, tag = "1")]
    pub proc_id: u64,
}

/// States of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ProcedureState {
    /// Unknown, or no longer known.
    NotFound = 0,
    /// Running.
    Running = 1,
    /// Over, with or without success.
    Finished = 2,
}

/// Response of `getProcedureResult`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetProcedureResultResponse {
    /// Its state.
    #[prost(enumeration = "ProcedureState", required, tag = "1")]
    pub state: i32,
    /// Time of its start, in ms since 1970.
    #[prost(uint64, optional, tag = "2")]
    pub submitted_time: Option<u64>,
    /// Time of its last progress, in ms since 1970.
    #[prost(uint64, optional, tag = "3")]
    pub last_update: Option<u64>,
    /// Its result.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub result: Option<Bytes>,
    /// The error that it failed with, if it did.
    #[prost(message, optional, tag = "5")]
    pub exception: Option<ForeignExceptionMessage>,
}

/// An exception of another process.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ForeignExceptionMessage {
    /// The name of that process.
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

/// Response of `GetTableNames`.
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

/// Response of `GetTableDescriptors`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetTableDescriptorsResponse {
    /// The tables.
    #[prost(message, repeated, tag = "1")]
    pub table_schema: Vec<TableSchema>,
}

/// Response of `IsMasterRunning`, a call that the stock client sends before each other call.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IsMasterRunningResponse {
    /// Whether it is running.
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
    /// The requested parts; everything when empty.
    #[prost(enumeration = "ClusterOption", repeated, packed = "false", tag = "1")]
    pub options: Vec<i32>,
}

/// Response of `GetClusterStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetClusterStatusResponse {
    /// The requested parts.
    #[prost(message, required, tag = "1")]
    pub cluster_status: ClusterStatus,
}

/// The members of the cluster. Loads of servers and regions are left out.
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
    /// Servers that can take over as master.
    #[prost(message, repeated, tag = "8")]
    pub backup_masters: Vec<ServerName>,
    /// Whether regions are moved to spread load.
    #[prost(bool, optional, tag = "9")]
    pub balancer_on: Option<bool>,
    /// Region servers.
    #[prost(message, repeated, tag = "11")]
    pub servers_name: Vec<ServerName>,
}

/// A message that holds one text (`HBaseVersionFileContent`, `ClusterId`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OneText {
    /// The text.
    #[prost(string, required, tag = "1")]
    pub text: String,
}
