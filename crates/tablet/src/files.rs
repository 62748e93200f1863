//! The sstables a server has open, shared by the tablets that refer to them.
//!
//! A split leaves both children referring to the parent's files, so files are counted by references from *committed
//! manifests* over all tablets of the server. A file without any is obsolete; it is deleted when no reader holds it any
//! more. A crash in between leaves an orphan, which the sweep at start finds.

use crate::error::{Result, TabletError};
use crate::manifest::FileRef;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stele_sstable::{Cache, Sstable};
use stele_storage::Storage;
use stele_types::FileId;

/// Opens, counts and deletes sstables.
pub struct FileRegistry {
    storage: Arc<dyn Storage>,
    cache: Arc<Cache>,
    /// Server epoch: the upper half of new file ids.
    epoch: u32,
    next: AtomicU32,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    files: BTreeMap<FileId, Entry>,
    obsolete: Vec<(FileId, Option<Arc<Sstable>>)>,
}

struct Entry {
    sstable: Arc<Sstable>,
    references: u32,
}

impl FileRegistry {
    /// A registry that names new files under a server epoch no earlier process used.
    pub fn new(storage: Arc<dyn Storage>, cache: Arc<Cache>, epoch: u32) -> Self {
        FileRegistry {
            storage,
            cache,
            epoch,
            next: AtomicU32::new(1),
            inner: Mutex::default(),
        }
    }

    /// A new file id.
    pub fn allocate(&self) -> FileId {
        FileId::new(self.epoch, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The medium.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The file, opened if it is not, with one more reference.
    pub async fn acquire(&self, file: FileId) -> Result<Arc<Sstable>> {
        if let Some(entry) = self.inner.lock().files.get_mut(&file) {
            entry.references += 1;
            return Ok(entry.sstable.clone());
        }
        let reader = self.storage.open(&FileRef::path(file)).await?;
        let sstable = Sstable::open(reader, file, self.cache.clone()).await?;
        let mut inner = self.inner.lock();
        // Somebody else may have opened it meanwhile.
        let entry = inner.files.entry(file).or_insert(Entry { sstable, references: 0 });
        entry.references += 1;
        Ok(entry.sstable.clone())
    }

    /// Gives one reference back; the last one makes the file obsolete.
    pub fn release(&self, file: FileId) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.files.get_mut(&file) else {
            return;
        };
        entry.references -= 1;
        if entry.references == 0
            && let Some(entry) = inner.files.remove(&file)
        {
            inner.obsolete.push((file, Some(entry.sstable)));
        }
    }

    /// Notes a file that was written but never referred to.
    pub fn discard(&self, file: FileId) {
        self.inner.lock().obsolete.push((file, None));
    }

    /// Deletes obsolete files that no reader holds; how many.
    pub async fn delete_obsolete(&self) -> Result<usize> {
        let held = |sstable: &Option<Arc<Sstable>>| sstable.as_ref().is_some_and(|s| Arc::strong_count(s) > 1);
        let unheld: Vec<(FileId, Option<Arc<Sstable>>)> = {
            let mut inner = self.inner.lock();
            let (held, unheld) = std::mem::take(&mut inner.obsolete)
                .into_iter()
                .partition(|(_, s)| held(s));
            inner.obsolete = held;
            unheld
        };
        let mut deleted = 0;
        let mut failure = None;
        for (file, sstable) in unheld {
            match self.storage.delete(&FileRef::path(file)).await {
                Ok(()) => {
                    self.cache.remove_file(file.0);
                    deleted += 1;
                }
                Err(error) => {
                    self.inner.lock().obsolete.push((file, sstable));
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(deleted), |e| Err(e.into()))
    }

    /// At start: deletes every sstable that no manifest refers to; how many. Files whose names we would not give stay.
    pub async fn sweep(&self, referenced: &BTreeSet<FileId>) -> Result<usize> {
        let mut deleted = 0;
        for info in self.storage.list("sst/").await? {
            let Some(id) = FileRef::parse_path(&info.path) else {
                continue;
            };
            if !referenced.contains(&id) {
                self.storage.delete(&info.path).await.map_err(TabletError::from)?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Number of open files, and the bytes their indexes and filters pin.
    pub fn open_files(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (
            inner.files.len(),
            inner.files.values().map(|e| e.sstable.pinned_bytes()).sum(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_storage::memory::MemoryStorage;

    #[tokio::test]
    async fn the_sweep_takes_only_files_we_named() {
        let storage = MemoryStorage::new();
        let kept = [
            FileRef::path(FileId(0xa)),
            "sst/000000000000000B.sst".to_owned(),
            "sst/b.sst".to_owned(),
        ];
        for path in kept.iter().chain([&FileRef::path(FileId(0xb))]) {
            storage
                .put_if_absent(path, bytes::Bytes::new())
                .await
                .expect("a new medium");
        }
        let registry = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
        let deleted = registry
            .sweep(&BTreeSet::from([FileId(0xa)]))
            .await
            .expect("memory does not fail");
        assert_eq!(deleted, 1);
        let left = storage.list("sst/").await.expect("memory does not fail");
        let mut left: Vec<String> = left.into_iter().map(|info| info.path).collect();
        left.sort_by_key(|path| kept.iter().position(|k| k == path));
        assert_eq!(left, kept);
    }
}
