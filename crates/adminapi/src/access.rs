//! `stele.admin.v1.Access`: `docs/security.md`.

use prost::Message;

/// Path of the call that lists rules.
pub const LIST_RULES_PATH: &str = "/stele.admin.v1.Access/ListRules";
/// Path of the call that gives or takes rights.
pub const MODIFY_RULES_PATH: &str = "/stele.admin.v1.Access/ModifyRules";

/// One rule.
#[derive(Clone, PartialEq, Message)]
pub struct AccessRule {
    /// `user:NAME`, `serviceAccount:NAME`, `group:NAME`, `domain:NAME` or `allAuthenticatedUsers`.
    #[prost(string, tag = "1")]
    pub member: String,
    /// Of `read`, `write`, `admin` and `view`.
    #[prost(string, repeated, tag = "2")]
    pub rights: Vec<String>,
    /// Families that it is narrowed to; none for all.
    #[prost(string, repeated, tag = "3")]
    pub families: Vec<String>,
    /// Prefix of rows that it is narrowed to; empty for all.
    #[prost(bytes = "vec", tag = "4")]
    pub row_prefix: Vec<u8>,
}

/// Asks for the rules of a resource, or of all that the caller administers.
#[derive(Clone, PartialEq, Message)]
pub struct ListRulesRequest {
    /// `cluster`, `projects/P/instances/I`, `…/tables/T` or `…/clusters/C/backups/B`; empty for all.
    #[prost(string, tag = "1")]
    pub resource: String,
}

/// Rules by resource.
#[derive(Clone, PartialEq, Message)]
pub struct ListRulesResponse {
    /// The resources that have rules.
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<ResourceRules>,
}

/// The rules of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceRules {
    /// As in a request; the project is `-`, and so is the cluster of a backup.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// Its rules.
    #[prost(message, repeated, tag = "2")]
    pub rules: Vec<AccessRule>,
}

/// Gives rights and takes rights. Both go to the rule with the same member, families and prefix.
#[derive(Clone, PartialEq, Message)]
pub struct ModifyRulesRequest {
    /// As in [`ListRulesRequest`], not empty.
    #[prost(string, tag = "1")]
    pub resource: String,
    /// Rights to take, first.
    #[prost(message, repeated, tag = "2")]
    pub revoke: Vec<AccessRule>,
    /// Rights to give.
    #[prost(message, repeated, tag = "3")]
    pub grant: Vec<AccessRule>,
}
