//! The sstables a server has open, shared by the tablets that refer to them.
//!
//! A split leaves both children referring to the parent's files, so files are counted by references from *committed
//! manifests* over all tablets of the server. A file without any is obsolete; it is deleted when no reader holds it any
//! more. A crash in between leaves an orphan, which the sweep at start finds.
//!
//! A file that was intact once and cannot be read any more is *damaged*, and held nevertheless ([`Opening::EvenDamaged`]):
//! the rest of the tablet goes on, and whoever needs the file gets an error that names it. While a manifest cannot be
//! read, nobody knows which files it refers to; then no file of an earlier process is deleted
//! ([`FileRegistry::keep_former_files`]).

use crate::error::{Result, TabletError};
use crate::manifest::FileRef;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use stele_sstable::{Cache, Sstable, SstableError};
use stele_storage::Storage;
use stele_types::FileId;

/// Bytes of a new file unless said otherwise. Smaller ones would make more files to keep open; larger ones more to rewrite
/// where little has changed, and more space for that.
const FILE_BYTES: u64 = 64 << 20;

/// Opens, counts and deletes sstables.
pub struct FileRegistry {
    storage: Arc<dyn Storage>,
    cache: Arc<Cache>,
    /// Server epoch: the upper half of new file ids.
    epoch: u32,
    next: AtomicU32,
    /// Bytes after which a new file is ended.
    file_bytes: u64,
    /// Files of earlier epochs are not deleted.
    keeps_former: AtomicBool,
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

/// What to make of a file whose content is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It is an error: for files that have just been written.
    Intact,
    /// It is held as damaged: for files that an earlier process wrote.
    EvenDamaged,
}

/// A file of which something was found damaged.
#[derive(Clone, Debug)]
pub struct DamagedFile {
    /// Which file.
    pub file: FileId,
    /// The first damage met: names file and offset.
    pub error: SstableError,
    /// How often damage in it was met.
    pub times_met: u64,
}

impl FileRegistry {
    /// A registry that names new files under a server epoch no earlier process used.
    pub fn new(storage: Arc<dyn Storage>, cache: Arc<Cache>, epoch: u32) -> Self {
        FileRegistry {
            storage,
            cache,
            epoch,
            next: AtomicU32::new(1),
            file_bytes: FILE_BYTES,
            keeps_former: AtomicBool::new(false),
            inner: Mutex::default(),
        }
    }

    /// The same registry with another size of new files.
    pub fn with_file_bytes(mut self, file_bytes: u64) -> Self {
        self.file_bytes = file_bytes;
        self
    }

    /// Bytes after which a new file is ended.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
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
    pub async fn acquire(&self, file: FileId, opening: Opening) -> Result<Arc<Sstable>> {
        if let Some(entry) = self.inner.lock().files.get_mut(&file) {
            entry.references += 1;
            return Ok(entry.sstable.clone());
        }
        let path = FileRef::path(file);
        let reader = self.storage.open(&path).await;
        let sstable = match opening {
            Opening::Intact => Sstable::open(reader?, file, self.cache.clone()).await?,
            Opening::EvenDamaged => Sstable::open_or_damaged(reader, &path, file, self.cache.clone()).await?,
        };
        let mut inner = self.inner.lock();
        // Somebody else may have opened it meanwhile.
        let entry = inner.files.entry(file).or_insert(Entry { sstable, references: 0 });
        entry.references += 1;
        Ok(entry.sstable.clone())
    }

    /// The open files of which something was found damaged.
    pub fn damaged(&self) -> Vec<DamagedFile> {
        let inner = self.inner.lock();
        let damaged = inner.files.iter().filter_map(|(file, entry)| {
            let damage = entry.sstable.damage();
            Some(DamagedFile {
                file: *file,
                error: damage.first()?.clone(),
                times_met: damage.times_met(),
            })
        });
        damaged.collect()
    }

    /// From now on deletes no file that an earlier process wrote. What becomes obsolete of those is an orphan, for a start
    /// that can read every manifest.
    pub fn keep_former_files(&self) {
        self.keeps_former.store(true, Ordering::Release);
    }

    fn is_kept(&self, file: FileId) -> bool {
        self.keeps_former.load(Ordering::Acquire) && file < FileId::new(self.epoch, 0)
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
        for (file, sstable) in unheld.into_iter().filter(|(file, _)| !self.is_kept(*file)) {
            // Closed before it is deleted: a file system gives back the space when the last of both happens, which may take
            // long (100 ms for 64 MB that are discarded on the device). The storage deletes where that harms nobody.
            drop(sstable);
            match self.storage.delete(&FileRef::path(file)).await {
                Ok(()) => {
                    self.cache.remove_file(file.0);
                    deleted += 1;
                }
                Err(error) => {
                    self.inner.lock().obsolete.push((file, None));
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(deleted), |e| Err(e.into()))
    }

    /// At start: deletes every sstable that no manifest refers to; how many. Files whose names we would not give stay.
    pub async fn sweep(&self, referenced: &BTreeSet<FileId>) -> Result<usize> {
        let mut deleted = 0;
        let files = self.storage.list("sst/").await?;
        self.storage.confirm_owner().await?;
        for info in files {
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
