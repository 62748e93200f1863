//! `MultiRowMutationService`: mutations of several rows of one region, all or none.
//!
//! The rows are one batch of the tablet: one record of its log, which becomes visible as a whole. Plain puts and deletes read nothing.
//! With a condition, an increment, an append or a delete of a newest version, the call is an operation on the rows, which latches and
//! reads them.

use crate::call::Call;
use crate::condition::condition;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::mutate::{PlainRows, converter, is_plain};
use crate::mutations::{self, RowChange};
use crate::pace::Pace;
use crate::regions::{self, Region};
use crate::selection::FamilySearch;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{Condition, MutateRows, RowsOperation, ServiceError, Step};
use stele_types::{Durability, ErrorKind, TableSchema};
use stele_wire::cell::CellReader;
use stele_wire::messages::{MutateRowsRequest, MutateRowsResponse};

/// Rows of a call at most. A call is one record of the log, and is not cut.
const ROWS_MAX: usize = 100_000;

/// Mutations and conditions at most of a call that reads: other writers of its rows wait until it has read them all.
const READS_MAX: usize = 1_000;

/// Serves `MutateRows`.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    call: &Call,
    (region, schema): (&Region, &Arc<TableSchema>),
    argument: Bytes,
) -> Outcome<MutateRowsResponse> {
    let request: MutateRowsRequest = call.decode("MutateRowsRequest", argument)?;
    check_count("mutations", request.mutation_request.len(), ROWS_MAX)?;
    let converter = converter(shared, call, schema, None);
    let (mut cells, mut search) = (CellReader::new(Bytes::new()), FamilySearch::default());
    let mut pace = Pace::new(&shared.env);
    let mut changes = Vec::with_capacity(request.mutation_request.len());
    for mutation in request.mutation_request {
        let change = converter.convert(mutation, &mut cells, &mut search, &mut pace).await?;
        region.check_row(&change.row, "mutation of several rows")?;
        region.check_cells(schema, &change)?;
        changes.push(change);
    }
    // The most durable of those that are asked for: it is one record.
    let durability = changes.iter().filter_map(|change| change.durability).max();
    let processed = if request.condition.is_empty() && changes.iter().all(is_plain) {
        write(shared, schema, changes, durability).await.map(|()| true)
    } else {
        check_count(
            "mutations and conditions",
            changes.len() + request.condition.len(),
            READS_MAX,
        )?;
        if request.nonce.is_some_and(|nonce| nonce != 0) {
            return Err(Failure::not_served("a nonce of mutations of several rows that read"));
        }
        let mut conditions = Vec::with_capacity(request.condition.len());
        for given in &request.condition {
            region.check_row(&given.row, "condition on several rows")?;
            conditions.push((given.row.clone(), condition(shared, schema, given)?));
        }
        operate(shared, schema, conditions, changes, durability).await
    };
    let processed = processed.map_err(|error| match error.kind {
        ErrorKind::FailedPrecondition if !is_there(shared, region) => regions::not_serving(&region.name()),
        _ => Failure::from(error),
    })?;
    Ok(MutateRowsResponse {
        processed: Some(processed),
    })
}

fn check_count(what: &str, count: usize, most: usize) -> Outcome<()> {
    match count <= most {
        true => Ok(()),
        false => Err(Failure::do_not_retry(format!(
            "{count} {what} in one call; at most {most} are served"
        ))),
    }
}

/// Writes rows that nothing has to be read for.
async fn write(
    shared: &Shared,
    schema: &TableSchema,
    changes: Vec<RowChange>,
    durability: Option<Durability>,
) -> Result<(), ServiceError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut rows = PlainRows::default();
    changes.into_iter().for_each(|change| rows.add(change));
    let request = MutateRows {
        table: schema.name.clone(),
        id: Some(schema.id),
        rows: rows.into(),
        durability,
    };
    shared.service.mutate_rows_together(request).await
}

/// Reads and writes rows; whether the conditions held.
async fn operate(
    shared: &Shared,
    schema: &TableSchema,
    conditions: Vec<(Bytes, Condition)>,
    changes: Vec<RowChange>,
    durability: Option<Durability>,
) -> Result<bool, ServiceError> {
    let mut rows: BTreeMap<Bytes, Vec<Vec<Step>>> = BTreeMap::new();
    for change in changes {
        rows.entry(change.row).or_default().push(change.steps);
    }
    let request = RowsOperation {
        table: schema.name.clone(),
        id: Some(schema.id),
        conditions,
        rows: rows
            .into_iter()
            .map(|(row, changes)| (row, mutations::atomic(schema, changes)))
            .collect(),
        durability,
    };
    shared.service.rows_operation(request).await
}

/// Whether the region still is a tablet.
fn is_there(shared: &Shared, region: &Region) -> bool {
    let place = shared.service.place_of(&region.table, &region.range.start);
    place.is_ok_and(|place| place.id == region.tablet)
}
