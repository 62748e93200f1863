//! Calls about one region.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::regions::{self, Region};
use crate::{names, region_loads, region_search, registry};
use bytes::Bytes;
use stele_client::TabletPlace;
use stele_wire::exception;
use stele_wire::messages::{
    CompactRegionRequest, CompactionStateKind, Empty, FlushRegionRequest, FlushRegionResponse, GetRegionInfoRequest,
    GetRegionInfoResponse,
};

/// Serves `FlushRegion`. All families are flushed when one is to be: they share a memtable.
pub(super) async fn flush(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: FlushRegionRequest = call.message("FlushRegionRequest")?;
    if !regions::is_meta(&request.region) {
        let region = region_search::find(shared, &request.region).await?;
        check_family(shared, &region, request.family.as_ref())?;
        shared.admin.flush(&region.table, Some(region.tablet)).await?;
    }
    call.reply(&FlushRegionResponse {
        last_flush_time: shared.wall_millis(),
        flushed: Some(true),
        wrote_flush_wal_marker: Some(false),
    })
}

/// Serves `CompactRegion`. All families are compacted when one is to be.
pub(super) async fn compact(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: CompactRegionRequest = call.message("CompactRegionRequest")?;
    if !regions::is_meta(&request.region) {
        let region = region_search::find(shared, &request.region).await?;
        check_family(shared, &region, request.family.as_ref())?;
        let is_major = request.major.unwrap_or(false);
        shared
            .admin
            .compact(&region.table, Some(region.tablet), is_major)
            .await?;
    }
    call.reply(&Empty {})
}

fn check_family(shared: &Shared, region: &Region, family: Option<&Bytes>) -> Outcome<()> {
    let Some(family) = family else {
        return Ok(());
    };
    let schema = shared.schema(&region.table)?;
    if schema
        .families
        .values()
        .any(|known| known.name.as_bytes() == &family[..])
    {
        return Ok(());
    }
    let table = names::to_text(&region.table);
    let message = format!(
        "column family {} does not exist in table {table}",
        family.escape_ascii()
    );
    Err(Failure::new(exception::NO_SUCH_FAMILY, message))
}

/// Serves `GetRegionInfo`.
pub(super) async fn info(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: GetRegionInfoRequest = call.message("GetRegionInfoRequest")?;
    if regions::is_meta(&request.region) {
        return call.reply(&GetRegionInfoResponse {
            region_info: registry::meta_region(),
            compaction_state: request.compaction_state.map(|_| CompactionStateKind::None as i32),
            splittable: Some(false),
            mergeable: Some(false),
            best_split_row: None,
        });
    }
    let region = region_search::find(shared, &request.region).await?;
    let mut compaction_state = None;
    if request.compaction_state.unwrap_or(false) {
        let states = shared.admin.compactions(&region.table).await?;
        let state = states.into_iter().find(|(tablet, _)| *tablet == region.tablet);
        let state = state.map(|(_, state)| state).unwrap_or_default();
        compaction_state = Some(region_loads::compaction_kind(state) as i32);
    }
    let place = TabletPlace::here(region.tablet, region.range);
    call.reply(&GetRegionInfoResponse {
        region_info: regions::info(&region.table, &place),
        compaction_state,
        splittable: Some(true),
        mergeable: Some(true),
        best_split_row: None,
    })
}
