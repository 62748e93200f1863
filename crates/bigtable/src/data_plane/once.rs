//! Entries with an idempotency token: a repeated one is applied once.
//!
//! The token matters to additions to aggregates. Without such a mutation an entry is written like any other: its repetition
//! leaves the row as it is. An entry with one is a row operation with a request token.

use super::mutate_rows::Target;
use crate::outcomes::Outcome;
use crate::pb::v2::Idempotency;
use crate::status::{invalid, status};
use futures::StreamExt as _;
use stele_client::{RowOperation, Step};
use stele_types::limits::{BIGTABLE_TOKEN_BYTES_MIN, TOKEN_BYTES_MAX};
use stele_types::{Mutation, RequestToken, RowMutation};
use tonic::Status;

/// Entries of a request that are applied at the same time: they share syncs of the log.
const CONCURRENT_MAX: usize = 64;

/// An entry that is applied once.
pub(super) struct Once {
    pub row: RowMutation,
    pub token: RequestToken,
}

/// The token of an entry, if its repetition would count twice.
pub(super) fn token(row: &RowMutation, given: Option<Idempotency>) -> Result<Option<RequestToken>, Status> {
    let Some(given) = given else {
        return Ok(None);
    };
    let bytes = given.token.len();
    if !(BIGTABLE_TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes) {
        return Err(invalid(format!(
            "An idempotency token has {bytes} bytes, it must have {BIGTABLE_TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}"
        )));
    }
    let start = given.start_time.and_then(|start| {
        let seconds = start.seconds.checked_mul(1_000_000)?;
        let micros = (0..1_000_000_000)
            .contains(&start.nanos)
            .then_some(start.nanos / 1_000)?;
        seconds.checked_add(i64::from(micros)).filter(|micros| *micros > 0)
    });
    let start_micros = start.ok_or_else(|| invalid("Idempotency : start_time must be a time after 1970"))?;
    let adds = row
        .mutations
        .iter()
        .any(|mutation| matches!(mutation, Mutation::Merge { .. }));
    Ok(adds.then_some(RequestToken::Dated {
        token: given.token,
        start_micros,
    }))
}

/// Applies entries; one result for each, in order.
pub(super) async fn apply(target: &Target, entries: Vec<Once>) -> Vec<Outcome> {
    let applied = entries.into_iter().map(|entry| apply_one(target, entry));
    futures::stream::iter(applied).buffered(CONCURRENT_MAX).collect().await
}

/// Applies an entry.
pub(super) async fn apply_one(target: &Target, entry: Once) -> Outcome {
    let operation = RowOperation {
        table: target.table.clone(),
        id: Some(target.id),
        row: entry.row.row,
        condition: None,
        steps: entry.row.mutations.into_iter().map(Step::Mutate).collect(),
        otherwise: Vec::new(),
        durability: None,
        token: Some(entry.token),
    };
    let outcome = target.service.row_operation(operation).await;
    outcome.map(|_| ()).map_err(status)
}
