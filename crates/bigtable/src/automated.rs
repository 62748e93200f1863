//! Translates the policy for automated backups of a table (table.proto, `Table.AutomatedBackupPolicy`).
//!
//! The server takes them as snapshots, so they are listed with all other backups.

use crate::pb::admin;
use crate::status::invalid;
use admin::table::{AutomatedBackupConfig, AutomatedBackupPolicy};
use prost_types::Duration;
use std::ops::RangeInclusive;
use stele_types::AutomatedBackups;
use tonic::Status;

/// The field of a table.
pub(crate) const FIELD: &str = "automated_backup_policy";
const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// As published.
const RETENTION_MICROS: RangeInclusive<i64> = 3 * DAY_MICROS..=90 * DAY_MICROS;
/// The only frequency, and the one that counts if none is given.
const FREQUENCY_MICROS: i64 = DAY_MICROS;

/// The policy of a request; `None` for no automated backups, also as some clients ask for that: by times that are zero.
pub(crate) fn automated(table: &admin::Table) -> Result<Option<AutomatedBackups>, Status> {
    let Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)) = &table.automated_backup_config else {
        return Ok(None);
    };
    if !policy.locations.is_empty() {
        return Err(Status::unimplemented(format!(
            "Table.{FIELD}.locations is not implemented"
        )));
    }
    let frequency = micros(policy.frequency.as_ref())?;
    match micros(policy.retention_period.as_ref())? {
        0 if frequency == 0 => Ok(None),
        retention => Ok(Some(AutomatedBackups {
            retention_micros: checked_retention(retention)?,
            frequency_micros: checked_frequency(frequency)?,
        })),
    }
}

/// The policy after a change of these fields of it.
pub(crate) fn changed(
    table: &admin::Table,
    fields: &[&str],
    current: Option<AutomatedBackups>,
) -> Result<Option<AutomatedBackups>, Status> {
    if fields.contains(&"") {
        return automated(table);
    }
    let given = match &table.automated_backup_config {
        Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)) => policy.clone(),
        None => AutomatedBackupPolicy::default(),
    };
    let mut next = current.unwrap_or(AutomatedBackups {
        retention_micros: 0,
        frequency_micros: FREQUENCY_MICROS,
    });
    for field in fields {
        match *field {
            "retention_period" => next.retention_micros = micros(given.retention_period.as_ref())?,
            "frequency" => next.frequency_micros = checked_frequency(micros(given.frequency.as_ref())?)?,
            "locations" => {
                return Err(Status::unimplemented(format!(
                    "Table.{FIELD}.locations is not implemented"
                )));
            }
            other => {
                return Err(invalid(format!("incorrect path in UpdateMask; got: {FIELD}.{other}")));
            }
        }
    }
    checked_retention(next.retention_micros)?;
    Ok(Some(next))
}

/// A policy as the API shows it.
pub(crate) fn automated_proto(automated: AutomatedBackups) -> AutomatedBackupConfig {
    let duration = |micros: i64| {
        Some(Duration {
            seconds: micros / 1_000_000,
            nanos: (micros % 1_000_000) as i32 * 1_000,
        })
    };
    AutomatedBackupConfig::AutomatedBackupPolicy(AutomatedBackupPolicy {
        retention_period: duration(automated.retention_micros),
        frequency: duration(automated.frequency_micros),
        ..AutomatedBackupPolicy::default()
    })
}

/// 0 for one that is absent.
fn micros(duration: Option<&Duration>) -> Result<i64, Status> {
    let Some(duration) = duration else { return Ok(0) };
    let seconds = duration.seconds.checked_mul(1_000_000);
    let micros = seconds.and_then(|micros| micros.checked_add(i64::from(duration.nanos) / 1_000));
    micros.ok_or_else(|| invalid(format!("a time of the {FIELD} is out of range")))
}

fn checked_retention(micros: i64) -> Result<i64, Status> {
    match RETENTION_MICROS.contains(&micros) {
        true => Ok(micros),
        false => Err(invalid(format!(
            "{FIELD}.retention_period must be at least 3 days and at most 90 days"
        ))),
    }
}

fn checked_frequency(micros: i64) -> Result<i64, Status> {
    match micros {
        0 | FREQUENCY_MICROS => Ok(FREQUENCY_MICROS),
        _ => Err(invalid(format!("{FIELD}.frequency must be 24 hours"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn table(retention_days: Option<i64>, frequency_hours: Option<i64>) -> admin::Table {
        let of = |seconds| Duration { seconds, nanos: 0 };
        let policy = AutomatedBackupPolicy {
            retention_period: retention_days.map(|days| of(days * 86_400)),
            frequency: frequency_hours.map(|hours| of(hours * 3_600)),
            ..AutomatedBackupPolicy::default()
        };
        admin::Table {
            automated_backup_config: Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)),
            ..admin::Table::default()
        }
    }

    fn days(days: i64) -> AutomatedBackups {
        AutomatedBackups {
            retention_micros: days * DAY_MICROS,
            frequency_micros: DAY_MICROS,
        }
    }

    #[test]
    fn policies_are_checked_as_published() {
        assert_eq!(automated(&admin::Table::default()).unwrap(), None);
        assert_eq!(automated(&table(None, None)).unwrap(), None);
        assert_eq!(automated(&table(Some(0), Some(0))).unwrap(), None);
        for (retention, frequency) in [(3, None), (90, Some(24)), (7, Some(0))] {
            assert_eq!(
                automated(&table(Some(retention), frequency)).unwrap(),
                Some(days(retention))
            );
        }
        for (retention, frequency) in [
            (Some(2), None),
            (Some(91), Some(24)),
            (None, Some(24)),
            (Some(7), Some(12)),
            (Some(-3), None),
            (Some(i64::MAX / 86_400), None),
        ] {
            let refused = automated(&table(retention, frequency)).map_err(|status| status.code());
            assert_eq!(refused, Err(Code::InvalidArgument), "{retention:?} {frequency:?}");
        }
        let mut placed = table(Some(3), None);
        if let Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)) = &mut placed.automated_backup_config {
            policy.locations.push("projects/p/locations/z".to_owned());
        }
        assert_eq!(automated(&placed).unwrap_err().code(), Code::Unimplemented);
    }

    #[test]
    fn single_fields_change() {
        let retention = |days_given| changed(&table(Some(days_given), None), &["retention_period"], Some(days(3)));
        assert_eq!(retention(9).unwrap(), Some(days(9)));
        assert_eq!(retention(0).unwrap_err().code(), Code::InvalidArgument);
        let frequency = |current| changed(&table(None, Some(24)), &["frequency"], current);
        assert_eq!(frequency(Some(days(5))).unwrap(), Some(days(5)));
        assert_eq!(
            frequency(None).unwrap_err().code(),
            Code::InvalidArgument,
            "no retention"
        );
        assert_eq!(changed(&admin::Table::default(), &[""], Some(days(5))).unwrap(), None);
        let unknown = changed(&table(Some(3), None), &["x"], None).map_err(|status| status.code());
        assert_eq!(unknown, Err(Code::InvalidArgument));
        assert_eq!(
            changed(&table(Some(4), None), &["retention_period"], None).unwrap(),
            Some(days(4))
        );
    }

    #[test]
    fn a_policy_is_shown_as_it_was_given() {
        let shown = admin::Table {
            automated_backup_config: Some(automated_proto(days(30))),
            ..admin::Table::default()
        };
        assert_eq!(automated(&shown).unwrap(), Some(days(30)));
        assert_eq!(shown, table(Some(30), Some(24)));
    }
}
