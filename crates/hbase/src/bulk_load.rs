//! Bulk loads: `PrepareBulkLoad`, `BulkLoadHFile` and `CleanupBulkLoad`.
//!
//! A client has written files of cells (HFiles), and tells each region which of them are its own. The files are below a
//! folder that the server's settings name ([`stele_storage::foreign`]). Their cells become files of the tablet, all files of a
//! call together ([`stele_client::BulkLoad`]). The client's files stay as they are.
//!
//! As in HBase:
//! * A file with a row of another region is no error: the answer is "not loaded". The client then locates the regions again,
//!   and divides the file.
//! * Cells keep their timestamps, and are newer than others of the same time that were there. `assign_seq_num` is not needed for
//!   that: tablets number all loads.
//! * A call is one step for all families of its region, and calls for several regions are independent.
//!
//! A call may wait long for its turn at the tablet. Before that, its files are opened, checked and closed, one after another.
//! They are opened again when their cells are wanted, so a call that waits has no memory but that of its request. If a file is
//! another one by then, the tablet refuses rows that are not its own.
//!
//! A client that has not got an answer repeats its call. Each file has a token, of the load's name and its URL, with which the
//! tablet recognizes it ([`LoadSource::token`]).

mod source;

use crate::call::{Call, Reply};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::get::region_and_schema;
use crate::regions::{self, Region};
use crate::selection::{FamilySearch, family};
use source::{HFileCells, Later};
use std::sync::Arc;
use stele_client::{BulkLoad, LoadSource, LoadTarget, Loaded, ServiceError};
use stele_hfile::{BlockMemory, HFile};
use stele_storage::foreign::ForeignError;
use stele_types::{FamilyId, RequestToken, TableSchema, ValueType};
use stele_wire::messages::{
    BulkLoadHFileRequest, BulkLoadHFileResponse, CleanupBulkLoadRequest, Empty, FamilyPath, PrepareBulkLoadRequest,
    PrepareBulkLoadResponse, RegionSpecifier,
};
use xxhash_rust::xxh3::xxh3_64;

/// Files of a call at most. HBase's client sends 32 for each family unless told otherwise.
const FILES_MAX: usize = 1_000;

/// Bytes that the files of a call are read ahead together, as far as pieces of a useful size allow.
const AHEAD_BYTES: usize = 8 << 20;

/// Memory of one file that is read, about: its index, a block, and the least piece that is read ahead.
const FILE_BYTES: usize = 256 << 10;

/// Serves `PrepareBulkLoad`.
pub(crate) fn prepare(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: PrepareBulkLoadRequest = call.message("PrepareBulkLoadRequest")?;
    if let Some(region) = &request.region {
        opened(shared, call, region)?;
    }
    if shared.files.is_off() {
        let url = "bulk load".to_owned();
        return Err(Failure::do_not_retry(ForeignError::Off { url }.to_string()));
    }
    let (high, low) = (shared.env.random_u64(), shared.env.random_u64());
    call.reply(&PrepareBulkLoadResponse {
        bulk_token: format!("{high:016x}{low:016x}"),
    })
}

/// Serves `CleanupBulkLoad`: nothing was staged.
pub(crate) fn clean_up(call: &Call) -> Outcome<Reply> {
    let _: CleanupBulkLoadRequest = call.message("CleanupBulkLoadRequest")?;
    call.reply(&Empty {})
}

/// Serves `BulkLoadHFile`.
pub(crate) async fn load(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: BulkLoadHFileRequest = call.message("BulkLoadHFileRequest")?;
    let (region, schema) = opened(shared, call, &request.region)?;
    let loaded = match request.cluster_ids.contains(&shared.identity.cluster_id) {
        // It has come from here.
        true => true,
        false => load_files(shared, &region, &schema, &request).await?,
    };
    call.reply(&BulkLoadHFileResponse { loaded })
}

fn opened(shared: &Context, call: &Call, region: &RegionSpecifier) -> Outcome<(Arc<Region>, Arc<TableSchema>)> {
    match regions::is_meta(region) {
        true => Err(Failure::not_served("a bulk load into hbase:meta")),
        false => region_and_schema(shared, call, region),
    }
}

/// Loads the files of a call; false if one does not fit into the region.
async fn load_files(
    shared: &Arc<Shared>,
    region: &Region,
    schema: &Arc<TableSchema>,
    request: &BulkLoadHFileRequest,
) -> Outcome<bool> {
    let files = &request.family_path;
    if files.len() > FILES_MAX {
        let message = format!(
            "{} files in one bulk load; at most {FILES_MAX} are accepted",
            files.len()
        );
        return Err(Failure::do_not_retry(message));
    }
    // Before anything is read, which tells a caller without rights whether a file is there.
    let mut search = FamilySearch::default();
    let of_file = |file: &FamilyPath| search.find(schema, &file.family, None);
    let families: Outcome<Vec<FamilyId>> = files.iter().map(of_file).collect();
    shared.service.check_load(&LoadTarget {
        table: schema.name.clone(),
        range: region.range.clone(),
        families: families?,
    })?;
    let memory = memory(shared, files.len());
    let mut sources = Vec::with_capacity(files.len());
    for file in files {
        if !fits(shared, region, (schema, &memory), file).await? {
            return Ok(false);
        }
        let later = Later {
            files: shared.files.clone(),
            memory: memory.clone(),
            url: file.path.clone(),
            piece_bytes: AHEAD_BYTES / files.len(),
            schema: schema.clone(),
            opened: None,
        };
        sources.push(LoadSource {
            family: family(schema, &file.family)?,
            token: request.bulk_token.as_ref().map(|load| token(load, file)),
            cells: Box::new(later),
        });
    }
    let load = BulkLoad {
        table: schema.name.clone(),
        id: Some(schema.id),
        tablet: (region.tablet, region.range.clone()),
        sources,
    };
    Ok(shared.service.bulk_load(load).await? == Loaded::All)
}

/// Memory of the blocks of the files of a call. The blocks of very many files would wait for each other.
fn memory(shared: &Context, files: usize) -> BlockMemory {
    match files.saturating_mul(FILE_BYTES).saturating_add(AHEAD_BYTES) <= shared.requests.limit() / 8 {
        true => BlockMemory::waiting(&shared.requests, &shared.env),
        false => BlockMemory::now(&shared.requests),
    }
}

/// Checks a file; false if it has rows of other regions.
async fn fits(
    shared: &Arc<Shared>,
    region: &Region,
    (schema, memory): (&Arc<TableSchema>, &BlockMemory),
    FamilyPath { family: name, path }: &FamilyPath,
) -> Outcome<bool> {
    let id = family(schema, name)?;
    let is_plain = |family: &stele_types::Family| family.value_type == ValueType::Bytes;
    if !schema.families.get(&id).is_some_and(is_plain) {
        let name = name.escape_ascii();
        return Err(Failure::do_not_retry(format!(
            "column family {name} has aggregates, which are not loaded"
        )));
    }
    let file = shared.files.open(path).await.map_err(|error| match &error {
        ForeignError::Storage(_) => Failure::from(ServiceError::new(error.kind(), error.to_string())),
        _ => Failure::do_not_retry(error.to_string()),
    })?;
    let file = HFile::open(file, memory).await.map_err(source::failed)?;
    let last = file.last_row().map_err(source::failed)?;
    if last.is_some_and(|row| !region.range.contains(row)) {
        return Ok(false);
    }
    let first = HFileCells::new(&file, 0, schema.clone()).first_row().await?;
    Ok(first.is_none_or(|row| region.range.contains(&row)))
}

/// The token of a file of a load.
fn token(load: &str, file: &FamilyPath) -> RequestToken {
    let named = [&file.family[..], b"\0", file.path.as_bytes()].concat();
    RequestToken::Nonce {
        group: xxh3_64(load.as_bytes()),
        nonce: xxh3_64(&named),
    }
}

#[cfg(test)]
mod tests;
