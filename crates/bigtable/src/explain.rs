//! The handler of `stele.admin.v1.Reads`, a service that the Bigtable API does not have.
//!
//! ExplainRead makes a read as ReadRows does, tablet by tablet, and returns its work instead of its rows. The caller needs
//! the same rights. A batch is dropped before the next one is read, within one reservation of memory.
//!
//! A caller that does not see all columns learns the rows and cells that it gets, and the time. Files, blocks and bloom filters would
//! tell of the others: a filter that rules no file out says that there is such a row.

use crate::accounting::Call;
use crate::context::Context;
use crate::features::Client;
use crate::messages::decode;
use crate::pb::own as pb;
use crate::reads;
use crate::scope::Addressed;
use crate::size_estimate::SizeEstimate;
use crate::status::status;
use crate::wire::{FeatureFlags, ReadRowsRequest};
use std::sync::Arc;
use std::time::Duration;
use stele_access::Guard;
use stele_client::{ReadRows, TableService, TabletPlace};
use stele_env::work::{self, Work};
use stele_types::{RowRange, RowSet};
use tonic::Status;

/// Tablets of one call at most: the response has about two hundred bytes and two keys for each.
const TABLETS_MAX: usize = 256;

/// The rows and cells of a read.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rows: u64,
    cells: u64,
    passed: u64,
}

/// Serves an ExplainRead call.
pub(crate) async fn explain_read(
    context: &Context,
    call: &Call,
    request: pb::ExplainReadRequest,
) -> Result<pb::ExplainReadResponse, Status> {
    call.charge(SizeEstimate::of::<ReadRowsRequest>(&request.read)?.cost())?;
    let request: ReadRowsRequest = decode(request.read)?;
    let addressed = Addressed::parse(
        &request.table_name,
        &request.authorized_view_name,
        &request.materialized_view_name,
    )?;
    let scope = addressed.scope(context)?;
    let schema = Arc::clone(&scope.schema);
    let client = Client {
        features: FeatureFlags {
            reverse_scans: true,
            ..FeatureFlags::default()
        },
        whole_rows: false,
    };
    let (mut read, _) = reads::read(scope.table.name.clone(), &schema, request, client)?;
    scope.narrow(&mut read);
    let sees_less = |guard: &Arc<Guard>| !guard.reads_whole(&scope.table.name, &read.rows);
    let is_narrowed = scope.is_view() || context.guard.as_ref().is_some_and(sees_less);
    call.charge(read.filter.as_ref().map_or(0, |filter| filter.automata_bytes()))?;
    read.id = Some(schema.id);
    let mut places = scope.service.places(&read.table).map_err(status)?;
    if read.reversed {
        places.reverse();
    }
    let rows = std::mem::replace(&mut read.rows, RowSet::new(Vec::new()));
    let mut response = pb::ExplainReadResponse::default();
    for mut place in places {
        let of_tablet = rows.intersect(&place.range);
        if of_tablet.is_empty() {
            continue;
        }
        if scope.is_view() {
            // The bounds of a tablet are rows, perhaps of others.
            place.range = span(&of_tablet);
        }
        if response.tablets.len() >= TABLETS_MAX {
            response.incomplete = true;
            break;
        }
        let part = ReadRows {
            rows: of_tablet,
            ..read.clone()
        };
        let began = context.env.now();
        let (seen, mut work) = work::counted(read_all((context, &*scope.service), part)).await;
        let mut seen = seen?;
        if is_narrowed {
            (seen.cells, work) = (seen.passed, Work::default());
        }
        let took = context.env.now().saturating_sub(began);
        response.tablets.push(tablet_work(place, took, seen, &work));
        if read.rows_limit > 0 {
            read.rows_limit = read.rows_limit.saturating_sub(seen.rows);
            if read.rows_limit == 0 {
                break;
            }
        }
    }
    let keys = |tablet: &pb::TabletWork| size_of::<pb::TabletWork>() + tablet.start.len() + tablet.end.len();
    call.charge(response.tablets.iter().map(keys).sum())?;
    Ok(response)
}

/// From the first row of a set to its last.
fn span(rows: &RowSet) -> RowRange {
    let ranges = rows.ranges();
    RowRange {
        start: ranges.first().map(|range| range.start.clone()).unwrap_or_default(),
        end: ranges.last().and_then(|range| range.end.clone()),
    }
}

/// Reads to the end and drops everything.
async fn read_all((context, service): (&Context, &dyn TableService), read: ReadRows) -> Result<Seen, Status> {
    let mut reservation = context.response_memory.for_batch().await?;
    reservation.partial_rows = true;
    let mut rows = service.read_rows(read).await.map_err(status)?;
    let mut seen = Seen::default();
    while let Some(batch) = rows.next_within(&mut reservation).await.map_err(status)? {
        seen.rows += batch.complete_rows() as u64;
        seen.cells += batch.seen.cells;
        seen.passed += batch.cell_count() as u64;
        drop(batch);
        // Nothing else suspends a read of rows in memory.
        context.env.yield_now().await;
    }
    Ok(seen)
}

fn tablet_work(place: TabletPlace, took: Duration, seen: Seen, work: &Work) -> pb::TabletWork {
    pb::TabletWork {
        tablet: place.id.0,
        server: place
            .server
            .map_or_else(String::new, |at| format!("{}:{}", at.host, at.port)),
        start: place.range.start,
        end: place.range.end.unwrap_or_default(),
        micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        rows: seen.rows,
        cells_seen: seen.cells,
        cells_passed: seen.passed,
        row_cache_hits: work.row_cache_hits,
        memtables: work.memtables,
        runs: work.runs,
        files: work.files,
        files_used: work.files_used(),
        filters_asked: work.filters_asked,
        filters_excluded: work.filters_excluded,
        blocks_cached: work.blocks_cached,
        blocks_read: work.blocks_read,
        block_bytes_read: work.block_bytes_read,
        values_read: work.values_read,
        value_bytes_read: work.value_bytes_read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_of_a_view_are_shown_within_it() {
        let view = RowSet::new(vec![RowRange::prefix(&"eu-".into()), RowRange::prefix(&"fr-".into())]);
        let tablet = RowRange {
            start: "eu-50".into(),
            end: Some("us-secret".into()),
        };
        let shown = span(&view.intersect(&tablet));
        assert_eq!(
            (&shown.start[..], shown.end.as_deref()),
            (&b"eu-50"[..], Some(&b"fr."[..]))
        );
    }
}
