//! Calls for snapshots.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::{Client, TableRef};
use super::own::{not_made, refusal};
use anyhow::{Context, Result};
use stele_adminapi::{
    CreateSnapshotRequest, DeleteSnapshotRequest, KeptTable, ListKeptTablesRequest, ListSnapshotsRequest,
    RestoreSnapshotRequest, Snapshot,
};

/// The feature, for the error of a server without these calls.
const WHAT: &str = "snapshots";

impl Client {
    /// Takes a snapshot of a table; 0 seconds keep it for ever.
    pub async fn create_snapshot(&self, table: &TableRef, snapshot: &str, ttl_seconds: u64) -> Result<Snapshot> {
        let request = CreateSnapshotRequest {
            table: self.table_name(table),
            snapshot: snapshot.to_owned(),
            ttl_seconds,
        };
        let (change, look) = (format!("take a snapshot of {table}"), list_of(&table.instance));
        change!(self.own, create_snapshot, request).map_err(|status| not_made(WHAT, &status, &change, &look))
    }

    /// The snapshots of an instance, by name.
    pub async fn list_snapshots(&self, instance: &str) -> Result<Vec<Snapshot>> {
        let request = ListSnapshotsRequest {
            parent: self.instance_name(instance),
        };
        let answer = call!(self.own, list_snapshots, request).map_err(|status| refusal(WHAT, &status));
        let answer = answer.with_context(|| format!("cannot list the snapshots of {instance}"))?;
        Ok(answer.snapshots)
    }

    /// The tables that the server keeps after an accident: of an instance, or of all.
    pub async fn list_kept_tables(&self, instance: Option<&str>) -> Result<Vec<KeptTable>> {
        let request = ListKeptTablesRequest {
            parent: self.instance_name(instance.unwrap_or("-")),
        };
        let answer = call!(self.own, list_kept_tables, request).map_err(|status| refusal("deleted tables", &status));
        Ok(answer.context("cannot list deleted tables")?.tables)
    }

    /// Makes a table of a snapshot, or puts one back to it if `in_place`.
    pub async fn restore_snapshot(&self, snapshot: &TableRef, table: &TableRef, in_place: bool) -> Result<()> {
        let request = RestoreSnapshotRequest {
            parent: self.instance_name(&snapshot.instance),
            snapshot: snapshot.table.clone(),
            table: self.table_name(table),
            in_place,
        };
        let change = format!("restore {table} from {snapshot}");
        let look = match in_place {
            true => format!("stele scan {table}"),
            false => format!("stele tables {}", table.instance),
        };
        change!(self.own, restore_snapshot, request).map_err(|status| not_made(WHAT, &status, &change, &look))
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, snapshot: &TableRef) -> Result<()> {
        let request = DeleteSnapshotRequest {
            parent: self.instance_name(&snapshot.instance),
            snapshot: snapshot.table.clone(),
        };
        let (change, look) = (format!("delete snapshot {snapshot}"), list_of(&snapshot.instance));
        change!(self.own, delete_snapshot, request).map_err(|status| not_made(WHAT, &status, &change, &look))
    }
}

/// The command that shows the snapshots of an instance.
fn list_of(instance: &str) -> String {
    format!("stele snapshot list {instance}")
}
