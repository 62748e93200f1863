//! Storage of a process that is killed after some changes: no later change happens.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_storage::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError};

/// Changes that are left, of all storages of a process.
#[derive(Clone)]
pub(super) struct Life(Arc<AtomicU64>);

impl Life {
    pub(super) fn of(changes: u64) -> Life {
        Life(Arc::new(AtomicU64::new(changes)))
    }

    /// Ends it: tasks of the process may still run.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn change(&self, path: &str) -> Result<()> {
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(1..) => Ok(()),
            _ => Err(StorageError::Io {
                path: path.to_owned(),
                operation: "change",
                message: "the process was killed".to_owned(),
            }),
        }
    }
}

/// A storage whose changes count, and end with the process.
pub(super) struct Mortal {
    inner: Arc<dyn Storage>,
    life: Life,
}

impl Mortal {
    pub(super) fn over(inner: &Arc<dyn Storage>, life: &Life) -> Arc<dyn Storage> {
        Arc::new(Mortal {
            inner: inner.clone(),
            life: life.clone(),
        })
    }
}

#[async_trait]
impl Storage for Mortal {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        self.life.change(path)?;
        let file = self.inner.create(path).await?;
        Ok(Box::new(MortalFile {
            file,
            life: self.life.clone(),
            path: path.to_owned(),
        }))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.inner.open(path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.life.change(path)?;
        self.inner.put_if_absent(path, content).await?;
        // The last one may be heard of or not.
        match self.life.is_over() {
            true => self.life.change(path),
            false => Ok(()),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.inner.list(prefix).await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.life.change(path)?;
        self.inner.delete(path).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        self.inner.sync_file(path).await
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        self.inner.free_bytes().await
    }
}

struct MortalFile {
    file: Box<dyn AppendFile>,
    life: Life,
    path: String,
}

#[async_trait]
impl AppendFile for MortalFile {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.life.change(&self.path)?;
        self.file.append(slices).await
    }

    async fn sync(&mut self) -> Result<()> {
        self.life.change(&self.path)?;
        self.file.sync().await
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}
