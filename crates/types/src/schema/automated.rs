//! Backups of a table that the server makes by itself.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

const MINUTE_MICROS: i64 = 60_000_000;
const DAY_MICROS: i64 = 24 * 60 * MINUTE_MICROS;

/// How often a table is backed up, and for how long such a backup is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomatedBackups {
    /// Microseconds from the creation of a backup to its expiry.
    pub retention_micros: i64,
    /// Microseconds from one backup to the next.
    pub frequency_micros: i64,
}

impl AutomatedBackups {
    /// From the shortest time that a backup is of use to the longest that Bigtable keeps one.
    pub const RETENTION_MICROS: RangeInclusive<i64> = 60 * MINUTE_MICROS..=90 * DAY_MICROS;
    /// Each backup flushes the table, so a shorter time would keep a large table flushing.
    pub const FREQUENCY_MICROS: RangeInclusive<i64> = 10 * MINUTE_MICROS..=90 * DAY_MICROS;

    /// Why these cannot be; `None` if they can.
    pub fn fault(&self) -> Option<String> {
        let within = |name: &str, micros: i64, range: RangeInclusive<i64>| {
            let (least, most) = (range.start() / MINUTE_MICROS, range.end() / MINUTE_MICROS);
            let fault = || format!("the {name} of automated backups is {least} to {most} minutes");
            (!range.contains(&micros)).then(fault)
        };
        let retention = within("retention", self.retention_micros, Self::RETENTION_MICROS);
        retention.or_else(|| within("frequency", self.frequency_micros, Self::FREQUENCY_MICROS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sensible_times_are_taken() {
        let of = |retention_micros, frequency_micros| AutomatedBackups {
            retention_micros,
            frequency_micros,
        };
        assert_eq!(of(3 * DAY_MICROS, DAY_MICROS).fault(), None);
        assert!(
            of(91 * DAY_MICROS, DAY_MICROS)
                .fault()
                .is_some_and(|why| why.contains("retention"))
        );
        assert!(
            of(3 * DAY_MICROS, 0)
                .fault()
                .is_some_and(|why| why.contains("frequency"))
        );
        assert!(of(-1, DAY_MICROS).fault().is_some());
    }
}
