//! Entries with an idempotency token: a repeated one is applied once.
//!
//! The token matters to additions to aggregates. Without such a mutation an entry is written like any other: its repetition
//! leaves the row as it is. An entry with one is a row operation with a request token.

use super::mutate_rows::Target;
use crate::context::micros_of;
use crate::outcomes::Outcome;
use crate::pb::v2::Idempotency;
use crate::status::{invalid, status};
use futures::StreamExt as _;
use stele_client::{RowOperation, Step};
use stele_types::limits::{BIGTABLE_TOKEN_BYTES_MIN, TOKEN_BYTES_MAX};
use stele_types::{Mutation, RequestToken, RowMutation, ServerTime};
use tonic::Status;
use xxhash_rust::xxh3::xxh3_128;

/// Entries of a request that are applied at the same time: they share syncs of the log.
const CONCURRENT_MAX: usize = 64;

/// An entry that is applied once.
pub(super) struct Once {
    pub row: RowMutation,
    pub token: RequestToken,
    /// The time of this server in its mutations.
    pub server_time: Option<ServerTime>,
}

/// The token of an entry, if its repetition would count twice.
pub(super) fn token(row: &RowMutation, given: Option<Idempotency>) -> Result<Option<RequestToken>, Status> {
    let adds = |mutation: &Mutation| matches!(mutation, Mutation::Merge { .. });
    let Some(given) = given.filter(|_| row.mutations.iter().any(adds)) else {
        return Ok(None);
    };
    let bytes = given.token.len();
    if !(BIGTABLE_TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes) {
        return Err(invalid(format!(
            "An idempotency token has {bytes} bytes, it must have {BIGTABLE_TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}"
        )));
    }
    let start = given.start_time.as_ref().map_or(Some(0), micros_of);
    match start {
        Some(0) => Ok(Some(undated(&given.token))),
        Some(start_micros) if start_micros > 0 => Ok(Some(RequestToken::Dated {
            token: given.token,
            start_micros,
        })),
        _ => Err(invalid(
            "Idempotency : start_time must be unset, zero or a time after 1970",
        )),
    }
}

/// A token without the time of the first attempt. The client asks for a request that is never refused, as nonces are: a
/// repetition may count twice when the token has been forgotten. The two numbers of the nonce are a hash of the token.
fn undated(token: &[u8]) -> RequestToken {
    let hash = xxh3_128(token);
    RequestToken::Nonce {
        group: (hash >> 64) as u64,
        nonce: hash as u64,
    }
}

/// Applies entries; one result for each, in order.
pub(super) async fn apply(target: &Target, entries: Vec<Once>) -> Vec<Outcome> {
    let applied = entries.into_iter().map(|entry| apply_one(target, entry));
    futures::stream::iter(applied).buffered(CONCURRENT_MAX).collect().await
}

/// Applies an entry.
pub(super) async fn apply_one(target: &Target, entry: Once) -> Outcome {
    let now = entry.server_time.map(|time| time.at);
    let step = |mutation: Mutation| match now.is_some_and(|now| mutation.is_at(now)) {
        true => Step::MutateNow(mutation),
        false => Step::Mutate(mutation),
    };
    let operation = RowOperation {
        table: target.table.clone(),
        id: Some(target.id),
        row: entry.row.row,
        condition: None,
        steps: entry.row.mutations.into_iter().map(step).collect(),
        otherwise: Vec::new(),
        durability: None,
        token: Some(entry.token),
    };
    let outcome = target.service.row_operation(operation).await;
    outcome.map(|_| ()).map_err(status)
}
