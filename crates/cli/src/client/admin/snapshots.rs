//! Calls for snapshots.
//!
//! The service is Stele's own. Other servers of the Bigtable API do not have it.

use super::super::{Client, TableRef};
use super::own::refusal;
use super::{ADMIN_TIMEOUT, Retry};
use anyhow::{Context, Result};
use stele_adminapi::{
    CreateSnapshotRequest, DeleteSnapshotRequest, KeptTable, ListKeptTablesRequest, ListSnapshotsRequest,
    RestoreSnapshotRequest, Snapshot,
};
use tonic::Request;

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
        let answer = call!(self.own, create_snapshot, request).map_err(|status| refusal(WHAT, &status));
        answer.with_context(|| format!("cannot take a snapshot of {table}"))
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
        let answer = call!(self.own, restore_snapshot, request).map_err(|status| refusal(WHAT, &status));
        answer.with_context(|| format!("cannot restore {table} from {snapshot}"))
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, snapshot: &TableRef) -> Result<()> {
        let request = DeleteSnapshotRequest {
            parent: self.instance_name(&snapshot.instance),
            snapshot: snapshot.table.clone(),
        };
        let answer = call!(self.own, delete_snapshot, request).map_err(|status| refusal(WHAT, &status));
        answer.with_context(|| format!("cannot delete snapshot {snapshot}"))
    }
}
