//! Makes the keys again when the newest snapshot or its log is damaged.
//!
//! Recovery refuses damage. For a repair there are two ways on:
//!
//! * A damaged *snapshot* equals the end of the generation before it. That generation is kept for this. If its revisions lead
//!   up to those of the damaged one's log, nothing is missing.
//! * A damaged *log* counts up to its damage. Later changes are lost and unknown.
//!
//! The result is put as the snapshot of a new generation, which supersedes the damaged files. Those stay, for the caller to
//! move away before the next opening deletes them.

use super::recovery::{self, DIRECTORY, Kind, Recovered, corruption};
use crate::epoch;
use crate::error::{CoordError, Result};
use crate::format::{FormatError, Log, SnapshotEntry, decode_log, encode_snapshot};
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::past_unreadable;
use stele_storage::{Storage, StorageError};

/// The recoverable keys.
pub struct Salvaged {
    /// The files that cannot be read.
    pub damaged: Vec<String>,
    /// The missing changes, in words; `None` when there are none.
    pub lost: Option<String>,
    /// The last transaction there is.
    pub revision: u64,
    recovered: Recovered,
    /// The highest generation of any file.
    generation_max: u64,
}

/// Recovers the keys in spite of damage; `None` when nothing is damaged.
///
/// # Errors
/// The damage itself, when there is no way around it.
pub async fn salvage(storage: &Arc<dyn Storage>) -> Result<Option<Salvaged>> {
    let damage = match recovery::recover(storage).await {
        Ok(_) => return Ok(None),
        Err(damage @ CoordError::Corruption { .. }) => damage,
        Err(error) => return Err(error),
    };
    let (mut snapshots, mut generation_max) = (Vec::new(), 0);
    for file in storage.list(DIRECTORY).await? {
        if let Some((kind, generation)) = recovery::parse_path(&file.path) {
            generation_max = generation_max.max(generation);
            if kind == Kind::Snapshot {
                snapshots.push(generation);
            }
        }
    }
    // A log may be there whose snapshot is gone.
    let newest = generation_max;
    let before = snapshots.into_iter().filter(|number| *number < newest).max();
    let log = read_log(storage, newest).await?;
    let mut damaged = Vec::new();
    let recovered = match (recovery::load_snapshot(storage, newest).await, before) {
        (Ok(snapshot), _) => snapshot,
        (Err(error), before) => {
            match error {
                CoordError::Corruption { .. } => damaged.push(recovery::snapshot_path(newest)),
                CoordError::Storage(StorageError::NotFound { .. }) => {}
                error => return Err(error),
            }
            let Some(before) = before else { return Err(damage) };
            again(storage, before, &log).await?.ok_or(damage)?
        }
    };
    if log.error.is_some() {
        damaged.push(recovery::log_path(newest));
    }
    finish(recovered, log, damaged, generation_max).map(Some)
}

/// A log up to its damage.
struct ReadLog {
    log: Log,
    error: Option<FormatError>,
    path: String,
}

async fn read_log(storage: &Arc<dyn Storage>, generation: u64) -> Result<ReadLog> {
    let path = recovery::log_path(generation);
    let file = match past_unreadable::open_or_lost(&**storage, &path).await {
        Ok(file) => file,
        Err(StorageError::NotFound { .. }) => {
            return Ok(ReadLog {
                log: Log::default(),
                error: None,
                path,
            });
        }
        Err(error) => return Err(error.into()),
    };
    let bytes = file.read_all().await?;
    let unreadable = file.unreadable().into_iter().next();
    let (log, error) = match decode_log(&bytes, generation) {
        // An end that was never acknowledged is read the same way.
        Ok(log) => (
            log,
            unreadable.map(|part| recovery::unreadable(part.start, "none".to_owned())),
        ),
        Err(error) => {
            let end = usize::try_from(error.offset).unwrap_or(usize::MAX).min(bytes.len());
            // A record that is cut off is read as a torn end, and left out.
            let log = decode_log(&bytes.slice(..end), generation).unwrap_or_default();
            (log, Some(error))
        }
    };
    Ok(ReadLog { log, error, path })
}

/// The snapshot that equals the end of generation `before`; `None` when it cannot be made.
async fn again(storage: &Arc<dyn Storage>, before: u64, next: &ReadLog) -> Result<Option<Recovered>> {
    let mut recovered = match recovery::load_snapshot(storage, before).await {
        Ok(snapshot) => snapshot,
        Err(CoordError::Corruption { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut log = read_log(storage, before).await?;
    if let Some(first) = next.log.records.first() {
        // A transaction that failed, and whose record is there nevertheless, is not in the snapshot that followed.
        log.log.records.retain(|record| record.revision < first.revision);
    }
    let follows = recovery::check_follows(&log.path, recovered.revision, &log.log);
    if log.error.is_some() || follows.is_err() {
        return Ok(None);
    }
    recovered.replay(log.log)?;
    Ok(Some(recovered))
}

/// Applies the log of the newest generation to the snapshot that it follows.
fn finish(mut recovered: Recovered, log: ReadLog, damaged: Vec<String>, generation_max: u64) -> Result<Salvaged> {
    let lost = match (
        recovery::check_follows(&log.path, recovered.revision, &log.log),
        log.error,
    ) {
        (Err(gap), _) => return Err(gap),
        (Ok(()), None) => None,
        (Ok(()), Some(error)) => Some(format!(
            "every change of the catalog after revision {}: {}",
            log.log.records.last().map_or(recovered.revision, |last| last.revision),
            corruption(&log.path, error)
        )),
    };
    recovered.replay(log.log)?;
    Ok(Salvaged {
        damaged,
        lost,
        revision: recovered.revision,
        recovered,
        generation_max,
    })
}

/// Most numbers that may have been taken since the last snapshot: a file whose name states more is not one of this server.
const TAKEN_MAX: u64 = 1 << 20;

impl Salvaged {
    /// Makes sure that a counter ([`crate::next_epoch`]) gives no number up to `used`: the change that gave it may be lost.
    ///
    /// # Errors
    /// When the counter is none.
    pub fn raise_epoch(&mut self, name: &str, used: u64) -> Result<()> {
        let key = epoch::key(name);
        let entries = &mut self.recovered.entries;
        let place = entries.binary_search_by(|entry| entry.key.cmp(&key));
        let last = match place.ok().and_then(|at| entries.get(at)) {
            None => 0,
            Some(entry) => epoch::parse(&key, &entry.value)?,
        };
        if used <= last || used - last > TAKEN_MAX {
            return Ok(());
        }
        let value = Bytes::from(used.to_string());
        match place {
            Ok(at) => {
                if let Some(entry) = entries.get_mut(at) {
                    entry.value = value;
                }
            }
            Err(at) => {
                let version = self.revision;
                entries.insert(at, SnapshotEntry { key, version, value });
            }
        }
        Ok(())
    }

    /// Puts the keys as a generation of their own, which counts from then on. Called again after an interruption, it puts
    /// nothing new: then nothing is damaged any more.
    pub async fn put(&self, storage: &Arc<dyn Storage>) -> Result<()> {
        let generation = self.generation_max + 1;
        let entries = &self.recovered.entries;
        let snapshot = encode_snapshot(
            generation,
            self.revision,
            entries
                .iter()
                .map(|entry| (entry.key.as_str(), entry.version, &entry.value[..])),
        );
        let path = recovery::snapshot_path(generation);
        storage.put_if_absent(&path, snapshot).await.map_err(CoordError::from)
    }
}

#[cfg(test)]
mod tests;
