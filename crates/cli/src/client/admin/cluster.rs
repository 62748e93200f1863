//! Calls about a cluster.

use super::super::{Client, TableRef};
use super::own::{not_made, refusal};
use anyhow::{Context, Result};
use stele_adminapi::{
    ClusterStatus, DrainServerRequest, GetClusterStatusRequest, GetSwitchesRequest, MergeTabletsRequest,
    MoveTabletRequest, SetSwitchesRequest, SplitTabletRequest, SplitTabletResponse, Switches,
};

/// The subject of refusals.
const WHAT: &str = "clusters";
/// Shows whether a tablet was moved, split or merged.
const TABLETS: &str = "stele cluster tablets";

impl Client {
    /// Servers, and tablets if they are wanted.
    pub async fn cluster_status(&self, tablets: bool) -> Result<ClusterStatus> {
        let request = GetClusterStatusRequest { tablets };
        let answer = call!(self.own, cluster_status, request).map_err(|status| refusal(WHAT, &status));
        answer.context("cannot tell the status of the cluster")
    }

    /// Has a tablet move to a server.
    pub async fn move_tablet(&self, tablet: u64, server: u32) -> Result<()> {
        let request = MoveTabletRequest { tablet, server };
        let change = format!("move tablet {tablet} to server {server}");
        change!(self.own, move_tablet, request).map_err(|status| not_made(WHAT, &status, &change, TABLETS))
    }

    /// Has all tablets move away from a server, or lets it have some again.
    pub async fn drain_server(&self, server: u32, undo: bool) -> Result<()> {
        let request = DrainServerRequest { server, undo };
        let change = format!("drain server {server}");
        change!(self.own, drain_server, request)
            .map_err(|status| not_made(WHAT, &status, &change, "stele cluster status"))
    }

    /// Splits a tablet of a table, or the one with the row, before the row or in its middle.
    pub async fn split_tablet(&self, table: &TableRef, tablet: u64, row: &[u8]) -> Result<SplitTabletResponse> {
        let request = SplitTabletRequest {
            name: self.table_name(table),
            tablet,
            row: row.to_vec(),
        };
        let change = format!("split a tablet of {table}");
        change!(self.own, split_tablet, request).map_err(|status| not_made(WHAT, &status, &change, TABLETS))
    }

    /// Makes one tablet of neighbours; its number.
    pub async fn merge_tablets(&self, table: &TableRef, tablets: &[u64]) -> Result<u64> {
        let request = MergeTabletsRequest {
            name: self.table_name(table),
            tablets: tablets.to_vec(),
        };
        let change = format!("merge tablets of {table}");
        let merged = change!(self.own, merge_tablets, request);
        let merged = merged.map_err(|status| not_made(WHAT, &status, &change, TABLETS))?;
        Ok(merged.tablet)
    }

    /// The work that servers do by themselves.
    pub async fn switches(&self) -> Result<Switches> {
        let answer = call!(self.own, switches, GetSwitchesRequest {}).map_err(|status| refusal(WHAT, &status));
        answer.context("cannot tell the switches")
    }

    /// Switches such work on or off; the positions before.
    pub async fn set_switches(&self, request: SetSwitchesRequest) -> Result<Switches> {
        change!(self.own, set_switches, request)
            .map_err(|status| not_made(WHAT, &status, "change the switches", "stele cluster switch"))
    }
}
