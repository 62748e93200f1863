//! The data keys of one data root.
//!
//! Invariants:
//! * A key is durable in the root before a file that uses it is created.
//! * Nothing is written before every key that is there was unwrapped: a wrong key-encryption key changes nothing.
//! * Of the files of one key the one with the highest number is never deleted, and a lower one only when a higher one is durable. So
//!   several servers may make and rotate keys of a root that they share.

use crate::cipher::{ContentKey, RandomBytes};
use crate::error::EncryptionError;
use crate::record::{DIRECTORY, KeyName, KeyRecord, is_plain};
use crate::service::{DataKey, KEY_BYTES, KeyError, KeyService, Wrapped};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_storage::{Storage, StorageError};

type Result<T> = std::result::Result<T, EncryptionError>;

/// Files of keys that are read concurrently: a start waits for as many requests as there are keys, divided by this.
const READ_CONCURRENTLY: usize = 32;

/// Other servers that may be faster to make the first key, one after the other.
const RACES_MAX: usize = 8;

/// The data keys of one data root. A few hundred bytes of memory for each table.
pub struct KeyRing {
    /// The root, not encrypted.
    below: Arc<dyn Storage>,
    service: Arc<dyn KeyService>,
    random: Arc<dyn RandomBytes>,
    /// The number of the root.
    root: [u8; 16],
    is_fresh: bool,
    keys: RwLock<HashMap<KeyName, Arc<RingKey>>>,
    /// Held while a key is made, so that this process makes one of each.
    making: tokio::sync::Mutex<()>,
}

/// A data key in use.
pub(crate) struct RingKey {
    pub(crate) name: KeyName,
    pub(crate) content: ContentKey,
    /// The path of its file.
    path: String,
    /// The file survives power loss. One that an earlier process wrote may not.
    is_durable: AtomicBool,
}

/// A key as it was found.
struct Found {
    record: KeyRecord,
    key: DataKey,
    /// Of its file.
    number: u32,
    /// The highest number of all its files.
    highest: u32,
    /// The paths of its other files.
    others: Vec<String>,
}

/// Whether a data root has data keys, and is therefore under encryption.
pub async fn has_keys(root: &dyn Storage) -> stele_storage::Result<bool> {
    Ok(!root.list(DIRECTORY).await?.is_empty())
}

impl KeyRing {
    /// Opens the keys of a root for reading and writing. Makes the first one if there is none, and wraps all of them by the
    /// current key-encryption key.
    pub async fn open(
        below: Arc<dyn Storage>,
        service: Arc<dyn KeyService>,
        random: Arc<dyn RandomBytes>,
    ) -> Result<Arc<KeyRing>> {
        for _ in 0..RACES_MAX {
            let found = read_all(&*below, &*service).await?;
            if !found.is_empty() {
                let ring = KeyRing::of(found, below, service, random)?;
                ring.rotate().await?;
                return Ok(ring.ring);
            }
            make_first(&*below, &*service, &*random).await?;
        }
        Err(EncryptionError::Missing {
            path: KeyName::Root.prefix(),
        })
    }

    /// Refuses a root whose first key cannot be unwrapped; one without keys passes. Changes nothing, and reads one key.
    pub async fn check(below: &dyn Storage, service: &dyn KeyService) -> Result<()> {
        list_and_read(below, service, KeyName::Root).await.map(drop)
    }

    /// Opens the keys of a root and changes nothing. `None` if it has none.
    pub async fn look(
        below: Arc<dyn Storage>,
        service: Arc<dyn KeyService>,
        random: Arc<dyn RandomBytes>,
    ) -> Result<Option<Arc<KeyRing>>> {
        let found = read_all(&*below, &*service).await?;
        match found.is_empty() {
            true => Ok(None),
            false => Ok(Some(KeyRing::of(found, below, service, random)?.ring)),
        }
    }

    /// Whether the root had no files when encryption began, so that all files are encrypted.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    fn of(
        found: Vec<Found>,
        below: Arc<dyn Storage>,
        service: Arc<dyn KeyService>,
        random: Arc<dyn RandomBytes>,
    ) -> Result<Opened> {
        let of_root = found.iter().find(|found| found.record.name == KeyName::Root);
        let Some(of_root) = of_root.map(|found| found.record.clone()) else {
            return Err(EncryptionError::Missing {
                path: KeyName::Root.prefix(),
            });
        };
        let ring = KeyRing {
            below,
            service,
            random,
            root: of_root.root,
            is_fresh: of_root.is_fresh,
            keys: RwLock::default(),
            making: tokio::sync::Mutex::default(),
        };
        for found in &found {
            ring.check_root(found)?;
            ring.note(found, found.number, false);
        }
        Ok(Opened {
            ring: Arc::new(ring),
            found,
        })
    }

    fn check_root(&self, found: &Found) -> Result<()> {
        if found.record.root == self.root {
            return Ok(());
        }
        Err(EncryptionError::Damaged {
            path: found.record.name.path(found.number),
            detail: "it is of another data root".to_owned(),
        })
    }

    fn note(&self, found: &Found, number: u32, is_durable: bool) -> Arc<RingKey> {
        let key = Arc::new(RingKey {
            name: found.record.name,
            content: ContentKey::new(&found.key),
            path: found.record.name.path(number),
            is_durable: AtomicBool::new(is_durable),
        });
        self.keys.write().insert(key.name, key.clone());
        key
    }

    fn known(&self, name: KeyName) -> Option<Arc<RingKey>> {
        self.keys.read().get(&name).cloned()
    }

    /// The key of a file that exists.
    pub(crate) async fn reading(&self, name: KeyName) -> Result<Arc<RingKey>> {
        if let Some(key) = self.known(name) {
            return Ok(key);
        }
        // Another server of the cluster has made it since.
        match self.find(name).await? {
            Some(key) => Ok(key),
            None => Err(EncryptionError::Missing { path: name.prefix() }),
        }
    }

    /// The key for a new file, durable in the root.
    pub(crate) async fn writing(&self, name: KeyName) -> Result<Arc<RingKey>> {
        let key = match self.known(name) {
            Some(key) => key,
            None => self.find_or_make(name).await?,
        };
        if key.is_durable.load(Ordering::Acquire) {
            return Ok(key);
        }
        match self.below.sync_file(&key.path).await {
            Ok(()) => {}
            // Another server has wrapped the key again. It deleted this file when the new one was durable.
            Err(StorageError::NotFound { .. }) if !self.below.list(&name.prefix()).await?.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
        key.is_durable.store(true, Ordering::Release);
        Ok(key)
    }

    /// A new nonce.
    pub(crate) fn fill(&self, bytes: &mut [u8], path: &str) -> stele_storage::Result<()> {
        self.random.fill(bytes).map_err(|message| StorageError::Io {
            path: path.to_owned(),
            operation: "random bytes",
            message,
        })
    }

    async fn find(&self, name: KeyName) -> Result<Option<Arc<RingKey>>> {
        let Some(found) = list_and_read(&*self.below, &*self.service, name).await? else {
            return Ok(None);
        };
        self.check_root(&found)?;
        Ok(Some(self.note(&found, found.number, false)))
    }

    async fn find_or_make(&self, name: KeyName) -> Result<Arc<RingKey>> {
        let _alone = self.making.lock().await;
        if let Some(key) = self.known(name) {
            return Ok(key);
        }
        for _ in 0..RACES_MAX {
            if let Some(key) = self.find(name).await? {
                return Ok(key);
            }
            let (service, random) = (&*self.service, &*self.random);
            let made = make(&*self.below, service, random, name, (self.root, false)).await?;
            if let Some(found) = made {
                return Ok(self.note(&found, found.number, true));
            }
        }
        Err(EncryptionError::Missing { path: name.prefix() })
    }
}

/// A ring with the files that it was made of.
struct Opened {
    ring: Arc<KeyRing>,
    found: Vec<Found>,
}

impl Opened {
    /// Wraps all keys by the current key-encryption key, and deletes the files that this made unnecessary.
    async fn rotate(&self) -> Result<()> {
        let (below, service) = (&*self.ring.below, &*self.ring.service);
        for found in &self.found {
            let name = found.record.name;
            let is_current = found.record.wrapped.by == service.current();
            if is_current {
                self.delete_lower(found, found.number).await?;
                continue;
            }
            let number = found.highest.checked_add(1).ok_or_else(|| EncryptionError::Damaged {
                path: name.path(found.highest),
                detail: "there is no higher number".to_owned(),
            })?;
            let record = KeyRecord {
                wrapped: wrap(service, &found.key, name, (self.ring.root, found.record.is_fresh)).await?,
                ..found.record.clone()
            };
            match below.put_if_absent(&name.path(number), record.encode().into()).await {
                Ok(()) => {
                    self.ring.note(found, number, true);
                    self.delete_lower(found, number).await?;
                }
                // Another server wraps it as well, and deletes the others.
                Err(StorageError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Deletes the files of a key below the one with this number, which was read or written completely.
    async fn delete_lower(&self, found: &Found, number: u32) -> Result<()> {
        let name = found.record.name;
        let all = found.others.iter().cloned().chain([name.path(found.number)]);
        let lower: Vec<String> = all.filter(|path| *path < name.path(number)).collect();
        if lower.is_empty() {
            return Ok(());
        }
        let below = &*self.ring.below;
        below.sync_file(&name.path(number)).await?;
        below.confirm_owner().await?;
        Ok(below.delete_all(&lower).await?)
    }
}

/// The numbers of the files of each key, highest first.
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
    }
    Ok(numbers)
}

/// Reads and unwraps all keys of a root.
async fn read_all(below: &dyn Storage, service: &dyn KeyService) -> Result<Vec<Found>> {
    let listed = below.list(DIRECTORY).await?;
    let numbers = numbers_of(listed.iter().map(|file| &file.path[..]))?;
    let reads = numbers.into_iter().map(|(name, numbers)| async move {
        match read_one(below, service, name, numbers).await {
            // Rotated since all were listed, which takes a while where there are many.
            Err(EncryptionError::Storage(StorageError::NotFound { .. })) => {
                let found = list_and_read(below, service, name).await?;
                found.ok_or_else(|| EncryptionError::Missing { path: name.prefix() })
            }
            read => read,
        }
    });
    futures::stream::iter(reads)
        .buffered(READ_CONCURRENTLY)
        .try_collect()
        .await
}

/// Reads and unwraps a key; `None` if it has no files. A server that rotates keys writes a new file, and deletes the others: they
/// are listed again when one of them has gone.
async fn list_and_read(below: &dyn Storage, service: &dyn KeyService, name: KeyName) -> Result<Option<Found>> {
    let mut races = 0..RACES_MAX;
    loop {
        let listed = below.list(&name.prefix()).await?;
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

/// Reads and unwraps a key by the best of its files: the one with the highest number that can be.
async fn read_one(below: &dyn Storage, service: &dyn KeyService, name: KeyName, numbers: Vec<u32>) -> Result<Found> {
    let highest = numbers.first().copied().unwrap_or_default();
    let mut first_error = None;
    for number in numbers.iter().copied() {
        match unwrap_file(below, service, name, number).await {
            Ok((record, key)) => {
                let others = numbers.iter().filter(|other| **other != number);
                let others = others.map(|other| name.path(*other)).collect();
                return Ok(Found {
                    record,
                    key,
                    number,
                    highest,
                    others,
                });
            }
            // Its network may be down; an older file would be found by chance.
            Err(EncryptionError::Storage(error)) if !matches!(error, StorageError::NotFound { .. }) => {
                return Err(error.into());
            }
            // The same of the key service.
            Err(EncryptionError::Key {
                path,
                error: error @ KeyError::Failed(_),
            }) => return Err(EncryptionError::Key { path, error }),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(EncryptionError::Missing { path: name.prefix() }))
}

async fn unwrap_file(
    below: &dyn Storage,
    service: &dyn KeyService,
    name: KeyName,
    number: u32,
) -> Result<(KeyRecord, DataKey)> {
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
    let key = service.unwrap(&record.wrapped, &context).await;
    let key = key.map_err(|error| EncryptionError::Key { path, error })?;
    Ok((record, key))
}

/// Makes the key of the root, unless another server is faster.
async fn make_first(below: &dyn Storage, service: &dyn KeyService, random: &dyn RandomBytes) -> Result<()> {
    let listed = below.list("").await?;
    let is_fresh = listed.iter().all(|file| is_plain(&file.path));
    let mut root = [0; 16];
    fill(random, &mut root, KeyName::Root)?;
    make(below, service, random, KeyName::Root, (root, is_fresh)).await?;
    Ok(())
}

/// Makes a key and its first file. `None` if that exists.
async fn make(
    below: &dyn Storage,
    service: &dyn KeyService,
    random: &dyn RandomBytes,
    name: KeyName,
    (root, is_fresh): ([u8; 16], bool),
) -> Result<Option<Found>> {
    let mut bytes = [0; KEY_BYTES];
    fill(random, &mut bytes, name)?;
    let key = DataKey::new(bytes);
    let record = KeyRecord {
        name,
        is_fresh,
        root,
        wrapped: wrap(service, &key, name, (root, is_fresh)).await?,
    };
    match below.put_if_absent(&name.path(1), Bytes::from(record.encode())).await {
        Ok(()) => Ok(Some(Found {
            record,
            key,
            number: 1,
            highest: 1,
            others: Vec::new(),
        })),
        Err(StorageError::AlreadyExists { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn wrap(
    service: &dyn KeyService,
    key: &DataKey,
    name: KeyName,
    (root, is_fresh): ([u8; 16], bool),
) -> Result<Wrapped> {
    let context = KeyRecord::context(name, is_fresh, &root);
    let wrapped = service.wrap(key, &context).await;
    // It is on another machine, or in another program.
    let wrapped = wrapped.and_then(|wrapped| match KeyRecord::takes(&wrapped) {
        true => Ok(wrapped),
        false => Err(KeyError::Failed(
            "the answer of the key service is no wrapped key".to_owned(),
        )),
    });
    wrapped.map_err(|error| EncryptionError::Key {
        path: name.path(1),
        error,
    })
}

fn fill(random: &dyn RandomBytes, bytes: &mut [u8], name: KeyName) -> Result<()> {
    random.fill(bytes).map_err(|message| EncryptionError::Key {
        path: name.path(1),
        error: KeyError::Failed(message),
    })
}

#[cfg(test)]
mod tests;
