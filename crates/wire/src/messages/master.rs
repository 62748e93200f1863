//! `MasterService`: creates and drops tables, and describes the cluster.
//!
//! The response of a long call holds the number of a procedure. The client polls that procedure's state until it has
//! finished.

use super::basic::{ColumnFamilySchema, TableName, TableSchema, TableState};
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

/// Argument of `AddColumn` and `ModifyColumn`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FamilyRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// The family as it is to be.
    #[prost(message, required, tag = "2")]
    pub column_families: ColumnFamilySchema,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Argument of `DeleteColumn`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteColumnRequest {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    /// The family.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub column_name: Bytes,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// Response of `GetSchemaAlterStatus`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GetSchemaAlterStatusResponse {
    /// Regions that have the old schema.
    #[prost(uint32, optional, tag = "1")]
    pub yet_to_update_regions: Option<u32>,
    /// All regions of the table.
    #[prost(uint32, optional, tag = "2")]
    pub total_regions: Option<u32>,
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

/// Argument of `ListTableNamesByState` and `ListTableDescriptorsByState`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListByStateRequest {
    /// Enabled tables, or else disabled ones.
    #[prost(bool, required, tag = "1")]
    pub is_enabled: bool,
}

/// Response of `GetTableState`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GetTableStateResponse {
    /// The state.
    #[prost(message, required, tag = "1")]
    pub table_state: TableState,
}

/// A request that holds only a table (`GetSchemaAlterStatus`, `GetTableState`, `getLastMajorCompactionTimestamp`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OneTable {
    /// The table.
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
}
