//! Reads the data keys of a root.
//!
//! A key may have several files for a moment, because a server that rotates it writes a new one before it deletes the former one.
//! The lower ones need not have the same key: a server that was too late to make the first one deletes its own, or ends before it does.
//! So a lower file counts only where the content of the highest one is damaged.

use super::Result;
use crate::error::EncryptionError;
use crate::record::{DIRECTORY, KeyName, KeyRecord};
use crate::service::{DataKey, KeyService};
use futures::StreamExt;
use std::collections::BTreeMap;
use stele_storage::{FileInfo, Storage, StorageError};

/// Keys that are read or wrapped concurrently: a start waits for as many requests as there are keys, divided by this.
pub(super) const ASKED_CONCURRENTLY: usize = 32;

/// Other servers that may rotate a key while it is read, one after the other.
const RACES_MAX: usize = 8;

/// A key as it was found.
pub(super) struct Found {
    pub(super) record: KeyRecord,
    pub(super) key: DataKey,
    /// The key-encryption key that wraps now has wrapped it.
    pub(super) is_current: bool,
    /// Of its file.
    pub(super) number: u32,
    /// The highest number of all its files.
    pub(super) highest: u32,
    /// The paths of its other files.
    pub(super) others: Vec<String>,
}

/// The numbers of the files of each key, highest first, each once.
fn numbers_of<'a>(paths: impl Iterator<Item = &'a str>) -> Result<BTreeMap<KeyName, Vec<u32>>> {
    let mut numbers: BTreeMap<KeyName, Vec<u32>> = BTreeMap::new();
    for path in paths {
        let Some((name, number)) = KeyName::parse_path(path) else {
            return Err(EncryptionError::Damaged {
                path: path.to_owned(),
                detail: "no data key has this name".to_owned(),
            });
        };
        numbers.entry(name).or_default().push(number);
    }
    for numbers in numbers.values_mut() {
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        numbers.dedup();
    }
    Ok(numbers)
}

/// All keys of a root.
#[derive(Default)]
pub(super) struct AllKeys {
    pub(super) found: Vec<Found>,
    /// Keys of tables that are there and cannot be had.
    pub(super) unavailable: Vec<(KeyName, EncryptionError)>,
}

impl AllKeys {
    /// Whether there is none.
    pub(super) fn are_none(&self) -> bool {
        self.found.is_empty() && self.unavailable.is_empty()
    }
}

/// The files of keys, most of them twice. A listing of a directory may be past the place of a new file before it is written, and not yet at that
/// of the former one when it is deleted. The second listing has the new one.
pub(super) async fn list_twice(below: &dyn Storage, prefix: &str) -> Result<Vec<FileInfo>> {
    let mut listed = below.list(prefix).await?;
    listed.extend(below.list(prefix).await?);
    Ok(listed)
}

/// Reads and unwraps all keys of a root. A damaged key of a table does not keep the others from use.
pub(super) async fn read_all(below: &dyn Storage, service: &dyn KeyService) -> Result<AllKeys> {
    let listed = list_twice(below, DIRECTORY).await?;
    let numbers = numbers_of(listed.iter().map(|file| &file.path[..]))?;
    let reads = numbers.into_iter().map(|(name, numbers)| async move {
        let read = match read_one(below, service, name, numbers).await {
            // Rotated since all were listed, which takes a while where there are many.
            Err(EncryptionError::Storage(StorageError::NotFound { .. })) => {
                let found = list_and_read(below, service, name).await;
                found.and_then(|found| found.ok_or_else(|| EncryptionError::Missing { path: name.prefix() }))
            }
            read => read,
        };
        (name, read)
    });
    let reads: Vec<_> = reads.collect();
    let mut reads = futures::stream::iter(reads).buffered(ASKED_CONCURRENTLY);
    let mut all = AllKeys::default();
    while let Some((name, read)) = reads.next().await {
        match read {
            Ok(found) => all.found.push(found),
            Err(error) if name != KeyName::Root && error.is_of_one_key() => all.unavailable.push((name, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Reads and unwraps a key; `None` if it has no files. A server that rotates keys writes a new file, and deletes the others: they
/// are listed again when one of them has gone.
pub(super) async fn list_and_read(
    below: &dyn Storage,
    service: &dyn KeyService,
    name: KeyName,
) -> Result<Option<Found>> {
    let mut races = 0..RACES_MAX;
    loop {
        let listed = list_twice(below, &name.prefix()).await?;
        let numbers = numbers_of(listed.iter().map(|file| &file.path[..]))?;
        let Some((_, numbers)) = numbers.into_iter().find(|(found, _)| *found == name) else {
            return Ok(None);
        };
        match read_one(below, service, name, numbers).await {
            Err(EncryptionError::Storage(StorageError::NotFound { .. })) if races.next().is_some() => {}
            read => return read.map(Some),
        }
    }
}

/// Reads and unwraps a key by the highest of its files that is not damaged.
async fn read_one(below: &dyn Storage, service: &dyn KeyService, name: KeyName, numbers: Vec<u32>) -> Result<Found> {
    let highest = numbers.first().copied().unwrap_or_default();
    let mut first_error = None;
    for number in numbers.iter().copied() {
        match unwrap_file(below, service, name, number).await {
            Ok((record, (key, is_current))) => {
                let others = numbers.iter().filter(|other| **other != number);
                let others = others.map(|other| name.path(*other)).collect();
                return Ok(Found {
                    record,
                    key,
                    is_current,
                    number,
                    highest,
                    others,
                });
            }
            Err(error) if error.is_damage() => first_error = first_error.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(first_error.unwrap_or(EncryptionError::Missing { path: name.prefix() }))
}

async fn unwrap_file(
    below: &dyn Storage,
    service: &dyn KeyService,
    name: KeyName,
    number: u32,
) -> Result<(KeyRecord, (DataKey, bool))> {
    let path = name.path(number);
    let content = below.read_all(&path).await?;
    let damaged = |detail| EncryptionError::Damaged {
        path: path.clone(),
        detail,
    };
    let record = KeyRecord::decode(&content).map_err(damaged)?;
    if record.name != name {
        return Err(damaged("it is of another key than its name says".to_owned()));
    }
    let context = KeyRecord::context(name, record.is_fresh, &record.root);
    let key = service.unwrap_and_compare(&record.wrapped, &context).await;
    let key = key.map_err(|error| EncryptionError::Key { path, error })?;
    Ok((record, key))
}
