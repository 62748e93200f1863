//! The data keys of one data root.
//!
//! Invariants:
//! * A key is durable in the root before a file that uses it is created.
//! * Nothing is written before every key that is there was unwrapped or found to be damaged, and that of the root was unwrapped: a
//!   wrong key-encryption key changes nothing.
//! * No key is made in the place of one that files are known to need.
//! * Of the files of one key the one with the highest number is never deleted, and a lower one only when a higher one is durable. A key that
//!   was made is used only if there is no file of another number afterwards. So several servers may make and rotate keys of a root that they
//!   share.

mod first;
mod found;
mod rotation;

use crate::cipher::{ContentKey, RandomBytes};
use crate::error::EncryptionError;
use crate::record::{DIRECTORY, KeyName, KeyRecord};
use crate::service::{DataKey, KEY_BYTES, KeyError, KeyService, Wrapped};
use bytes::Bytes;
use first::make_first;
use found::{AllKeys, Found, list_and_read, list_twice, read_all};
use parking_lot::RwLock;
use rotation::Opened;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_storage::{Storage, StorageError};

type Result<T> = std::result::Result<T, EncryptionError>;

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
    /// Keys of tables that were there, or that a file names, and that could not be had. If a new one took the place of a lost one,
    /// the files under the new one would be lost as soon as the operator restores the former one.
    needed: RwLock<HashSet<KeyName>>,
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
            let all = read_all(&*below, &*service).await?;
            if !all.are_none() {
                let ring = KeyRing::of(all, below, service, random)?;
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
        let all = read_all(&*below, &*service).await?;
        match all.are_none() {
            true => Ok(None),
            false => Ok(Some(KeyRing::of(all, below, service, random)?.ring)),
        }
    }

    /// Whether the root had no files when encryption began, so that all files are encrypted.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    fn of(
        all: AllKeys,
        below: Arc<dyn Storage>,
        service: Arc<dyn KeyService>,
        random: Arc<dyn RandomBytes>,
    ) -> Result<Opened> {
        let of_root = all.found.iter().find(|found| found.record.name == KeyName::Root);
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
            needed: RwLock::default(),
            making: tokio::sync::Mutex::default(),
        };
        let mut found = Vec::with_capacity(all.found.len());
        for key in all.found {
            match ring.check_root(&key) {
                Ok(()) => {
                    ring.note(&key, key.number, false);
                    found.push(key);
                }
                Err(error) => ring.set_aside(key.record.name, &error),
            }
        }
        for (name, error) in &all.unavailable {
            ring.set_aside(*name, error);
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
        self.needed.write().remove(&key.name);
        key
    }

    /// Goes on without a key that cannot be had.
    fn set_aside(&self, name: KeyName, error: &EncryptionError) {
        assert_ne!(name, KeyName::Root, "without the root's key nothing can be opened");
        tracing::error!("{error}; the files of its table cannot be read, and none is written, until it is restored");
        self.needed.write().insert(name);
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
            None => {
                self.needed.write().insert(name);
                Err(EncryptionError::Missing { path: name.prefix() })
            }
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

    /// The key of a name, which is made if it has no file.
    ///
    /// No server deletes the last file of a key. If somebody else does, the files under it can be read only by servers that have the key in
    /// memory, until it is restored. A server that has met such a file makes no other key. One that has met none cannot tell the table from a new
    /// one: its directory of files says nothing of tables, and to read the headers of all files would take a request for each. It makes another
    /// key, under which it loses nothing: its file is durable, and every server that has no key of the table takes this one. Servers that have
    /// the former one refuse files under the other one, until they start again. The restored key and the new one cannot both be in the root,
    /// so the files under one of both are lost. That is why operators keep `encryption/` in their backups of a root.
    async fn find_or_make(&self, name: KeyName) -> Result<Arc<RingKey>> {
        let _alone = self.making.lock().await;
        if let Some(key) = self.known(name) {
            return Ok(key);
        }
        for _ in 0..RACES_MAX {
            if let Some(key) = self.find(name).await? {
                return Ok(key);
            }
            if self.needed.read().contains(&name) {
                return Err(EncryptionError::Needed { path: name.prefix() });
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

/// Makes a key and its first file. `None` if the key exists.
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
        // Since the caller has found no key, one server may have made it and another one wrapped it again. The first number is free then.
        Ok(()) if has_others(below, name).await? => {
            below.delete(&name.path(1)).await?;
            Ok(None)
        }
        Ok(()) => Ok(Some(Found {
            record,
            key,
            is_current: true,
            number: 1,
            highest: 1,
            others: Vec::new(),
        })),
        Err(StorageError::AlreadyExists { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a key has files of other numbers than the first. Not one of a key that was just made: one with the highest number is never deleted.
async fn has_others(below: &dyn Storage, name: KeyName) -> Result<bool> {
    let listed = list_twice(below, &name.prefix()).await?;
    Ok(listed.iter().any(|file| file.path != name.path(1)))
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
