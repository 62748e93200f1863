//! Wraps the data keys of a root again when the key-encryption key is another one.

use super::found::{ASKED_CONCURRENTLY, Found};
use super::{KeyRing, Result, wrap};
use crate::error::EncryptionError;
use crate::record::KeyRecord;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use stele_storage::StorageError;

/// A ring with the files that it was made of.
pub(super) struct Opened {
    pub(super) ring: Arc<KeyRing>,
    pub(super) found: Vec<Found>,
}

impl Opened {
    /// Wraps all keys by the current key-encryption key, and deletes the files that this made unnecessary.
    pub(super) async fn rotate(&self) -> Result<()> {
        let rotations: Vec<_> = self.found.iter().map(|found| self.rotate_one(found)).collect();
        let rotations = futures::stream::iter(rotations).buffer_unordered(ASKED_CONCURRENTLY);
        rotations.try_collect().await
    }

    async fn rotate_one(&self, found: &Found) -> Result<()> {
        let (below, service) = (&*self.ring.below, &*self.ring.service);
        let name = found.record.name;
        if found.is_current {
            return self.delete_lower(found, found.number).await;
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
                self.delete_lower(found, number).await
            }
            // Another server wraps it as well, and deletes the others.
            Err(StorageError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
