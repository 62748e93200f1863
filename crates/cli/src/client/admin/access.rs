//! Calls about access rules.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::Client;
use super::own::{not_made, refusal};
use anyhow::{Context, Result};
use stele_adminapi::{ListRulesRequest, ModifyRulesRequest, ResourceRules};

/// The name of the whole cluster.
pub(crate) const CLUSTER: &str = "cluster";

/// The feature, for the error of a server without these calls.
const WHAT: &str = "access rules";

impl Client {
    /// The name of a resource that is given as `cluster`, `instance` or `instance/table`. An instance named `cluster`, which
    /// earlier versions could make, has a slash behind it.
    pub fn resource_name(&self, resource: &str) -> String {
        match resource.split_once('/') {
            None if resource == CLUSTER => resource.to_owned(),
            None => self.instance_name(resource),
            Some((instance, "")) => self.instance_name(instance),
            Some((instance, table)) => format!("{}/tables/{table}", self.instance_name(instance)),
        }
    }

    /// The rules of a resource, or of all that the caller administers if its name is empty.
    pub async fn list_rules(&self, resource: String) -> Result<Vec<ResourceRules>> {
        let request = ListRulesRequest { resource };
        let answer = call!(self.own, list_rules, request).map_err(|status| refusal(WHAT, &status));
        Ok(answer.context("cannot list the rules")?.resources)
    }

    /// Gives and takes rights; the rules of the resource afterwards.
    pub async fn modify_rules(&self, request: ModifyRulesRequest) -> Result<ResourceRules> {
        change!(self.own, modify_rules, request)
            .map_err(|status| not_made(WHAT, &status, "change the rules", "stele rules"))
    }
}
