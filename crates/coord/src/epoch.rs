//! Epochs are numbers from durable counters.

use crate::coord::Coord;
use crate::error::{CoordError, Result};
use crate::txn::{Condition, Txn, TxnOutcome, Write};
use bytes::Bytes;

/// The prefix of the counters' keys.
pub const EPOCH_PREFIX: &str = "epoch/";

/// Attempts before giving up. Even if every node of a large cluster asks concurrently, one succeeds in each round.
const ATTEMPTS_MAX: u32 = 100;

/// The next number of a counter: 1 the first time, larger each time, never the same twice, also after crashes.
/// (After an ambiguous error a number may be left out.)
pub async fn next_epoch(coord: &dyn Coord, name: &str) -> Result<u64> {
    next_epoch_above(coord, name, 0).await
}

/// The next number of a counter, above `floor`: a number that is known from elsewhere to have been given.
pub async fn next_epoch_above(coord: &dyn Coord, name: &str, floor: u64) -> Result<u64> {
    next_epoch_with(coord, name, floor, |_, _| std::future::ready(Ok(Txn::default()))).await
}

/// The same in one transaction with others: `with` gets the last number and the next one, and gives the conditions and writes that join
/// those of the counter. It is asked again in each attempt, and its error ends the call.
pub async fn next_epoch_with<E: From<CoordError>, F: Future<Output = std::result::Result<Txn, E>>>(
    coord: &dyn Coord,
    name: &str,
    floor: u64,
    with: impl Fn(u64, u64) -> F,
) -> std::result::Result<u64, E> {
    let key = key(name);
    for _ in 0..ATTEMPTS_MAX {
        let read = coord.get(&key).await?;
        let last = match &read {
            None => 0,
            Some(current) => parse(&key, &current.value)?,
        };
        let next = last.max(floor).checked_add(1);
        let next = next.ok_or_else(|| bad_value(&key, last.to_string()))?;
        assert!(next > last && next > floor, "a counter only grows");
        let put = Write::Put {
            key: key.clone(),
            value: Bytes::from(next.to_string()),
        };
        let mut txn = with(last, next).await?;
        txn.conditions.push(Condition::unchanged(&key, read.as_ref()));
        txn.writes.push(put);
        if let TxnOutcome::Committed { .. } = coord.txn(txn).await? {
            return Ok(next);
        }
    }
    let attempts = ATTEMPTS_MAX;
    Err(CoordError::Contended { key, attempts }.into())
}

/// The key of a counter.
pub fn key(name: &str) -> String {
    format!("{EPOCH_PREFIX}{name}")
}

/// The last number of a counter, from the value of its record: the decimal number, so that any tool can show it.
pub fn parse(key: &str, value: &[u8]) -> Result<u64> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| bad_value(key, value.escape_ascii().to_string()))
}

fn bad_value(key: &str, found: String) -> CoordError {
    CoordError::BadValue {
        key: key.to_owned(),
        expected: "a decimal number below 2^64 - 1",
        found,
    }
}
