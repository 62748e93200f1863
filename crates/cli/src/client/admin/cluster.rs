//! Calls about a cluster.

use super::super::Client;
use super::own::refusal;
use super::{ADMIN_TIMEOUT, Retry};
use anyhow::{Context, Result};
use stele_adminapi::{ClusterStatus, DrainServerRequest, GetClusterStatusRequest, MoveTabletRequest};
use tonic::Request;

/// The subject of refusals.
const WHAT: &str = "clusters";

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
        let answer = call!(self.own, move_tablet, request).map_err(|status| refusal(WHAT, &status));
        answer.with_context(|| format!("cannot move tablet {tablet} to server {server}"))
    }

    /// Has all tablets move away from a server, or lets it have some again.
    pub async fn drain_server(&self, server: u32, undo: bool) -> Result<()> {
        let request = DrainServerRequest { server, undo };
        let answer = call!(self.own, drain_server, request).map_err(|status| refusal(WHAT, &status));
        answer.with_context(|| format!("cannot drain server {server}"))
    }
}
