//! `MultiRowMutationService`: puts and deletes of several rows of one region, all or none.
//!
//! The rows are one batch of the tablet: one record of its log, which becomes visible as a whole. So nothing is read meanwhile, and calls
//! that would have to read are refused: conditions, increments, appends, and deletes of the newest version.

use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::mutate::{converter, is_plain, plain};
use crate::regions::{self, Region};
use bytes::Bytes;
use stele_client::MutateRows;
use stele_types::{Durability, ErrorKind, RowMutation, TableSchema};
use stele_wire::cell::CellReader;
use stele_wire::messages::{self, MutateRowsRequest, MutateRowsResponse};

/// Rows of a call at most. A call is one record of the log, and is not cut.
const ROWS_MAX: usize = 100_000;

/// Serves `MutateRows`.
pub(super) async fn serve(
    shared: &Shared,
    region: &Region,
    schema: &TableSchema,
    argument: Bytes,
) -> Outcome<MutateRowsResponse> {
    let request: MutateRowsRequest = messages::decode("MutateRowsRequest", argument)?;
    if !request.condition.is_empty() {
        return Err(Failure::not_served("a condition of mutations of several rows"));
    }
    if request.mutation_request.len() > ROWS_MAX {
        let message = format!(
            "{} mutations in one call; at most {ROWS_MAX} are served",
            request.mutation_request.len()
        );
        return Err(Failure::do_not_retry(message));
    }
    let converter = converter(shared, schema, None);
    let mut cells = CellReader::new(Bytes::new());
    let mut rows: Vec<RowMutation> = Vec::with_capacity(request.mutation_request.len());
    let mut durability: Option<Durability> = None;
    for mutation in request.mutation_request {
        let change = converter.convert(mutation, &mut cells)?;
        region.check_row(&change.row, "mutation of several rows")?;
        if !is_plain(&change) {
            let what = "an increment, an append or a delete of the newest version among mutations of several rows";
            return Err(Failure::not_served(what));
        }
        // The most durable of those that are asked for: it is one record.
        durability = durability.max(change.durability);
        rows.push(plain(change));
    }
    if !rows.is_empty() {
        let request = MutateRows {
            table: schema.name.clone(),
            id: Some(schema.id),
            rows: rows.into(),
            durability,
        };
        let written = shared.service.mutate_rows_together(request).await;
        written.map_err(|error| match error.kind {
            ErrorKind::FailedPrecondition if !is_there(shared, region) => regions::not_serving(&region.name()),
            _ => Failure::from(error),
        })?;
    }
    Ok(MutateRowsResponse { processed: Some(true) })
}

/// Whether the region still is a tablet.
fn is_there(shared: &Shared, region: &Region) -> bool {
    let place = shared.service.place_of(&region.table, &region.range.start);
    place.is_ok_and(|place| place.id == region.tablet)
}
