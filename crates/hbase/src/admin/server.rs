//! Calls about the server.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::{meta_table, names, region_loads, regions, registry};
use stele_types::ErrorKind;
use stele_wire::messages::{
    CacheEvictionStats, ClearRegionBlockCacheRequest, ClearRegionBlockCacheResponse, Empty, GetOnlineRegionResponse,
    GetRegionLoadRequest, GetRegionLoadResponse, GetServerInfoResponse, OneBool, ServerInfo, SetSwitchRequest,
};

/// Serves `GetRegionLoad`, of one table or of all.
pub(super) async fn region_load(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: GetRegionLoadRequest = call.message("GetRegionLoadRequest")?;
    let mut region_loads = Vec::new();
    match &request.table_name {
        Some(name) => {
            let name = names::from_message(name)?;
            match shared.service.schema(&name) {
                Ok(schema) => region_loads = region_loads::here(shared, &schema).await?,
                // No regions of such a table are here.
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::from(error)),
            }
        }
        None => {
            for schema in meta_table::all_tables(shared).await? {
                // A table that is dropped meanwhile has no regions.
                region_loads.extend(region_loads::here(shared, &schema).await.unwrap_or_default());
            }
        }
    }
    call.reply(&GetRegionLoadResponse { region_loads })
}

/// Serves `GetOnlineRegion`.
pub(super) async fn online_regions(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let mut region_info = vec![registry::meta_region()];
    for schema in meta_table::all_tables(shared).await? {
        if schema.enabled {
            let places = shared.service.places(&schema.name).unwrap_or_default();
            let here = places.iter().filter(|place| place.server.is_none());
            region_info.extend(here.map(|place| regions::info(&schema.name, place)));
        }
    }
    call.reply(&GetOnlineRegionResponse { region_info })
}

/// Serves `GetServerInfo`.
pub(super) fn info(shared: &Shared, call: &Call) -> Outcome<Reply> {
    call.reply(&GetServerInfoResponse {
        server_info: ServerInfo {
            server_name: shared.server_name(),
            webui_port: None,
        },
    })
}

/// Serves `RollWALWriter`. The log ends segments by itself and removes those that flushes made superfluous, so there is
/// nothing to do, and no region that must be flushed first.
pub(super) fn roll_log(call: &Call) -> Outcome<Reply> {
    call.reply(&Empty {})
}

/// Serves `ClearRegionBlockCache`. The cache is shared by all regions, and blocks leave it by age: none is evicted.
pub(super) fn clear_block_cache(call: &Call) -> Outcome<Reply> {
    let _: ClearRegionBlockCacheRequest = call.message("ClearRegionBlockCacheRequest")?;
    call.reply(&ClearRegionBlockCacheResponse {
        stats: CacheEvictionStats {
            evicted_blocks: Some(0),
            bytes_evicted: Some(0),
            max_cache_size: None,
        },
    })
}

/// Serves `CompactionSwitch`. Compactions are always on: without them the server would stop to take writes.
pub(super) fn compaction_switch(call: &Call) -> Outcome<Reply> {
    let request: SetSwitchRequest = call.message("CompactionSwitchRequest")?;
    if request.on {
        return call.reply(&OneBool { value: true });
    }
    Err(Failure::not_served("AdminService.CompactionSwitch(false)"))
}
