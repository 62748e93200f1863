//! Calls about regions: splits, merges, truncations.

use super::changes::{change, existing, failure};
use super::moves;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::regions::Region;
use crate::{descriptors, region_search};
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_types::{ErrorKind, TabletId};
use stele_wire::messages::{
    MajorCompactionTimestampResponse, MergeTableRegionsRequest, OneRegion, OneTable, RegionSpecifier,
    SplitRegionRequest, TruncateRegionRequest,
};
use stele_wire::{exception, region};

/// Regions of one merge: the service takes no more.
const REGIONS_MAX: usize = 16;

/// Serves `SplitRegion`.
pub(super) async fn split(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: SplitRegionRequest = call.message("SplitTableRegionRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move { split_region(&shared, request).await };
    change(shared, call, nonce, work).await
}

async fn split_region(shared: &Shared, request: SplitRegionRequest) -> Outcome<()> {
    let name = region::name(&request.region_info);
    let show = || String::from_utf8_lossy(&name).into_owned();
    if !shared.admin.switches().await?.split {
        let message = format!("Split region {} failed due to split switch off", show());
        return Err(Failure::do_not_retry(message));
    }
    let region = region_search::find_known(shared, &RegionSpecifier::named(name.clone())).await?;
    let schema = shared.schema(&region.table)?;
    if descriptors::is_never_split(&descriptors::shown(&schema).attributes) {
        let message = format!(
            "Split region {} failed as region split is disabled for the table",
            show()
        );
        return Err(Failure::do_not_retry(message));
    }
    let row = request.split_row.filter(|row| !row.is_empty());
    if let Some(row) = &row {
        check_split_row(&region, row)?;
    }
    let split = shared.admin.split(&region.table, region.tablet, row).await;
    split.map_err(|error| match error.kind {
        ErrorKind::NotFound => region_search::unknown(&name),
        _ => Failure::from(error),
    })?;
    Ok(())
}

fn check_split_row(region: &Region, row: &[u8]) -> Outcome<()> {
    let row_text = row.escape_ascii();
    if row == region.range.start {
        let message = format!("Split row is equal to startkey: {row_text}");
        return Err(Failure::do_not_retry(message));
    }
    if !region.range.contains(row) {
        let name = region.name();
        let message = format!(
            "Split row is not inside region key range splitKey:{row_text} region: {}",
            String::from_utf8_lossy(&name)
        );
        return Err(Failure::do_not_retry(message));
    }
    Ok(())
}

/// Serves `TruncateRegion`: the rows of one region are deleted, and the region stays.
pub(super) async fn truncate(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: TruncateRegionRequest = call.message("TruncateRegionRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move { truncate_region(&shared, request).await };
    change(shared, call, nonce, work).await
}

async fn truncate_region(shared: &Shared, request: TruncateRegionRequest) -> Outcome<()> {
    let specifier = RegionSpecifier::named(region::name(&request.region_info));
    if crate::regions::is_meta(&specifier) {
        return Err(Failure::do_not_retry("Can't truncate region in catalog tables"));
    }
    let region = region_search::find_known(shared, &specifier).await?;
    let schema = shared.schema(&region.table)?;
    let dropped = shared.admin.drop_row_range(&schema.name, region.range).await;
    dropped.map_err(|error| failure(&schema.name, error))
}

/// Serves `MergeTableRegions`. Only neighbours are merged, also when the client would have others too.
pub(super) async fn merge(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: MergeTableRegionsRequest = call.message("MergeTableRegionsRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move { merge_regions(&shared, request).await };
    change(shared, call, nonce, work).await
}

async fn merge_regions(shared: &Shared, request: MergeTableRegionsRequest) -> Outcome<()> {
    let refused = |message: &str| Err(Failure::new(exception::MERGE_REGION, message.to_owned()));
    if request.region.len() > REGIONS_MAX {
        return refused("Too many regions to merge at once");
    }
    let mut regions: Vec<Region> = Vec::with_capacity(request.region.len());
    for specifier in &request.region {
        regions.push(region_search::find_known(shared, specifier).await?);
    }
    if !shared.admin.switches().await?.merge {
        return Err(Failure::do_not_retry(
            "Merge of regions failed because merge switch is off",
        ));
    }
    let tablets: BTreeSet<TabletId> = regions.iter().map(|region| region.tablet).collect();
    let Some(first) = regions.first().filter(|_| tablets.len() > 1) else {
        return refused("Need two Regions at least to run a Merge");
    };
    if tablets.len() < regions.len() {
        return refused("Duplicate regions specified; cannot merge a region to itself");
    }
    if regions.iter().any(|region| region.table != first.table) {
        return refused("Can't merge regions from two different tables");
    }
    let schema = shared.schema(&first.table)?;
    if descriptors::is_false(&descriptors::shown(&schema).attributes, "MERGE_ENABLED") {
        let message = "Merge of regions failed as region merge is disabled for the table";
        return Err(Failure::do_not_retry(message));
    }
    let merged = shared.admin.merge(&first.table, tablets.into_iter().collect()).await;
    merged.map_err(|error| match error.kind {
        ErrorKind::InvalidArgument => Failure::new(exception::MERGE_REGION, error.message),
        ErrorKind::NotFound => Failure::new(exception::UNKNOWN_REGION, error.message),
        _ => Failure::from(error),
    })?;
    Ok(())
}

/// Serves the calls for the time of the last major compaction. It is not recorded, and unknown is 0.
pub(super) async fn last_major_compaction(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    if method == b"getLastMajorCompactionTimestamp" {
        let request: OneTable = call.message("MajorCompactionTimestampRequest")?;
        existing(shared, &request.table_name)?;
    } else {
        let request: OneRegion = call.message("MajorCompactionTimestampForRegionRequest")?;
        moves::known(shared, &request.region).await?;
    }
    call.reply(&MajorCompactionTimestampResponse {
        compaction_timestamp: 0,
    })
}
