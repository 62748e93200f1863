//! Servers that are decommissioned: Stele calls such a server one that drains.
//!
//! A server that drains gets no regions, and the leader moves those that it has to others, a few at a time. As in HBase, a call
//! returns when that is recorded, and does not wait for the moves.
//!
//! HBase distinguishes servers that only get no regions from those that are emptied (`offload`). Here every decommissioned server
//! is emptied.

use super::moves;
use crate::call::{Call, Reply};
use crate::context::name_of;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use std::collections::BTreeSet;
use std::time::Duration;
use stele_client::ClusterStatus;
use stele_types::{ErrorKind, ServerId};
use stele_wire::exception;
use stele_wire::messages::{
    DecommissionRegionServersRequest, Empty, RecommissionRegionServerRequest, RegionSpecifier, ServerName, ServerNames,
};

/// Longest wait until the leader knows that a server takes regions again: it follows its own record.
const RETURN_WAIT: Duration = Duration::from_secs(5);

/// Serves `ListDecommissionedRegionServers`: those that live, as their names are not known otherwise. A single server never is one.
pub(super) async fn list(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let mut server_name = Vec::new();
    if let Some(status) = status(shared).await? {
        let drains = status.servers.iter().filter(|server| server.lives && server.drains);
        let addresses: BTreeSet<&str> = drains.map(moves::address_of).collect();
        let others = shared.service.other_servers();
        server_name.push(shared.server_name());
        server_name.extend(others.iter().map(|other| name_of(other)));
        server_name.retain(|name| addresses.contains(&moves::address_in(name)[..]));
    }
    call.reply(&ServerNames { server_name })
}

/// Serves `DecommissionRegionServers`. No server drains if one of the names is none of a server that lives.
pub(super) async fn decommission(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: DecommissionRegionServersRequest = call.message("DecommissionRegionServersRequest")?;
    let status = cluster(shared, "DecommissionRegionServers").await?;
    let named = |name: &ServerName| Ok(moves::named(shared, &status, name)?.server);
    let servers: BTreeSet<ServerId> = request.server_name.iter().map(named).collect::<Outcome<_>>()?;
    for server in servers {
        shared.admin.drain_server(server, true).await?;
    }
    call.reply(&Empty {})
}

/// Serves `RecommissionRegionServer`. The regions that the call names move to the server.
pub(super) async fn recommission(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: RecommissionRegionServerRequest = call.message("RecommissionRegionServerRequest")?;
    let status = cluster(shared, "RecommissionRegionServer").await?;
    let server = moves::named(shared, &status, &request.server_name)?.server;
    shared.admin.drain_server(server, false).await?;
    if !request.region.is_empty() {
        wait_for_return(shared, server).await?;
        for region in &request.region {
            move_to(shared, region, server).await?;
        }
    }
    call.reply(&Empty {})
}

/// Orders a move. As in HBase, a region that is not known is passed over, and so is `hbase:meta`.
async fn move_to(shared: &Shared, region: &RegionSpecifier, server: ServerId) -> Outcome<()> {
    let region = match moves::known(shared, region).await {
        Ok(Some(region)) => region,
        Ok(None) => return Ok(()),
        Err(failure) if failure.class == exception::UNKNOWN_REGION => return Ok(()),
        Err(failure) => return Err(failure),
    };
    match shared.admin.move_tablet(region.tablet, server).await {
        // It was split or merged meanwhile.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        moved => Ok(moved?),
    }
}

/// Waits until the leader knows that the server does not drain any more: before, it calls moves to the server off.
async fn wait_for_return(shared: &Shared, server: ServerId) -> Outcome<()> {
    let deadline = shared.env.now() + RETURN_WAIT;
    loop {
        let status = shared.admin.cluster_status().await?;
        let drains = status
            .servers
            .iter()
            .any(|known| known.server == server && known.drains);
        if !drains || shared.env.now() >= deadline {
            return Ok(());
        }
        shared.env.sleep(moves::PAUSE).await;
    }
}

/// The status of the cluster; `None` where there is one server.
async fn status(shared: &Shared) -> Outcome<Option<ClusterStatus>> {
    match shared.admin.cluster_status().await {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.kind == ErrorKind::FailedPrecondition => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same for a call that a single server does not serve: its regions have no other place.
async fn cluster(shared: &Shared, method: &str) -> Outcome<ClusterStatus> {
    let status = status(shared).await?;
    status.ok_or_else(|| Failure::not_served(format!("MasterService.{method}")))
}

#[cfg(test)]
mod tests;
