//! Calls for the settings of a table.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::{Client, TableRef};
use super::own::{not_made, refusal};
use anyhow::{Context, Result};
use stele_adminapi::{GetTableSettingsRequest, Settings, UpdateTableSettingsRequest};

/// The feature, for the error of a server without these calls.
const WHAT: &str = "settings of tables";

impl Client {
    /// The settings of a table.
    pub async fn table_settings(&self, table: &TableRef) -> Result<Settings> {
        let name = self.table_name(table);
        let answer = call!(self.own, get_settings, GetTableSettingsRequest { name: name.clone() });
        let answer = answer.map_err(|status| refusal(WHAT, &status));
        answer.with_context(|| format!("cannot tell the settings of {table}"))
    }

    /// Changes the settings that are present; returns all settings.
    pub async fn update_table_settings(&self, table: &TableRef, settings: Settings) -> Result<Settings> {
        let request = UpdateTableSettingsRequest {
            name: self.table_name(table),
            settings: Some(settings),
        };
        let (change, look) = (
            format!("change the settings of {table}"),
            format!("stele settings {table}"),
        );
        change!(self.own, update_settings, request).map_err(|status| not_made(WHAT, &status, &change, &look))
    }
}
