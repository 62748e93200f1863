//! Recovers the keys from the highest snapshot and the log of its generation.

use crate::error::{CoordError, Result};
use crate::format::{FormatError, Log, SnapshotEntry, decode_log, decode_snapshot};
use crate::txn::Write;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_storage::{Storage, StorageError};

pub(super) const DIRECTORY: &str = "coord/";
const SNAPSHOT_PREFIX: &str = "coord/snapshot-";
const LOG_PREFIX: &str = "coord/log-";

pub(super) fn snapshot_path(generation: u64) -> String {
    format!("{SNAPSHOT_PREFIX}{generation:020}")
}

pub(super) fn log_path(generation: u64) -> String {
    format!("{LOG_PREFIX}{generation:020}")
}

/// The recovered state.
pub(super) struct Recovered {
    /// The highest generation of any file, to be used no more.
    pub(super) generation: u64,
    pub(super) revision: u64,
    pub(super) entries: Vec<SnapshotEntry>,
    /// Whether the log has a torn end.
    pub(super) torn: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Snapshot,
    Log,
}

/// Highest valid generation and revision. No storage does a million syncs per second for longer than half a year. 2^44 of
/// either leave numbers to count on and to make session ids of.
const NUMBER_MAX: u64 = 1 << 44;

/// Kind and generation by path; `None` for files that are not ours.
pub(super) fn parse_path(path: &str) -> Option<(Kind, u64)> {
    let number = |digits: &str| {
        let number = digits.parse().ok().filter(|n| *n <= NUMBER_MAX);
        number.filter(|_| digits.len() == 20)
    };
    match path.strip_prefix(SNAPSHOT_PREFIX) {
        Some(digits) => Some((Kind::Snapshot, number(digits)?)),
        None => Some((Kind::Log, number(path.strip_prefix(LOG_PREFIX)?)?)),
    }
}

pub(super) async fn recover(storage: &Arc<dyn Storage>) -> Result<Recovered> {
    let (mut snapshot, mut log) = (None, None);
    for file in storage.list(DIRECTORY).await? {
        match parse_path(&file.path) {
            Some((Kind::Snapshot, generation)) => snapshot = snapshot.max(Some(generation)),
            Some((Kind::Log, generation)) => log = log.max(Some(generation)),
            None => {}
        }
    }
    if log > snapshot {
        let generation = log.unwrap_or_default();
        return Err(CoordError::Corruption {
            file: snapshot_path(generation),
            offset: 0,
            expected: format!("a snapshot, because there is {}", log_path(generation)),
            found: "no such file".to_owned(),
        });
    }
    let Some(generation) = snapshot else {
        return Ok(Recovered {
            generation: 0,
            revision: 0,
            entries: Vec::new(),
            torn: false,
        });
    };
    // The files that this one supersedes are deleted after the next one: only then is a snapshot surely durable.
    load(storage, generation).await
}

/// A whole file. Bytes that the device cannot read are damage, and so is the header of an encrypted file. A data key that is
/// gone is not: it can be restored.
async fn read(storage: &Arc<dyn Storage>, path: &str) -> Result<Bytes> {
    storage.read_all(path).await.map_err(|error| match error {
        StorageError::Unreadable { offset, message, .. } => corruption(path, unreadable(offset, message)),
        StorageError::Lost { path: lost, detail } if lost == path => corruption(
            path,
            FormatError {
                offset: 0,
                expected: "a file that can be opened".to_owned(),
                found: detail.to_owned(),
            },
        ),
        other => other.into(),
    })
}

/// The damage of bytes that the device cannot read.
pub(super) fn unreadable(offset: u64, message: String) -> FormatError {
    FormatError {
        offset,
        expected: "bytes that the device can read".to_owned(),
        found: message,
    }
}

/// Loads one generation.
async fn load(storage: &Arc<dyn Storage>, generation: u64) -> Result<Recovered> {
    let path = log_path(generation);
    let snapshot = load_snapshot(storage, generation).await?;
    let log = match read(storage, &path).await {
        Ok(bytes) => decode_log(&bytes, generation).map_err(|e| corruption(&path, e))?,
        Err(CoordError::Storage(StorageError::NotFound { .. })) => Log::default(),
        Err(error) => return Err(error),
    };
    // The codec checked that records follow each other; the first must follow the snapshot.
    check_follows(&path, snapshot.revision, &log)?;
    let mut recovered = snapshot;
    recovered.replay(log)?;
    Ok(recovered)
}

pub(super) async fn load_snapshot(storage: &Arc<dyn Storage>, generation: u64) -> Result<Recovered> {
    let path = snapshot_path(generation);
    let damaged = |error| corruption(&path, error);
    let snapshot = decode_snapshot(&read(storage, &path).await?).map_err(damaged)?;
    if snapshot.generation != generation {
        return Err(damaged(mismatch(16, "generation", generation, snapshot.generation)));
    }
    Ok(Recovered {
        generation,
        revision: snapshot.revision,
        entries: snapshot.entries,
        torn: false,
    })
}

pub(super) fn check_follows(path: &str, revision: u64, log: &Log) -> Result<()> {
    let follows = revision.saturating_add(1);
    match log.records.first().filter(|first| first.revision != follows) {
        Some(first) => Err(corruption(
            path,
            mismatch(first.offset, "revision", follows, first.revision),
        )),
        None => Ok(()),
    }
}

impl Recovered {
    /// Applies the transactions of a log that follows.
    pub(super) fn replay(&mut self, log: Log) -> Result<()> {
        let revision = log.records.last().map_or(self.revision, |last| last.revision);
        if revision > NUMBER_MAX {
            let error = mismatch(0, "a revision of at most", NUMBER_MAX, revision);
            return Err(corruption(&log_path(self.generation), error));
        }
        self.torn |= log.torn_at.is_some();
        let mut entries: BTreeMap<String, SnapshotEntry> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        for record in log.records {
            for write in record.writes {
                replay(&mut entries, record.revision, write);
            }
        }
        self.revision = revision;
        self.entries = entries.into_values().collect();
        Ok(())
    }
}

fn replay(entries: &mut BTreeMap<String, SnapshotEntry>, version: u64, write: Write) {
    match write {
        Write::Put { key, value } => {
            entries.insert(key.clone(), SnapshotEntry { key, version, value });
        }
        // The session has ended with its process, and the key with the session.
        Write::PutBound { key, .. } | Write::Delete { key } => {
            entries.remove(&key);
        }
    }
}

fn mismatch(offset: u64, what: &str, expected: u64, found: u64) -> FormatError {
    FormatError {
        offset,
        expected: format!("{what} {expected}"),
        found: found.to_string(),
    }
}

pub(super) fn corruption(file: &str, error: FormatError) -> CoordError {
    let FormatError {
        offset,
        expected,
        found,
    } = error;
    CoordError::Corruption {
        file: file.to_owned(),
        offset,
        expected,
        found,
    }
}

/// Deletes the files that a durable snapshot of this generation supersedes, except the generation before it, from which
/// [`super::salvage`] can make this snapshot again.
pub(super) async fn delete_before(storage: &Arc<dyn Storage>, generation: u64) -> Result<()> {
    let files = storage.list(DIRECTORY).await?;
    let snapshots = files.iter().filter_map(|file| match parse_path(&file.path) {
        Some((Kind::Snapshot, number)) if number < generation => Some(number),
        _ => None,
    });
    let kept = snapshots.max().unwrap_or(generation);
    assert!(kept <= generation, "the generation in use is never deleted");
    for file in files {
        if parse_path(&file.path).is_some_and(|(_, number)| number < kept) {
            storage.delete(&file.path).await?;
        }
    }
    Ok(())
}
