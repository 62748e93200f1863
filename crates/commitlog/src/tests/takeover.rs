//! A former owner that still deletes what it need not keep, while the new one reads.

use super::*;
use async_trait::async_trait;
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, FileInfo, ReadFile, StorageError};

/// A medium on which one file is gone after so many looks at it, the listing not counted.
struct Vanishing {
    inner: Arc<dyn Storage>,
    path: String,
    looks_left: Arc<AtomicU64>,
}

struct VanishingFile {
    inner: Arc<dyn ReadFile>,
    looks_left: Arc<AtomicU64>,
}

fn look(looks_left: &AtomicU64, path: &str) -> stele_storage::Result<()> {
    let before = looks_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    let gone = |_| StorageError::NotFound { path: path.to_owned() };
    before.map(drop).map_err(gone)
}

#[async_trait]
impl Storage for Vanishing {
    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        self.inner.create(path).await
    }
    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        let inner = self.inner.open(path).await?;
        if path != self.path {
            return Ok(inner);
        }
        look(&self.looks_left, path)?;
        let looks_left = self.looks_left.clone();
        Ok(Arc::new(VanishingFile { inner, looks_left }))
    }
    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        self.inner.put_if_absent(path, content).await
    }
    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        self.inner.list(prefix).await
    }
    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        self.inner.delete(path).await
    }
    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        self.inner.sync_file(path).await
    }
    async fn free_bytes(&self) -> stele_storage::Result<Option<u64>> {
        self.inner.free_bytes().await
    }
}

#[async_trait]
impl ReadFile for VanishingFile {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        look(&self.looks_left, self.path())?;
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
        let storage: Arc<dyn Storage> = Arc::new(Vanishing {
            inner: inner.clone(),
            path: paths[0].clone(),
            looks_left: Arc::new(AtomicU64::new(looks)),
        });
        assert_eq!(replayed(&storage).await.unwrap(), [1, 2], "after {looks} looks");
    }
}
