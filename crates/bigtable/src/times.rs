//! Converts timestamps between the API and a table. The API counts microseconds, and a table counts in its own unit.
//!
//! A table created through another front end may count milliseconds. Then every timestamp in a request must be a whole
//! number of them. Nothing is rounded silently except where the API says so, and nothing wraps.

use crate::status::invalid;
use stele_client::request::server_timestamp;
use stele_types::{TableSchema, TimeUnit, Timestamp};
use tonic::Status;

/// The value of `SetCell.timestamp_micros` that means the server's time.
pub(crate) const SERVER_TIME: i64 = -1;

/// The unit and granularity of one table's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableTime {
    unit: TimeUnit,
    /// In units.
    granularity: i64,
}

impl TableTime {
    pub fn of(schema: &TableSchema) -> Self {
        TableTime {
            unit: schema.time_unit,
            granularity: schema.granularity.max(1),
        }
    }

    /// Microseconds between neighbouring timestamps.
    pub fn granularity_micros(self) -> i64 {
        self.micros_per_unit().saturating_mul(self.granularity)
    }

    /// The clock, truncated to the granularity.
    pub fn now(self, wall_micros: i64) -> Timestamp {
        server_timestamp(self.unit, self.granularity, wall_micros)
    }

    /// The table's timestamp for one that a client chose.
    pub fn stored(self, micros: i64) -> Result<Timestamp, Status> {
        if micros < 0 {
            return Err(invalid(format!("invalid timestamp {micros}")));
        }
        let step = self.granularity_micros();
        if micros % step != 0 {
            return Err(invalid(format!(
                "Timestamp granularity mismatch: timestamp {micros} is not a multiple of {step} microseconds, as \
                 required by the table"
            )));
        }
        Ok(Timestamp(micros / self.micros_per_unit()))
    }

    /// The table's timestamp for one that a client's library took from its clock: truncated rather than refused.
    pub fn stored_truncated(self, micros: i64) -> Result<Timestamp, Status> {
        if micros < 0 {
            return Err(invalid(format!("invalid timestamp {micros}")));
        }
        self.stored(micros - micros % self.granularity_micros())
    }

    /// The API's form of a stored timestamp.
    pub fn micros(self, timestamp: Timestamp) -> Result<i64, Status> {
        timestamp.0.checked_mul(self.micros_per_unit()).ok_or_else(|| {
            Status::out_of_range(format!(
                "A cell has timestamp {timestamp} in milliseconds, which the Bigtable API cannot express in microseconds"
            ))
        })
    }

    /// The smallest table timestamp at or after this many microseconds, for bounds of ranges.
    pub fn lower_bound(self, micros: i64) -> i64 {
        let per_unit = self.micros_per_unit();
        micros.div_euclid(per_unit) + i64::from(micros.rem_euclid(per_unit) != 0)
    }

    fn micros_per_unit(self) -> i64 {
        match self.unit {
            TimeUnit::Micros => 1,
            TimeUnit::Millis => 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS_TABLE: TableTime = TableTime {
        unit: TimeUnit::Micros,
        granularity: 1_000,
    };
    const FOREIGN_TABLE: TableTime = TableTime {
        unit: TimeUnit::Millis,
        granularity: 1,
    };

    #[test]
    fn granularity_is_enforced_or_truncated() {
        assert_eq!(MILLIS_TABLE.stored(5_000).unwrap(), Timestamp(5_000));
        assert!(
            MILLIS_TABLE
                .stored(5_001)
                .unwrap_err()
                .message()
                .starts_with("Timestamp granularity mismatch")
        );
        assert_eq!(MILLIS_TABLE.stored_truncated(5_999).unwrap(), Timestamp(5_000));
        for time in [MILLIS_TABLE, FOREIGN_TABLE] {
            assert_eq!(time.stored(0).unwrap(), Timestamp(0));
            assert!(time.stored(-1).is_err() && time.stored_truncated(-2).is_err());
        }
        assert_eq!(MILLIS_TABLE.now(1_234_567), Timestamp(1_234_000));
    }

    #[test]
    fn foreign_units_convert_or_fail() {
        assert_eq!(FOREIGN_TABLE.stored(5_000).unwrap(), Timestamp(5));
        assert!(FOREIGN_TABLE.stored(5_500).is_err());
        assert_eq!(FOREIGN_TABLE.micros(Timestamp(-7)).unwrap(), -7_000);
        assert_eq!(
            FOREIGN_TABLE.micros(Timestamp(i64::MAX)).unwrap_err().code(),
            tonic::Code::OutOfRange
        );
        assert_eq!(FOREIGN_TABLE.now(1_234_567), Timestamp(1_234));
        assert_eq!((FOREIGN_TABLE.lower_bound(1), FOREIGN_TABLE.lower_bound(1_000)), (1, 1));
        assert_eq!(MILLIS_TABLE.lower_bound(2_001), 2_001);
        assert_eq!(FOREIGN_TABLE.lower_bound(i64::MAX), i64::MAX / 1_000 + 1);
    }
}
