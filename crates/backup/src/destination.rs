//! The state of a destination, and the documents of its backups.
//!
//! States are numbered, and a change is a compare-and-swap: `docs/formats/backup.md` has the protocol and why it is safe.
//!
//! Invariant: a change that is made twice has the effect of one, because the outcome of a put may be unknown.

use crate::error::{BackupError, Result};
use crate::format::{Document, Entry, FileList, ListedFile, Record, State};
use crate::paths;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::{Storage, StorageError};
use stele_tablet::snapshot::SnapshotPart;

/// Attempts at a change or a read while others change the state.
const ATTEMPTS_MAX: usize = 100;
/// States kept behind the newest. A writer that slept for longer than as many changes finds out ([`LOST_BEHIND`]).
const STATES_KEPT: u64 = 64;
/// A state that is further behind the newest when its writer checks was put where a deleted one had been.
const LOST_BEHIND: u64 = STATES_KEPT / 2;

/// A destination.
pub struct Destination {
    storage: Arc<dyn Storage>,
}

impl Destination {
    /// Opens a destination, and makes it if it is empty and `make` is set.
    pub async fn open(storage: Arc<dyn Storage>, make: bool) -> Result<Destination> {
        let found = match storage.read_all(paths::FORMAT).await {
            Ok(found) => Some(found),
            Err(StorageError::NotFound { .. }) => None,
            Err(error) => return Err(BackupError::Destination(error)),
        };
        match found {
            Some(text) => check_format(&text)?,
            None if !make => {
                return Err(BackupError::Invalid(
                    "the destination holds no backups of Stele".to_owned(),
                ));
            }
            None => {
                let files = storage.list("").await.map_err(BackupError::Destination)?;
                if let Some(other) = files.first() {
                    let message = format!(
                        "the destination is not empty and holds no backups of Stele (it has {:?} and no {})",
                        other.path,
                        paths::FORMAT
                    );
                    return Err(BackupError::Invalid(message));
                }
                let text = Bytes::from_static(paths::FORMAT_TEXT.as_bytes());
                match storage.put_if_absent(paths::FORMAT, text).await {
                    Ok(()) | Err(StorageError::AlreadyExists { .. }) => {}
                    Err(error) => return Err(BackupError::Destination(error)),
                }
            }
        }
        Ok(Destination { storage })
    }

    /// Its storage.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The newest state; one without number or backups at first.
    pub async fn state(&self) -> Result<State> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(newest) = self.state_numbers().await?.into_iter().max() else {
                return Ok(State::default());
            };
            let path = paths::state(newest);
            match self.storage.read_all(&path).await {
                Ok(content) => {
                    let state = State::decode_file(&path, &content)?;
                    return match state.number == newest {
                        true => Ok(state),
                        false => Err(damaged(&path, format!("it is state {}", state.number))),
                    };
                }
                // It became old and was deleted since the listing.
                Err(StorageError::NotFound { .. }) => {}
                Err(error) => return Err(BackupError::Destination(error)),
            }
        }
        Err(BackupError::Contended)
    }

    /// The newest state, which survives power loss from now on. For a caller that deletes something because of it.
    pub async fn settled_state(&self) -> Result<State> {
        for _ in 0..ATTEMPTS_MAX {
            let state = self.state().await?;
            if self.settle(&state).await? {
                return Ok(state);
            }
        }
        Err(BackupError::Contended)
    }

    /// Makes a state durable that was read: its writer may have ended, or failed, before its name was. `false` if the state became old and
    /// was deleted.
    async fn settle(&self, state: &State) -> Result<bool> {
        if state.number == 0 {
            return Ok(true);
        }
        match self.storage.sync_file(&paths::state(state.number)).await {
            Ok(()) => Ok(true),
            Err(StorageError::NotFound { .. }) => Ok(false),
            Err(error) => Err(BackupError::Destination(error)),
        }
    }

    async fn state_numbers(&self) -> Result<Vec<u64>> {
        let listed = self
            .storage
            .list(paths::STATES)
            .await
            .map_err(BackupError::Destination)?;
        Ok(listed
            .iter()
            .filter_map(|file| paths::parse_state(&file.path))
            .collect())
    }

    /// Changes the state, durably. `change` may run several times, each time on the newest state, and also on one that it has changed
    /// already.
    pub async fn change<T>(&self, mut change: impl FnMut(&mut State) -> Result<T>) -> Result<(State, T)> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.state().await?;
            let mut next = before.clone();
            next.number = before.number + 1;
            let made = change(&mut next)?;
            let unchanged = State {
                number: before.number,
                ..next.clone()
            };
            if unchanged == before {
                match self.settle(&before).await? {
                    true => return Ok((before, made)),
                    false => continue,
                }
            }
            let path = paths::state(next.number);
            match self.storage.put_if_absent(&path, next.encode_file(&path)?).await {
                Ok(()) => {}
                Err(StorageError::AlreadyExists { .. }) => continue,
                Err(error @ StorageError::NoSpace { .. }) => return Err(BackupError::Destination(error)),
                Err(error) => {
                    // It may have happened: then the next round finds nothing to change.
                    tracing::warn!(%error, "outcome of a change of backups unknown, to be tried again");
                    continue;
                }
            }
            let numbers = self.state_numbers().await?;
            if numbers.iter().any(|number| *number > next.number + LOST_BEHIND) {
                self.storage.delete(&path).await.map_err(BackupError::Destination)?;
                continue;
            }
            self.delete_old_states(next.number, numbers).await;
            return Ok((next, made));
        }
        Err(BackupError::Contended)
    }

    async fn delete_old_states(&self, newest: u64, numbers: Vec<u64>) {
        let old = numbers.into_iter().filter(|number| number + STATES_KEPT < newest);
        let old: Vec<String> = old.map(paths::state).collect();
        if !old.is_empty()
            && let Err(error) = self.storage.delete_all(&old).await
        {
            tracing::warn!(%error, "old states of backups are left to the next change");
        }
    }

    /// The complete backup of a name, in a state.
    pub fn complete<'s>(state: &'s State, name: &str) -> Result<&'s Entry> {
        match state.backups.iter().find(|entry| entry.name == name) {
            Some(entry) if entry.is_complete() => Ok(entry),
            Some(_) => Err(BackupError::Unfinished(name.to_owned())),
            None => Err(BackupError::NoBackup(name.to_owned())),
        }
    }

    /// The record that an attempt wrote.
    pub async fn record(&self, attempt: u64) -> Result<Record> {
        let path = paths::record(attempt);
        let record = Record::decode_file(&path, &self.read(&path).await?)?;
        match record.attempt() == attempt {
            true => Ok(record),
            false => Err(damaged(&path, format!("it is of attempt {:016x}", record.attempt()))),
        }
    }

    /// The numbers of the lists of an attempt that are there, ascending.
    pub async fn list_numbers(&self, attempt: u64) -> Result<Vec<u32>> {
        let listed = self.storage.list(&paths::documents(attempt)).await;
        let listed = listed.map_err(BackupError::Destination)?;
        let mut numbers: Vec<u32> = listed
            .iter()
            .filter_map(|file| paths::parse_list(attempt, &file.path))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A list of files.
    pub async fn list(&self, attempt: u64, number: u32) -> Result<Vec<ListedFile>> {
        let path = paths::list(attempt, number);
        let list = FileList::decode_file(&path, &self.read(&path).await?)?;
        if (list.attempt, list.number) != (attempt, number) {
            return Err(damaged(
                &path,
                format!("it is list {} of attempt {:016x}", list.number, list.attempt),
            ));
        }
        match list.files.iter().all(|file| file.stored().is_some()) {
            true => Ok(list.files),
            false => Err(damaged(&path, "it names a file of an unknown kind".to_owned())),
        }
    }

    /// Writes a list of files.
    pub async fn put_list(&self, attempt: u64, number: u32, files: Vec<ListedFile>) -> Result<()> {
        let path = paths::list(attempt, number);
        let list = FileList { attempt, number, files };
        self.put(&path, list.encode_file(&path)?).await
    }

    /// Writes a document below the number of an attempt, where nobody else writes: one that is there is of an earlier try of
    /// this put.
    pub async fn put(&self, path: &str, content: Bytes) -> Result<()> {
        match self.storage.put_if_absent(path, content.clone()).await {
            Ok(()) => return Ok(()),
            Err(StorageError::AlreadyExists { .. }) => {}
            Err(error) => return Err(BackupError::Destination(error)),
        }
        let found = self.storage.read_all(path).await.map_err(BackupError::Destination)?;
        match found == content {
            true => self.storage.sync_file(path).await.map_err(BackupError::Destination),
            false => Err(damaged(path, "another writer has written it".to_owned())),
        }
    }

    /// A part of the tablets of a table.
    pub async fn part(&self, attempt: u64, table: u32, part: u32) -> Result<SnapshotPart> {
        let path = paths::part(attempt, table, part);
        let content = self.read(&path).await?;
        let found = SnapshotPart::decode_file(&path, &content).map_err(BackupError::Document)?;
        match found.part == part {
            true => Ok(found),
            false => Err(damaged(&path, format!("it is part {}", found.part))),
        }
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        match self.storage.read_all(path).await {
            Err(StorageError::NotFound { .. }) => Err(damaged(path, "the file is missing".to_owned())),
            content => content.map_err(BackupError::Destination),
        }
    }
}

/// The error for a file of a destination whose content is wrong.
pub(crate) fn damaged(path: &str, detail: String) -> BackupError {
    BackupError::Damaged {
        path: path.to_owned(),
        detail,
    }
}

fn check_format(text: &[u8]) -> Result<()> {
    if text == paths::FORMAT_TEXT.as_bytes() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(text);
    let message = match text.starts_with("stele-backups ") {
        true => format!(
            "the destination has backups of a later version of Stele ({})",
            text.trim()
        ),
        false => format!(
            "the destination holds no backups of Stele: its {} differs",
            paths::FORMAT
        ),
    };
    Err(BackupError::Invalid(message))
}
