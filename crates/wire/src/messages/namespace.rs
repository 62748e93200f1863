//! Namespaces: groups of tables with settings of their own.

use super::basic::{NameStringPair, TableName, TableSchema};
use bytes::Bytes;

/// A namespace as its owner described it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamespaceDescriptor {
    /// Its name.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub name: Bytes,
    /// Its settings.
    #[prost(message, repeated, tag = "2")]
    pub configuration: Vec<NameStringPair>,
}

/// Argument of `CreateNamespace` and `ModifyNamespace`, and response of `GetNamespaceDescriptor`, which has no nonces.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamespaceMessage {
    /// The namespace.
    #[prost(message, required, tag = "1")]
    pub namespace_descriptor: NamespaceDescriptor,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
}

/// Argument of `DeleteNamespace`, and, without nonces, of `GetNamespaceDescriptor`, `ListTableNamesByNamespace` and
/// `ListTableDescriptorsByNamespace`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamespaceRequest {
    /// The namespace.
    #[prost(string, required, tag = "1")]
    pub namespace_name: String,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
}

/// Response of `ListNamespaces`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListNamespacesResponse {
    /// The names.
    #[prost(string, repeated, tag = "1")]
    pub namespace_name: Vec<String>,
}

/// Response of `ListNamespaceDescriptors`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListNamespaceDescriptorsResponse {
    /// The namespaces.
    #[prost(message, repeated, tag = "1")]
    pub namespace_descriptor: Vec<NamespaceDescriptor>,
}

/// Tables by name: response of `ListTableNamesByNamespace` and `ListTableNamesByState`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TableNames {
    /// The names.
    #[prost(message, repeated, tag = "1")]
    pub table_name: Vec<TableName>,
}

/// Tables: response of `ListTableDescriptorsByNamespace` and `ListTableDescriptorsByState`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableSchemas {
    /// The tables.
    #[prost(message, repeated, tag = "1")]
    pub table_schema: Vec<TableSchema>,
}
