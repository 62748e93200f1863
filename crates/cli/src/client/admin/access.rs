//! Calls about access rules.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::Client;
use super::own::refusal;
use super::{ADMIN_TIMEOUT, Retry};
use anyhow::{Context, Result};
use stele_adminapi::{ListRulesRequest, ModifyRulesRequest, ResourceRules};
use tonic::Request;

/// The feature, for the error of a server without these calls.
const WHAT: &str = "access rules";

impl Client {
    /// The name of a resource that is given as `cluster`, `instance` or `instance/table`.
    pub fn resource_name(&self, resource: &str) -> String {
        match resource.split_once('/') {
            None if resource == "cluster" => resource.to_owned(),
            None => self.instance_name(resource),
            Some((instance, table)) => format!("{}/tables/{table}", self.instance_name(instance)),
        }
    }

    /// The rules of a resource, or of all that the caller administers if its name is empty.
    pub async fn list_rules(&self, resource: String) -> Result<Vec<ResourceRules>> {
        let request = ListRulesRequest { resource };
        let answer = call!(self.own, list_rules, request).map_err(|status| refusal(WHAT, &status));
        Ok(answer.context("cannot list the rules")?.resources)
    }

    /// Gives and takes rights; the rules of the resource afterwards. A repeated call has the effect of one.
    pub async fn modify_rules(&self, request: ModifyRulesRequest) -> Result<ResourceRules> {
        let answer = call!(self.own, modify_rules, request).map_err(|status| refusal(WHAT, &status));
        answer.context("cannot change the rules")
    }
}
