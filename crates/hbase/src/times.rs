//! Timestamps: HBase counts milliseconds, and a table counts in its own unit.
//!
//! A table that was made through HBase stores timestamps as they are: users store any number there. In a table of
//! another front end they are microseconds.

use crate::failure::{Failure, Outcome};
use stele_client::request::server_timestamp;
use stele_types::{TableSchema, TimeUnit, Timestamp};

/// Microseconds of a millisecond.
const MICROS: i64 = 1_000;

/// The server's time as a timestamp of the table.
pub(crate) fn now(schema: &TableSchema, wall_micros: i64) -> Timestamp {
    server_timestamp(schema.time_unit, schema.granularity, wall_micros)
}

/// The table's timestamp for one of a client.
pub(crate) fn stored(schema: &TableSchema, given: i64) -> Outcome<Timestamp> {
    let stored = match schema.time_unit {
        TimeUnit::Millis => Some(given),
        TimeUnit::Micros => given.checked_mul(MICROS),
    };
    stored.map(Timestamp).ok_or_else(|| {
        let message = format!("timestamp {given} is out of range: the table counts microseconds");
        Failure::do_not_retry(message)
    })
}

/// The same for a bound of a range: one that is out of range is the largest or smallest.
pub(crate) fn bound(schema: &TableSchema, given: i64) -> i64 {
    match schema.time_unit {
        TimeUnit::Millis => given,
        TimeUnit::Micros => given.saturating_mul(MICROS),
    }
}

/// The last stored timestamp that clients see as the same time as this one, which is the first.
pub(crate) fn last_shown_as(schema: &TableSchema, first: Timestamp) -> Timestamp {
    match schema.time_unit {
        // Cells are at whole milliseconds only.
        TimeUnit::Micros if schema.granularity % MICROS == 0 => first,
        TimeUnit::Micros => Timestamp(first.0.saturating_add(MICROS - 1)),
        TimeUnit::Millis => first,
    }
}

/// A client's form of a stored timestamp: of microseconds, whole milliseconds.
#[inline]
pub(crate) fn shown(unit: TimeUnit, stored: Timestamp) -> i64 {
    match unit {
        TimeUnit::Millis => stored.0,
        TimeUnit::Micros => stored.0.div_euclid(MICROS),
    }
}
