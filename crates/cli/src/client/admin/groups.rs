//! Locality groups of a table: a service of Stele's own, which other servers of the Bigtable API do not have.

use super::super::{Client, TableRef};
use super::own::refusal;
use super::{ADMIN_TIMEOUT, Retry};
use anyhow::{Context, Result};
use stele_adminapi::{GetLocalityGroupsRequest, LocalityGroup, Modification, ModifyLocalityGroupsRequest};
use tonic::Request;

/// What a server that does not know the calls has none of.
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

    /// Changes locality groups, all or nothing; what they are then.
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
