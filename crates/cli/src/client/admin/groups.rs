//! Calls for the locality groups of a table.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::{Client, TableRef};
use super::own::{not_made, refusal};
use anyhow::{Context, Result};
use stele_adminapi::{GetLocalityGroupsRequest, LocalityGroup, Modification, ModifyLocalityGroupsRequest};

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
        let (change, look) = (
            format!("change the locality groups of {table}"),
            format!("stele groups {table}"),
        );
        let answer = change!(self.own, modify_groups, request);
        Ok(answer.map_err(|status| not_made(WHAT, &status, &change, &look))?.groups)
    }
}
