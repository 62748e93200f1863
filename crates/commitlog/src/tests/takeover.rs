//! Tests of a former owner that deletes segments while the new one reads them.

use super::*;
use async_trait::async_trait;
use std::sync::atomic::AtomicBool;
use stele_storage::memory::MemoryStorage;
use stele_storage::{FileInfo, ReadFile, StorageError};

/// A storage on which one file is gone after a number of accesses to it, the listing not counted.
struct Vanishing {
    inner: Arc<dyn Storage>,
    path: String,
    looks: Arc<Looks>,
    /// Whether listings show it for good.
    stays_listed: bool,
}

struct VanishingFile {
    inner: Arc<dyn ReadFile>,
    looks: Arc<Looks>,
}

#[derive(Default)]
struct Looks {
    left: AtomicU64,
    gone: AtomicBool,
}

impl Looks {
    fn look(&self, path: &str) -> stele_storage::Result<()> {
        let take = |left: u64| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| {
            self.gone.store(true, Ordering::Relaxed);
            StorageError::NotFound { path: path.to_owned() }
        })
    }
}

#[async_trait]
impl stele_storage::Layer for Vanishing {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        let inner = self.inner.open(path).await?;
        if path != self.path {
            return Ok(inner);
        }
        self.looks.look(path)?;
        let looks = self.looks.clone();
        Ok(Arc::new(VanishingFile { inner, looks }))
    }
    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        let mut files = self.inner.list(prefix).await?;
        if self.looks.gone.load(Ordering::Relaxed) && !self.stays_listed {
            files.retain(|file| file.path != self.path);
        }
        Ok(files)
    }
}

#[async_trait]
impl ReadFile for VanishingFile {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        self.looks.look(self.path())?;
        self.inner.read_at(offset, len).await
    }
    fn try_read_at(&self, _: u64, _: usize) -> Option<stele_storage::Result<Bytes>> {
        None
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn path(&self) -> &str {
        self.inner.path()
    }
}

#[tokio::test]
async fn a_segment_deleted_while_the_log_is_read_is_left_out() {
    let inner: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&inner, &Numbers::default(), 1, Vec::new());
    for n in 0..3 {
        log.write(n, Durability::Sync).await.unwrap();
    }
    let paths = segments(&inner).await;
    assert_eq!(paths.len(), 3);
    // Before it is opened, before its header is read, before its groups are.
    for looks in 0..3 {
        let storage = vanishing(&inner, &paths[0], looks, false);
        assert_eq!(replayed(&storage).await.unwrap(), [1, 2], "after {looks} looks");
    }
    // It is listed and cannot be opened: the storage is at fault.
    let storage = vanishing(&inner, &paths[0], 0, true);
    let error = replayed(&storage).await.unwrap_err();
    assert!(error.to_string().contains("lists the segment"), "{error}");
}

fn vanishing(inner: &Arc<dyn Storage>, path: &str, looks: u64, stays_listed: bool) -> Arc<dyn Storage> {
    let looks = Looks {
        left: AtomicU64::new(looks),
        ..Looks::default()
    };
    Arc::new(Vanishing {
        inner: inner.clone(),
        path: path.to_owned(),
        looks: Arc::new(looks),
        stays_listed,
    })
}
