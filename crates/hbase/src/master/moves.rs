//! Moves of regions between the servers of a cluster.
//!
//! As in HBase, a call returns when the region is at its new place. A region that is there already stays, and so does one for
//! which there is no other server. A single server has all regions, and they stay.

use crate::call::{Call, Reply};
use crate::context::name_of;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::region_search;
use crate::regions::{self, Region};
use std::time::Duration;
use stele_client::{ClusterStatus, ServerStatus};
use stele_types::{ErrorKind, ServerId};
use stele_wire::exception;
use stele_wire::messages::{Empty, MoveRegionRequest, OneRegion, RegionSpecifier, ServerName};

/// Longest time of a move: two flushes, of which the first one may wait for the disk.
const MOVE_WAIT: Duration = Duration::from_secs(120);
/// Pause between two requests for the status of the cluster.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Serves `MoveRegion`.
pub(super) async fn move_to(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: MoveRegionRequest = call.message("MoveRegionRequest")?;
    let region = known(shared, &request.region).await?;
    let status = match shared.admin.cluster_status().await {
        Ok(status) => Some(status),
        Err(error) if error.kind == ErrorKind::FailedPrecondition => None,
        Err(error) => return Err(error.into()),
    };
    let target = match (&request.dest_server_name, &status) {
        (Some(name), Some(status)) => Some(target(shared, status, name)?),
        (Some(name), None) if *name != shared.server_name() => return Err(not_online(name)),
        (None, Some(status)) => region.as_ref().and_then(|region| other_server(status, region)),
        (_, None) => None,
    };
    if let (Some(region), Some(target)) = (region, target) {
        move_region(shared, &region, target).await?;
    }
    call.reply(&Empty {})
}

/// Serves `AssignRegion` and `UnassignRegion`. A region that is taken off its server is given to a server again, which is
/// the same.
pub(super) async fn assign(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: OneRegion = call.message("AssignRegionRequest")?;
    known(shared, &request.region).await?;
    call.reply(&Empty {})
}

/// The region of a call; `None` for `hbase:meta`, which every server has.
pub(super) async fn known(shared: &Shared, region: &RegionSpecifier) -> Outcome<Option<Region>> {
    match regions::is_meta(region) {
        true => Ok(None),
        false => region_search::find_known(shared, region).await.map(Some),
    }
}

/// The server of this name, to which regions can move.
fn target(shared: &Shared, status: &ClusterStatus, name: &ServerName) -> Outcome<ServerId> {
    let server = named(shared, status, name)?;
    if server.drains {
        let address = address_of(server);
        let message = format!("Server {address} is decommissioned: no region is moved to it");
        return Err(Failure::do_not_retry(message));
    }
    Ok(server.server)
}

/// The server of this name, which lives.
pub(super) fn named<'a>(shared: &Shared, status: &'a ClusterStatus, name: &ServerName) -> Outcome<&'a ServerStatus> {
    let others = shared.service.other_servers();
    let is_other = others.iter().any(|other| name_of(other) == *name);
    if !is_other && *name != shared.server_name() {
        return Err(not_online(name));
    }
    let address = address_in(name);
    let mut live = status.servers.iter().filter(|server| server.lives);
    let server = live.find(|server| address_of(server) == address);
    server.ok_or_else(|| not_online(name))
}

/// The address of a server, as the status of the cluster has it.
pub(super) fn address_in(name: &ServerName) -> String {
    format!("{}:{}", name.host_name, name.port.unwrap_or(0))
}

/// The same of a server in the status: empty if it does not serve HBase clients.
pub(super) fn address_of(server: &ServerStatus) -> &str {
    let [_, _, hbase, _] = &server.addresses;
    hbase
}

/// Of the servers that HBase clients reach and that do not have the region, the one with the fewest tablets.
fn other_server(status: &ClusterStatus, region: &Region) -> Option<ServerId> {
    let tablet = status.tablets.iter().find(|tablet| tablet.tablet == region.tablet);
    let owner = tablet.and_then(|tablet| tablet.owner);
    let may_have_it = |server: &&ServerStatus| {
        let takes_regions = server.lives && !server.sealed && !server.drains && !address_of(server).is_empty();
        takes_regions && Some(server.server) != owner
    };
    let others = status.servers.iter().filter(may_have_it);
    others.min_by_key(|server| server.tablets).map(|server| server.server)
}

fn not_online(name: &ServerName) -> Failure {
    let (port, start_code) = (name.port.unwrap_or(0), name.start_code.unwrap_or(0));
    Failure::do_not_retry(format!("Server {},{port},{start_code} is not online", name.host_name))
}

async fn move_region(shared: &Shared, region: &Region, target: ServerId) -> Outcome<()> {
    let unknown = || Failure::new(exception::UNKNOWN_REGION, region.name().escape_ascii().to_string());
    let deadline = shared.env.now() + MOVE_WAIT;
    let mut is_asked = false;
    loop {
        let status = shared.admin.cluster_status().await?;
        let tablet = status.tablets.iter().find(|tablet| tablet.tablet == region.tablet);
        let Some(tablet) = tablet else {
            return match is_asked {
                // It was split or merged on its way.
                true => Ok(()),
                false => Err(unknown()),
            };
        };
        if tablet.owner == Some(target) && tablet.serves {
            return Ok(());
        }
        if !is_asked || (tablet.owner != Some(target) && tablet.moving_to != Some(target)) {
            // Asked again if the leader changed its mind: its server has failed, or another order came in between.
            let moved = shared.admin.move_tablet(region.tablet, target).await;
            moved.map_err(|error| match error.kind {
                ErrorKind::NotFound => unknown(),
                _ => Failure::from(error),
            })?;
            is_asked = true;
        }
        if shared.env.now() >= deadline {
            return Err(Failure::do_not_retry(format!(
                "region {} has not moved yet: {}",
                region.name().escape_ascii(),
                tablet.waits_for
            )));
        }
        shared.env.sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
