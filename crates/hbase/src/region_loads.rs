//! The load of regions and of servers, as clients ask for it.

use crate::failure::Outcome;
use crate::front_end::Shared;
use crate::pace::Pace;
use crate::regions;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{CompactionState, ServerPlace, TabletPlace};
use stele_types::{TableSchema, TabletId};
use stele_wire::messages::{CompactionStateKind, RegionLoad, RegionSpecifier, ServerLoad};
use stele_wire::region;

const MEGABYTE: u64 = 1 << 20;

/// Work of the load of a region: mostly the hash in its name.
const LOAD_UNITS: usize = 50;

/// Loads of regions by their server; `None` is this one.
pub(crate) type ByServer = BTreeMap<Option<ServerPlace>, Vec<RegionLoad>>;

/// The load of the regions of a table that are on this server.
pub(crate) async fn here(shared: &Shared, schema: &TableSchema) -> Outcome<Vec<RegionLoad>> {
    let mut by_server = ByServer::new();
    add_table(shared, schema, &mut by_server).await?;
    Ok(by_server.remove(&None).unwrap_or_default())
}

/// Adds the load of the regions of a table. Figures that are not known stay unset, which clients read as 0.
pub(crate) async fn add_table(shared: &Shared, schema: &TableSchema, by_server: &mut ByServer) -> Outcome<()> {
    let places = shared.service.places(&schema.name)?;
    let servers = places.into_iter().filter_map(|place| Some((place.id, place.server?)));
    let elsewhere: BTreeMap<TabletId, Arc<ServerPlace>> = servers.collect();
    let tablets = shared.service.tablets(&schema.name).await?;
    let compactions: BTreeMap<TabletId, CompactionState> =
        shared.admin.compactions(&schema.name).await?.into_iter().collect();
    let families = u32::try_from(schema.families.len()).unwrap_or(u32::MAX);
    let load = |tablet: stele_client::TabletInfo| {
        let state = compactions.get(&tablet.id).copied().unwrap_or_default();
        let place = TabletPlace::here(tablet.id, tablet.range);
        let storage = tablet.figures.and_then(|figures| figures.storage);
        let operations = tablet.figures.and_then(|figures| figures.operations);
        RegionLoad {
            region_specifier: RegionSpecifier::named(region::name(&regions::info(&schema.name, &place))),
            stores: Some(families),
            storefiles: storage.map(|storage| u32::try_from(storage.files).unwrap_or(u32::MAX)),
            // Tablets keep neither the size of their files before compression nor the time of a major compaction.
            store_uncompressed_size_mb: None,
            storefile_size_mb: storage.map(|storage| megabytes(storage.file_bytes)),
            mem_store_size_mb: storage.map(|storage| megabytes(storage.memtable_bytes)),
            read_requests_count: operations.map(|operations| operations.reads),
            write_requests_count: operations.map(|operations| operations.writes),
            complete_sequence_id: None,
            data_locality: Some(1.0),
            last_major_compaction_ts: None,
            compaction_state: Some(compaction_kind(state) as i32),
            region_size_mb: tablet.figures.map(|figures| megabytes(figures.bytes)),
        }
    };
    let mut pace = Pace::new(&shared.env);
    for tablet in tablets {
        pace.spend(LOAD_UNITS).await;
        let server = elsewhere.get(&tablet.id).map(|server| ServerPlace::clone(server));
        by_server.entry(server).or_default().push(load(tablet));
    }
    Ok(())
}

/// The load of another server with these regions. Their figures come from that server, but its own are not known here: they stay
/// unset, which clients read as 0.
pub(crate) fn of_other(shared: &Shared, region_loads: Vec<RegionLoad>) -> ServerLoad {
    ServerLoad {
        region_loads,
        report_end_time: Some(shared.wall_millis()),
        ..ServerLoad::default()
    }
}

/// The load of this server with these regions.
pub(crate) fn of_this(shared: &Shared, region_loads: Vec<RegionLoad>) -> ServerLoad {
    let consumers = [&shared.requests, &shared.responses];
    let used: usize = consumers.iter().map(|consumer| consumer.used()).sum();
    let limit: usize = consumers.iter().map(|consumer| consumer.limit()).sum();
    let (calls, rate) = shared.calls();
    ServerLoad {
        number_of_requests: Some(rate.per_second),
        total_number_of_requests: Some(calls),
        used_heap_mb: Some(megabytes(used as u64)),
        max_heap_mb: Some(megabytes(limit as u64)),
        region_loads,
        report_start_time: Some(rate.since_millis),
        report_end_time: Some(shared.wall_millis()),
        info_server_port: None,
    }
}

/// A state of compactions in messages.
pub(crate) fn compaction_kind(state: CompactionState) -> CompactionStateKind {
    match state {
        CompactionState::None => CompactionStateKind::None,
        CompactionState::Minor => CompactionStateKind::Minor,
        CompactionState::Major => CompactionStateKind::Major,
        CompactionState::MajorAndMinor => CompactionStateKind::MajorAndMinor,
    }
}

/// Whole megabytes, rounded up, so that a little does not look like nothing.
fn megabytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(MEGABYTE)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
