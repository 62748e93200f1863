//! Rights of users: calls of the master, and those of `AccessControlService`, a service of regions.
//!
//! Both have the same messages.

use super::basic::TableName;
use bytes::Bytes;

/// One letter of HBase's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum PermissionAction {
    /// `R`: reads.
    Read = 0,
    /// `W`: writes.
    Write = 1,
    /// `X`: calls of coprocessors.
    Exec = 2,
    /// `C`: making and dropping tables.
    Create = 3,
    /// `A`: all other administration.
    Admin = 4,
}

/// The kind of part of the cluster that rights are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum PermissionType {
    /// The whole cluster.
    Global = 1,
    /// A namespace.
    Namespace = 2,
    /// A table, or a part of it.
    Table = 3,
}

/// Rights on the whole cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GlobalPermission {
    /// The letters.
    #[prost(enumeration = "PermissionAction", repeated, packed = "false", tag = "1")]
    pub action: Vec<i32>,
}

/// Rights on a namespace.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamespacePermission {
    /// Its name.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub namespace_name: Option<Bytes>,
    /// The letters.
    #[prost(enumeration = "PermissionAction", repeated, packed = "false", tag = "2")]
    pub action: Vec<i32>,
}

/// Rights on a table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TablePermission {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub table_name: Option<TableName>,
    /// The family that they are narrowed to.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub family: Option<Bytes>,
    /// The column of it.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub qualifier: Option<Bytes>,
    /// The letters.
    #[prost(enumeration = "PermissionAction", repeated, packed = "false", tag = "4")]
    pub action: Vec<i32>,
}

/// Rights on a part of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Permission {
    /// Which of the following fields counts.
    #[prost(enumeration = "PermissionType", required, tag = "1")]
    pub r#type: i32,
    /// Of the whole cluster.
    #[prost(message, optional, tag = "2")]
    pub global_permission: Option<GlobalPermission>,
    /// Of a namespace.
    #[prost(message, optional, tag = "3")]
    pub namespace_permission: Option<NamespacePermission>,
    /// Of a table.
    #[prost(message, optional, tag = "4")]
    pub table_permission: Option<TablePermission>,
}

/// Rights of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserPermission {
    /// The user, or `@` and the name of a group.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub user: Bytes,
    /// The rights.
    #[prost(message, required, tag = "3")]
    pub permission: Permission,
}

/// Argument of `Grant`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GrantRequest {
    /// The user and the rights.
    #[prost(message, required, tag = "1")]
    pub user_permission: UserPermission,
    /// Whether the user keeps the rights that it has there.
    #[prost(bool, optional, tag = "2")]
    pub merge_existing_permissions: Option<bool>,
}

/// Argument of `Revoke`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RevokeRequest {
    /// The user and the rights; without letters all of that part.
    #[prost(message, required, tag = "1")]
    pub user_permission: UserPermission,
}

/// Argument of `GetUserPermissions`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetUserPermissionsRequest {
    /// The kind of part; without it, of the whole cluster.
    #[prost(enumeration = "PermissionType", optional, tag = "1")]
    pub r#type: Option<i32>,
    /// The table.
    #[prost(message, optional, tag = "2")]
    pub table_name: Option<TableName>,
    /// The namespace.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub namespace_name: Option<Bytes>,
    /// Only rights narrowed to this family.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub column_family: Option<Bytes>,
    /// Only rights narrowed to this column.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub column_qualifier: Option<Bytes>,
    /// Only rights of this user.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub user_name: Option<Bytes>,
}

/// Response of `GetUserPermissions`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetUserPermissionsResponse {
    /// Rights by user and part.
    #[prost(message, repeated, tag = "1")]
    pub user_permission: Vec<UserPermission>,
}

/// Argument of `CheckPermissions`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CheckPermissionsRequest {
    /// Rights that the caller must have.
    #[prost(message, repeated, tag = "1")]
    pub permission: Vec<Permission>,
}

/// Argument of `HasUserPermissions`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HasUserPermissionsRequest {
    /// The user; without it, the caller.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub user_name: Option<Bytes>,
    /// The rights.
    #[prost(message, repeated, tag = "2")]
    pub permission: Vec<Permission>,
}

/// Response of `HasUserPermissions`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HasUserPermissionsResponse {
    /// Whether the user has each of the rights, in the order of the request.
    #[prost(bool, repeated, packed = "false", tag = "1")]
    pub has_user_permission: Vec<bool>,
}

/// Argument of `AccessControlService.HasPermission`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HasPermissionRequest {
    /// The rights.
    #[prost(message, required, tag = "1")]
    pub table_permission: TablePermission,
    /// The user.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub user_name: Bytes,
}

/// Response of `AccessControlService.HasPermission`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HasPermissionResponse {
    /// Whether the user has all of the rights.
    #[prost(bool, optional, tag = "1")]
    pub has_permission: Option<bool>,
}
