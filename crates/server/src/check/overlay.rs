//! A writable view of a storage that leaves the storage unchanged.
//!
//! Writes go to memory, and deletions are recorded. It serves components that open only for writing, and dry runs of a
//! repair. It holds all written bytes.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError};

/// The storage below, with changes on top.
pub struct Overlay {
    below: Arc<dyn Storage>,
    written: Arc<MemoryStorage>,
    deleted: Mutex<BTreeSet<String>>,
}

impl Overlay {
    /// A view without changes.
    pub fn over(below: Arc<dyn Storage>) -> Arc<Overlay> {
        Arc::new(Overlay {
            below,
            written: MemoryStorage::new(),
            deleted: Mutex::default(),
        })
    }

    fn deleted(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails when the storage below has the path.
    async fn check_free(&self, path: &str) -> Result<()> {
        let path = path.to_owned();
        if self.deleted().contains(&path) {
            return Ok(());
        }
        match self.below.open(&path).await {
            Ok(_) => Err(StorageError::AlreadyExists { path }),
            Err(StorageError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Storage for Overlay {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        self.check_free(path).await?;
        self.written.create(path).await
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        match self.written.open(path).await {
            Err(StorageError::NotFound { path }) if !self.deleted().contains(&path) => {}
            other => return other,
        }
        self.below.open(path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.check_free(path).await?;
        self.written.put_if_absent(path, content).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        let mut all = self.below.list(prefix).await?;
        {
            let deleted = self.deleted();
            all.retain(|file| !deleted.contains(&file.path));
        }
        all.extend(self.written.list(prefix).await?);
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.deleted().insert(path.to_owned());
        self.written.delete(path).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        self.open(path).await.map(drop)
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn keeps_appends(&self) -> bool {
        self.below.keeps_appends()
    }

    fn owner_epoch(&self) -> Option<u64> {
        self.below.owner_epoch()
    }
}
