//! Checks the commit log.
//!
//! It must replay to its end, and every record must be a batch of rows of its tablet.

use super::report::{Progress, Report, storage_may_answer, unreadable};
use super::tablets::Tablets;
use anyhow::Context;
use std::collections::BTreeMap;
use stele_commitlog::{LogError, Record};
use stele_storage::{Storage, StorageError};
use stele_tablet::Batch;
use stele_types::{CellKey, SeqNo, TabletId};

/// The log records of one tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The number of records.
    pub records: u64,
    /// The first sequence number.
    pub first: SeqNo,
    /// The last sequence number.
    pub last: SeqNo,
}

/// Checks the whole log and returns the records of each tablet. Records after the first damage are unknown. An error is
/// one of the storage and may be transient.
pub async fn check(
    storage: &dyn Storage,
    tablets: &Tablets,
    progress: &Progress,
    report: &mut Report,
) -> anyhow::Result<BTreeMap<TabletId, Logged>> {
    let mut logged: BTreeMap<TabletId, Logged> = BTreeMap::new();
    let mut wrong: Vec<(Record, &'static str)> = Vec::new();
    let mut records = 0;
    let replayed = stele_commitlog::replay(storage, |record: Record| {
        records += 1;
        progress.add(record.frame_len() as u64);
        let (first, last) = (record.first, record.last);
        let of = logged.entry(record.tablet).or_insert(Logged {
            records: 0,
            first,
            last,
        });
        of.records += 1;
        (of.first, of.last) = (of.first.min(first), of.last.max(last));
        if let Err(what) = check_record(&record, tablets)
            && wrong.len() < WRONG_MAX
        {
            wrong.push((record, what));
        }
        Ok::<(), LogError>(())
    })
    .await;
    report.log_records = records;
    for (record, what) in wrong {
        let (tablet, first, last) = (record.tablet, record.first, record.last);
        let what = format!("record {first}..={last} of tablet {tablet}: {what}");
        let places = tablets.known.get(&tablet).map(|info| info.place());
        report.damage("log", None, what, places.into_iter().collect());
    }
    match replayed {
        Ok(replayed) if replayed.torn_bytes > 0 => {
            let what = format!(
                "{} bytes at the end that were never acknowledged; the next start drops them",
                replayed.torn_bytes
            );
            report.note("log", what);
        }
        Ok(_) => {}
        Err(LogError::Corruption { path, offset, detail }) => {
            let what = format!("{detail}; the log after it was not checked");
            report.damage(&path, Some(offset), what, Vec::new());
        }
        Err(LogError::Storage(StorageError::Unreadable { path, offset, message })) => {
            let what = format!("{}; the log after it was not checked", unreadable(&message));
            report.damage(&path, Some(offset), what, Vec::new());
        }
        Err(LogError::Storage(StorageError::Lost { path, detail })) => {
            let what = format!("{detail}; the log after it was not checked");
            report.damage(&path, None, what, Vec::new());
        }
        Err(LogError::Storage(error)) if storage_may_answer(&error) => {
            return Err(error).context("reading the commit log");
        }
        Err(error) => report.damage("log", None, error.to_string(), Vec::new()),
    }
    Ok(logged)
}

/// Most records listed in the report.
const WRONG_MAX: usize = 100;

fn check_record(record: &Record, tablets: &Tablets) -> Result<(), &'static str> {
    // The tablet was dropped or split: no recovery replays the record.
    let Some(tablet) = tablets.known.get(&record.tablet) else {
        return Ok(());
    };
    let payload = record.payload.bytes().clone();
    let batch = Batch::decode_record(payload, record.first, record.last)
        .ok_or("checksum right, batch not decodable or of another length")?;
    let mut fits = true;
    batch.entries(record.first, |key, _| {
        fits &= CellKey::decode(key).is_some_and(|key| tablet.range.contains(&key.row));
    });
    if fits {
        Ok(())
    } else {
        Err("has a row outside of the tablet")
    }
}
