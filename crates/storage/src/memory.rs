//! Files in memory, for tests and tools. Nothing survives the process, so `sync` does nothing.

use crate::writer::WriterLife;
use crate::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError, check_path, check_range};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a file: growing while written, shared with readers once read. A file that is read and appended to in
/// turns is copied each time; only tests do that.
#[derive(Debug)]
pub(crate) enum Content {
    Growing(Vec<u8>),
    Shared(Bytes),
}

impl Content {
    pub(crate) fn len(&self) -> usize {
        match self {
            Content::Growing(bytes) => bytes.len(),
            Content::Shared(bytes) => bytes.len(),
        }
    }

    /// The bytes, mutable.
    pub(crate) fn growing(&mut self) -> &mut Vec<u8> {
        if let Content::Shared(bytes) = self {
            *self = Content::Growing(Vec::from(std::mem::take(bytes)));
        }
        match self {
            Content::Growing(bytes) => bytes,
            Content::Shared(_) => unreachable!("converted above"),
        }
    }

    /// The bytes, shareable.
    pub(crate) fn shared(&mut self) -> Bytes {
        if let Content::Growing(bytes) = self {
            *self = Content::Shared(Bytes::from(std::mem::take(bytes)));
        }
        match self {
            Content::Shared(bytes) => bytes.clone(),
            Content::Growing(_) => unreachable!("converted above"),
        }
    }
}

type Files = BTreeMap<String, Arc<Mutex<Content>>>;

/// Files in memory.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    files: Mutex<Files>,
    unreadable: Mutex<BTreeMap<String, Vec<Range<u64>>>>,
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> Arc<MemoryStorage> {
        Arc::new(MemoryStorage::default())
    }

    /// Makes reads of these bytes of a file fail like reads of a bad sector, for readers opened from now on.
    pub fn make_unreadable(&self, path: &str, bytes: Range<u64>) {
        self.unreadable.lock().entry(path.to_owned()).or_default().push(bytes);
    }

    /// Makes the file readable again.
    pub fn make_readable(&self, path: &str) {
        self.unreadable.lock().remove(path);
    }

    fn insert(&self, path: &str, content: Content) -> Result<Arc<Mutex<Content>>> {
        check_path(path)?;
        let mut files = self.files.lock();
        if files.contains_key(path) {
            return Err(StorageError::AlreadyExists { path: path.to_owned() });
        }
        let content = Arc::new(Mutex::new(content));
        files.insert(path.to_owned(), Arc::clone(&content));
        Ok(content)
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        let content = self.insert(path, Content::Growing(Vec::new()))?;
        Ok(Box::new(MemoryAppend {
            path: path.to_owned(),
            content,
            life: WriterLife::new(),
            len: 0,
        }))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        match self.files.lock().get(path) {
            Some(content) => Ok(Arc::new(MemoryRead {
                path: path.to_owned(),
                content: content.lock().shared(),
                unreadable: self.unreadable.lock().get(path).cloned().unwrap_or_default(),
            })),
            None => Err(StorageError::NotFound { path: path.to_owned() }),
        }
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.insert(path, Content::Shared(content)).map(drop)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        let files = self.files.lock();
        let matching = files
            .range(prefix.to_owned()..)
            .take_while(|(path, _)| path.starts_with(prefix));
        let info = |(path, content): (&String, &Arc<Mutex<Content>>)| FileInfo {
            path: path.clone(),
            len: content.lock().len() as u64,
        };
        Ok(matching.map(info).collect())
    }

    async fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        self.files.lock().remove(path);
        self.unreadable.lock().remove(path);
        Ok(())
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        self.open(path).await.map(drop)
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

struct MemoryAppend {
    path: String,
    content: Arc<Mutex<Content>>,
    life: WriterLife,
    len: u64,
}

#[async_trait]
impl AppendFile for MemoryAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.life.begin_append(&self.path)?;
        let mut content = self.content.lock();
        for slice in slices {
            content.growing().extend_from_slice(slice);
            self.len += slice.len() as u64;
        }
        debug_assert_eq!(
            content.len() as u64,
            self.len,
            "a file has the bytes of its only writer"
        );
        self.life.succeeded();
        Ok(())
    }

    fn try_append(&mut self, slices: &[&[u8]]) -> Option<Result<()>> {
        if let Err(error) = self.life.begin_append(&self.path) {
            return Some(Err(error));
        }
        let mut content = self.content.lock();
        for slice in slices {
            content.growing().extend_from_slice(slice);
            self.len += slice.len() as u64;
        }
        debug_assert_eq!(
            content.len() as u64,
            self.len,
            "a file has the bytes of its only writer"
        );
        self.life.succeeded();
        Some(Ok(()))
    }

    async fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}

struct MemoryRead {
    path: String,
    content: Bytes,
    unreadable: Vec<Range<u64>>,
}

impl MemoryRead {
    fn slice(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_range(&self.path, offset, len, self.len())?;
        let end = offset + len as u64;
        match self.unreadable.iter().find(|bad| bad.start < end && offset < bad.end) {
            Some(bad) => Err(StorageError::Unreadable {
                path: self.path.clone(),
                offset: bad.start.max(offset),
                message: "made unreadable".to_owned(),
            }),
            None => Ok(self.content.slice(offset as usize..offset as usize + len)),
        }
    }
}

#[async_trait]
impl ReadFile for MemoryRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.slice(offset, len)
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        match self.slice(offset, len) {
            // Bytes that the device cannot read are in no page cache.
            Err(StorageError::Unreadable { .. }) => None,
            read => Some(read),
        }
    }

    fn reads_from_memory(&self) -> bool {
        true
    }

    fn len(&self) -> u64 {
        self.content.len() as u64
    }

    fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn conforms() {
        crate::conformance::run_all(|| MemoryStorage::new()).await;
    }
}
