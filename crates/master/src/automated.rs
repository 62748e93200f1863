//! Automated backups: snapshots that a table asks for, taken regularly.
//!
//! They are ordinary snapshots that expire, with names as Bigtable gives them: `auto.my-table.c7x3.20230220-145537` has the
//! beginning of the table's name, a hash of its number, and the time in UTC. By the name the newest one is found after a start,
//! or by the next leader.
//!
//! A backup that somebody deletes is not made again before the next is due, as far as this process knows of it. A backup that
//! fails is tried again after a pause.

use crate::master::Master;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_catalog::{CatalogView, SnapshotEntry};
use stele_client::{NewSnapshot, ServiceResult, SnapshotName};
use stele_types::{AutomatedBackups, TableId, TableSchema};

/// Pause after a failure.
const RETRY_MICROS: i64 = 10 * 60 * 1_000_000;
/// Backups taken in one go, so that other changes have their turn in between.
const TOGETHER_MAX: usize = 4;
/// Bytes of the name of the table in that of a backup, which the Bigtable API limits to 50.
const TABLE_BYTES_MAX: usize = 24;
/// Digits of the hash.
const HASH_DIGITS: u32 = 4;

impl Master {
    /// Takes the automated backups that are due, some at a time; how many.
    pub async fn back_up_due(&self) -> usize {
        self.back_up_due_at(self.env.wall_micros()).await
    }

    pub(crate) async fn back_up_due_at(&self, now: i64) -> usize {
        let view = self.catalog.view();
        let all = view.tables.values().map(|table| &table.schema);
        let asking: Vec<(&Arc<TableSchema>, AutomatedBackups)> = all
            .filter_map(|schema| Some((schema, schema.automated_backups?)))
            .collect();
        let asked: BTreeSet<TableId> = asking.iter().map(|(schema, _)| schema.id).collect();
        self.automated.0.lock().retain(|table, _| asked.contains(table));
        let mut taken = 0;
        for (schema, policy) in asking {
            if taken >= TOGETHER_MAX {
                break;
            }
            if self.is_due(&view, schema, policy, now) {
                taken += 1;
                let outcome = self.back_up(schema, policy, now).await;
                let wait = match &outcome {
                    Ok(()) => policy.frequency_micros,
                    Err(_) => RETRY_MICROS.min(policy.frequency_micros),
                };
                self.automated.0.lock().insert(schema.id, now.saturating_add(wait));
                if let Err(error) = outcome {
                    tracing::warn!(table = %schema.name, %error, "an automated backup is not taken yet");
                }
            }
        }
        taken
    }

    fn is_due(&self, view: &CatalogView, schema: &TableSchema, policy: AutomatedBackups, now: i64) -> bool {
        let known = self.automated.0.lock().get(&schema.id).copied();
        let due = known.unwrap_or_else(|| {
            let newest = newest(view, schema);
            newest.map_or(now, |at| at.saturating_add(policy.frequency_micros))
        });
        // A clock that was far ahead once must not end the backups, nor does a policy that was rare before.
        let is_due = now >= due || due > now.saturating_add(policy.frequency_micros);
        if !is_due && known.is_none() {
            self.automated.0.lock().insert(schema.id, due);
        }
        is_due
    }

    async fn back_up(&self, schema: &TableSchema, policy: AutomatedBackups, now: i64) -> ServiceResult<()> {
        let name = format!("{}{}", prefix(schema), utc(now));
        let new = NewSnapshot {
            name: SnapshotName::new(schema.name.namespace.clone(), name),
            table: schema.name.clone(),
            flush: true,
            only_of_name: false,
            expires_micros: Some(self.env.wall_micros().saturating_add(policy.retention_micros)),
            front_end_data: Vec::new(),
        };
        let _changing = self.changing.lock().await;
        // Another table may have its name by now, which has a number of its own.
        if self.entry(&schema.name)?.schema.id == schema.id {
            self.create_snapshot_locked(new).await?;
        }
        Ok(())
    }
}

/// When the newest automated backup of a table was begun.
fn newest(view: &CatalogView, schema: &TableSchema) -> Option<i64> {
    let prefix = prefix(schema);
    let first = (schema.name.namespace.clone(), prefix.clone());
    let from = view.snapshots.range(first..);
    let own =
        from.take_while(|((namespace, name), _)| *namespace == schema.name.namespace && name.starts_with(&prefix));
    own.map(|(_, entry)| entry.created_micros).max()
}

/// Whether a snapshot has the name of an automated backup of its table.
pub(crate) fn is_backup(entry: &SnapshotEntry) -> bool {
    entry.name.1.starts_with(&prefix(&entry.schema))
}

/// The beginning of the names of a table's automated backups.
fn prefix(schema: &TableSchema) -> String {
    let table: String = schema.name.table.chars().take(TABLE_BYTES_MAX).collect();
    format!("auto.{table}.{}.", hash(schema.id))
}

/// A few digits that tell tables with the same beginning of their names apart.
fn hash(table: TableId) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    // The upper half of a product with a large odd number depends on all bits.
    let mut rest = table.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let digits = (0..HASH_DIGITS).map(|_| {
        let digit = DIGITS[(rest % 36) as usize];
        rest /= 36;
        char::from(digit)
    });
    digits.collect()
}

/// A time in UTC as `20230220-145537`.
fn utc(wall_micros: i64) -> String {
    let seconds = wall_micros.div_euclid(1_000_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// The Gregorian date of a number of days since 1970. Years begin in March here, so that a leap day is the last of its year; an
/// era has the 146,097 days of 400 years.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let calendar_month = if month < 10 { month + 3 } else { month - 9 };
    let calendar_year = era * 400 + year + i64::from(calendar_month <= 2);
    (calendar_year, calendar_month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_dates() {
        assert_eq!(utc(0), "19700101-000000");
        assert_eq!(utc(1_676_904_937_000_000), "20230220-145537");
        assert_eq!(utc(951_782_399_999_999), "20000228-235959");
        assert_eq!(utc(951_782_400_000_000), "20000229-000000");
        assert_eq!(utc(1_709_251_200_000_000), "20240301-000000");
        assert_eq!(utc(-1), "19691231-235959");
    }

    #[test]
    fn tables_have_hashes_of_their_own() {
        let hashes: std::collections::BTreeSet<String> = (1..200).map(|n| hash(TableId(n << 20))).collect();
        assert_eq!(hashes.len(), 199);
        assert!(hashes.iter().all(|hash| hash.len() == 4));
    }
}
