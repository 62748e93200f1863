//! The status of the cluster. The server that is asked calls itself the master.
//!
//! No server is listed as dead: the name of one has its address and its start, which are not kept when its session ends.

use crate::call::{Call, Reply};
use crate::context::name_of;
use crate::failure::Outcome;
use crate::front_end::Shared;
use crate::meta_table;
use crate::names;
use crate::region_loads::{self, ByServer};
use stele_client::ServerPlace;
use stele_wire::messages::{
    ClusterOption, ClusterStatus, GetClusterStatusRequest, GetClusterStatusResponse, LiveServerInfo, OneText,
    RegionLoad, RegionSpecifier, RegionStatesCount, TableRegionStatesCount,
};
use stele_wire::region;

/// The version of the protocol that is spoken.
const HBASE_VERSION: &str = "2.6.4";

/// Serves `GetClusterStatus`. Parts that are not asked for cost nothing.
pub(super) async fn status(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: GetClusterStatusRequest = call.message("GetClusterStatusRequest")?;
    let asks = |option: ClusterOption| request.options.is_empty() || request.options.contains(&(option as i32));
    let text = |text: &str| Some(OneText { text: text.to_owned() });
    let (server, others) = (shared.server_name(), shared.service.other_servers());
    let mut status = ClusterStatus::default();
    if asks(ClusterOption::HbaseVersion) {
        status.hbase_version = text(HBASE_VERSION);
    }
    if asks(ClusterOption::ClusterId) {
        status.cluster_id = text(&shared.identity.cluster_id);
    }
    if asks(ClusterOption::Master) {
        status.master = Some(server.clone());
    }
    if asks(ClusterOption::BalancerOn) {
        status.balancer_on = Some(shared.admin.switches().await?.balance);
    }
    if asks(ClusterOption::MasterInfoPort) {
        status.master_info_port = Some(-1);
    }
    if asks(ClusterOption::ServersName) {
        status.servers_name.push(server.clone());
        status.servers_name.extend(others.iter().map(|other| name_of(other)));
    }
    if asks(ClusterOption::LiveServers) {
        let mut regions = regions(shared).await?;
        for other in &others {
            let regions = regions.remove(&Some(ServerPlace::clone(other))).unwrap_or_default();
            status.live_servers.push(LiveServerInfo {
                server: name_of(other),
                server_load: region_loads::of_other(shared, regions),
            });
        }
        let regions = regions.remove(&None).unwrap_or_default();
        status.live_servers.push(LiveServerInfo {
            server,
            server_load: region_loads::of_this(shared, regions),
        });
    }
    if asks(ClusterOption::TableToRegionsCount) {
        status.table_region_states_count = counts(shared).await?;
    }
    call.reply(&GetClusterStatusResponse { cluster_status: status })
}

/// The load of the regions of all servers, with that of `hbase:meta`, which is here. Each tablet is asked once.
async fn regions(shared: &Shared) -> Outcome<ByServer> {
    let of_meta = RegionLoad {
        region_specifier: RegionSpecifier::named(region::META_REGION.into()),
        ..RegionLoad::default()
    };
    let mut loads = ByServer::from([(None, vec![of_meta])]);
    for schema in meta_table::all_tables(shared).await? {
        if schema.enabled {
            // A table that is dropped meanwhile has no regions.
            let _ = region_loads::add_table(shared, &schema, &mut loads).await;
        }
    }
    Ok(loads)
}

async fn counts(shared: &Shared) -> Outcome<Vec<TableRegionStatesCount>> {
    let mut counts = vec![TableRegionStatesCount {
        table_name: region::table_name(&region::META_TABLE.into()),
        region_states_count: states(1, true),
    }];
    for schema in meta_table::all_tables(shared).await? {
        let places = shared.service.places(&schema.name).unwrap_or_default();
        counts.push(TableRegionStatesCount {
            table_name: names::to_message(&schema.name),
            region_states_count: states(places.len(), schema.enabled),
        });
    }
    Ok(counts)
}

fn states(regions: usize, enabled: bool) -> RegionStatesCount {
    let regions = u32::try_from(regions).unwrap_or(u32::MAX);
    let (open_regions, closed_regions) = if enabled { (regions, 0) } else { (0, regions) };
    RegionStatesCount {
        open_regions,
        closed_regions,
        total_regions: regions,
        ..RegionStatesCount::default()
    }
}
