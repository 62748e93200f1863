//! Owner records and seals as objects; the protocol is that of [`stele_storage::remote::owner`].
//!
//! A record is an object of its own. A growing file is sealed by an empty part under the number that follows its last one:
//! whoever of the old owner's append and the seal comes second finds the number taken.

use crate::Shared;
use crate::growing::{self, Parts};
use crate::store::Store;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use stele_storage::remote::owner::{self, DIRECTORY, Records};
use stele_storage::{Result, StorageError};

/// Seals put at once.
const SEALS_AT_ONCE: usize = 16;

#[async_trait]
impl Records for Store {
    async fn records(&self) -> Result<Vec<String>> {
        Ok(self.list(DIRECTORY).await?.into_iter().map(|(key, _)| key).collect())
    }

    async fn make_record(&self, key: &str, content: Bytes) -> Result<()> {
        self.put_new(key, &[content]).await
    }

    async fn has_record(&self, key: &str) -> Result<bool> {
        match self.head(key).await {
            Ok(_) => Ok(true),
            Err(StorageError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_records(&self, keys: &[String]) -> Result<()> {
        self.delete_many(keys).await
    }
}

/// Says `Fenced` when somebody else owns the prefix now. To be asked after a growing file was made.
pub(crate) async fn verify(shared: &Shared, path: &str) -> Result<()> {
    owner::verify(&shared.store, &shared.fence, shared.epoch, path).await
}

/// Seals every growing file, and removes what is left of deleted ones.
pub(crate) async fn seal_all(store: &Store) -> Result<()> {
    let mut files: BTreeMap<String, Vec<(u32, u64)>> = BTreeMap::new();
    for directory in growing::DIRECTORIES {
        for (key, len) in store.list(directory).await? {
            if let Some((path, number)) = growing::parse_part(&key) {
                files.entry(path.to_owned()).or_default().push((number, len));
            }
        }
    }
    let seals = files.into_iter().map(|(path, parts)| async move {
        let parts = Parts::new(parts);
        match parts.is_file() {
            true => growing::seal(store, &path, parts.next()).await,
            false => store.delete_many(&parts.keys(&path)).await,
        }
    });
    futures::stream::iter(seals)
        .buffer_unordered(SEALS_AT_ONCE)
        .try_collect::<()>()
        .await
}
