//! Calls for backups at destinations.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::Client;
use super::own::{not_made, refusal};
use anyhow::{Context, Result};
use stele_adminapi::{
    BackupDestination, BackupWork, BeginBackupWorkRequest, CancelBackupWorkRequest, DestinationBackup,
    GetBackupWorkRequest, ListDestinationRequest, RestorableTime,
};
use tonic::Code;

/// The feature, for the error of a server without these calls.
const WHAT: &str = "backups at destinations";

impl Client {
    /// Begins a work.
    pub async fn begin_backup_work(&self, request: BeginBackupWorkRequest) -> Result<BackupWork> {
        let destination = request.destination.as_ref();
        let address = destination.map_or_else(String::new, |destination| destination.address.clone());
        let look = format!("stele backup list {address}");
        change!(self.own, begin_backup_work, request).map_err(|status| not_made(WHAT, &status, "begin", &look))
    }

    /// A work; `None` when the server does not know it, because it was started since.
    pub async fn backup_work(&self, number: u64) -> Result<Option<BackupWork>> {
        let request = GetBackupWorkRequest { number };
        match call!(self.own, backup_work, request) {
            Ok(work) => Ok(Some(work)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(refusal(WHAT, &status)).context("the work goes on; its state is unknown"),
        }
    }

    /// Calls a work off.
    pub async fn cancel_backup_work(&self, number: u64) -> Result<()> {
        let request = CancelBackupWorkRequest { number };
        // A repetition might meet the work that has this number after a start of the server.
        let answer = change!(self.own, cancel_backup_work, request).map_err(|status| refusal(WHAT, &status));
        answer.context("cannot cancel")
    }

    /// The backups at a destination, oldest first, and the times in which moments can be restored with an archive of the log.
    pub async fn list_backups(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> Result<(Vec<DestinationBackup>, Vec<RestorableTime>)> {
        let address = destination.address.clone();
        let request = ListDestinationRequest {
            destination: Some(destination),
            archive,
        };
        let answer = call!(self.own, list_destination, request).map_err(|status| refusal(WHAT, &status));
        let answer = answer.with_context(|| format!("cannot list the backups at {address}"))?;
        Ok((answer.backups, answer.restorable))
    }
}
