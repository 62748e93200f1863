//! Calls for the locality groups of a table.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::{Client, TableRef};
use super::own::refusal;
use super::{ADMIN_TIMEOUT, Retry};
use anyhow::{Context, Result};
use stele_adminapi::{GetLocalityGroupsRequest, LocalityGroup, Modification, ModifyLocalityGroupsRequest};
use tonic::Request;

/// The feature, for the error of a server without these calls.
const WHAT: &str = "locality groups";

impl Client {
    /// The locality groups of a table.
    pub async fn locality_groups(&self, table: &TableRef) -> Result<Vec<LocalityGroup>> {
        let name = self.table_name(table);
        let answer = call!(self.own, get_groups, GetLocalityGroupsRequest { name: name.clone() });
        let answer = answer.map_err(|status| refusal(WHAT, &status));
        Ok(answer
            .with_context(|| format!("cannot describe the locality groups of {table}"))?
            .groups)
    }

    /// Changes locality groups, all or nothing; returns their new state.
    pub async fn modify_locality_groups(
        &self,
        table: &TableRef,
        modifications: Vec<Modification>,
    ) -> Result<Vec<LocalityGroup>> {
        let request = ModifyLocalityGroupsRequest {
            name: self.table_name(table),
            modifications,
        };
        let answer = call!(self.own, modify_groups, request).map_err(|status| refusal(WHAT, &status));
        Ok(answer
            .with_context(|| format!("cannot change the locality groups of {table}"))?
            .groups)
    }
}
