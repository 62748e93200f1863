//! The registry of a server's open sstables and value files, shared by its tablets.
//!
//! A split leaves both children with references to the parent's files, so a file has one count of references from *committed
//! manifests* over all tablets of the server. A file without any is obsolete. It is deleted when no reader holds it any
//! more, a few at a time. A crash in between leaves an orphan, which the sweep at start finds.
//!
//! A file that was intact once and cannot be read any more is *damaged*, and held nevertheless
//! ([`Opening::EvenDamaged`]). The rest of the tablet is served, and a read that needs the file gets an error that names
//! it. While a manifest cannot be read, its files are unknown; then no file of an earlier process is deleted
//! ([`FileRegistry::keep_former_files`]).
//!
//! Where several servers share the data root ([`Ownership::Shared`]), tablets of other servers may refer to the same file.
//! Then a server deletes only files that it made and no manifest has named. The others are left to the
//! [`sweep`](crate::sweep), to which [`FileRegistry::in_use`] reports.
//!
//! Invariants:
//! * A registered file has at least one reference; an obsolete file has none.
//! * A file that a running job may still commit has a number at or above the job's first.
//! * `obsolete_bytes` is the sum over the obsolete files that this process will delete.

use crate::error::{Result, TabletError};
use crate::holders::{Holder, Holders};
use crate::manifest::{FileRef, StoredFile, ValueLink};
use crate::readahead::ScanAhead;
use crate::values::SEPARATE_BYTES_MIN;
use crate::values::file::ValueFile;
use crate::values::load::ValueMemory;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use stele_memory::Pool;
use stele_sstable::{BloomMemory, Cache, Sstable, SstableError};
use stele_storage::Storage;
use stele_types::{FileId, FilesInUse};
use tokio::sync::{Notify, Semaphore};

/// Bytes of a new file unless said otherwise. Smaller ones would make more files to keep open; larger ones more to rewrite
/// where little has changed, and more space for that.
const FILE_BYTES: u64 = 64 << 20;

/// Files deleted in one batch. A directory is made durable once for all of them, and the space of the first is not to
/// wait for the last of hundreds.
const DELETED_PER_BATCH: usize = 16;

/// Files swept concurrently: as many as object stores delete in one request.
const SWEPT_CONCURRENTLY: usize = 1_000;

/// Files that all tablets together open concurrently. A start opens thousands; each is a request to an object store that
/// takes 20 to 50 ms, or a few system calls. A store takes thousands of requests a second; each costs us a connection
/// and 64 KiB.
const OPENED_CONCURRENTLY: usize = 256;

/// Memory for values on their way to readers unless said otherwise.
const VALUE_MEMORY_BYTES: usize = 64 << 20;

/// Read-ahead bytes of all scans together unless configured otherwise.
const SCAN_AHEAD_BYTES: usize = 64 << 20;

/// Whether other servers have tablets in the same data root, and with them references to the same files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// One server has all tablets, so its counts of references are complete.
    #[default]
    Sole,
    /// Several servers have tablets. No server knows all references.
    Shared,
}

/// A flush or compaction. The files that it makes may be committed until it is dropped.
pub(crate) struct Job<'a> {
    registry: &'a FileRegistry,
    first: u32,
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.registry.end_job(self.first);
    }
}

/// The same for files from outside of the data root: they are named by a snapshot before it is dropped, or never.
pub struct ImportJob {
    registry: Arc<FileRegistry>,
    first: u32,
}

impl Drop for ImportJob {
    fn drop(&mut self) {
        self.registry.end_job(self.first);
    }
}

/// Opens, counts and deletes sstables and value files.
pub struct FileRegistry {
    storage: Arc<dyn Storage>,
    ownership: Ownership,
    /// Running jobs, by the number of the first file that each may have made.
    jobs: Mutex<BTreeMap<u32, u32>>,
    cache: Arc<Cache>,
    /// Server epoch: the upper half of new file ids.
    epoch: u32,
    next: AtomicU32,
    /// Bytes after which a new file is ended.
    file_bytes: u64,
    /// Values from this size on go to value files.
    separate_bytes: usize,
    value_memory: ValueMemory,
    /// Bytes that all sources of one flush or compaction may read ahead together.
    job_readahead_bytes: usize,
    scan_ahead: ScanAhead,
    /// Memory for bloom filters of open files.
    filters: Arc<BloomMemory>,
    /// An opening of a file waits for a turn.
    opening: Semaphore,
    /// Woken when a file becomes obsolete.
    noted: Notify,
    /// Bytes of those that are not deleted yet.
    obsolete_bytes: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    files: BTreeMap<FileId, Entry>,
    obsolete: Vec<Obsolete>,
    holders: Holders,
}

impl Inner {
    /// Registers an obsolete file again that is still open, without a reference; its bytes. A reader may hold it, so it must
    /// not be opened a second time.
    fn revive(&mut self, file: FileId) -> u64 {
        let Some(at) = self.obsolete.iter().position(|it| it.file.id() == file) else {
            return 0;
        };
        debug_assert!(!self.files.contains_key(&file), "an obsolete file has no reference");
        let Obsolete { open, bytes, .. } = self.obsolete.swap_remove(at);
        if let Some(open) = open {
            self.files.insert(file, Entry { open, references: 0 });
        }
        bytes
    }
}

/// A file that nothing refers to.
struct Obsolete {
    file: StoredFile,
    /// The open file, which readers may hold.
    open: Option<OpenFile>,
    /// Of the file, as far as that is known.
    bytes: u64,
    /// A manifest has named it, or may have.
    was_named: bool,
}

impl Obsolete {
    fn is_held(&self) -> bool {
        self.open.as_ref().is_some_and(OpenFile::is_shared)
    }
}

struct Entry {
    open: OpenFile,
    references: u32,
}

/// An open file of either kind.
enum OpenFile {
    Sstable(Arc<Sstable>),
    Values(Arc<ValueFile>),
}

impl OpenFile {
    fn stored(&self) -> StoredFile {
        match self {
            OpenFile::Sstable(sstable) => StoredFile::Sstable(sstable.file_id()),
            OpenFile::Values(values) => StoredFile::Values(values.id()),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            OpenFile::Sstable(sstable) => sstable.file_bytes(),
            OpenFile::Values(values) => values.bytes(),
        }
    }

    /// Somebody else has it.
    fn is_shared(&self) -> bool {
        match self {
            OpenFile::Sstable(sstable) => Arc::strong_count(sstable) > 1,
            OpenFile::Values(values) => Arc::strong_count(values) > 1,
        }
    }

    /// The device could not read the parts that opening needs.
    fn is_unopened(&self) -> bool {
        match self {
            OpenFile::Sstable(sstable) => sstable.is_unopened(),
            OpenFile::Values(values) => values.is_unopened(),
        }
    }

    /// It is not a placeholder for a file that cannot be opened.
    fn is_open(&self) -> bool {
        match self {
            OpenFile::Sstable(sstable) => sstable.damage().of_everything().is_none(),
            OpenFile::Values(values) => values.is_open(),
        }
    }

    /// The first damage found, and how often any was.
    fn damage(&self) -> Option<(SstableError, u64)> {
        match self {
            OpenFile::Sstable(sstable) => {
                let damage = sstable.damage();
                Some((damage.first()?, damage.times_met()))
            }
            OpenFile::Values(values) => values.damage(),
        }
    }
}

/// How to treat a file whose content has changed since it was written.
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
    pub file: StoredFile,
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
            ownership: Ownership::Sole,
            jobs: Mutex::default(),
            cache,
            epoch,
            next: AtomicU32::new(1),
            file_bytes: FILE_BYTES,
            separate_bytes: SEPARATE_BYTES_MIN,
            value_memory: ValueMemory::new(VALUE_MEMORY_BYTES),
            job_readahead_bytes: usize::MAX,
            scan_ahead: ScanAhead::new(SCAN_AHEAD_BYTES),
            filters: BloomMemory::unlimited(),
            opening: Semaphore::new(OPENED_CONCURRENTLY),
            noted: Notify::new(),
            obsolete_bytes: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    /// The same registry for a data root with this kind of owner.
    pub fn with_ownership(mut self, ownership: Ownership) -> Self {
        self.ownership = ownership;
        self
    }

    /// The cache of blocks and values.
    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Whether other servers may refer to the same files.
    pub fn ownership(&self) -> Ownership {
        self.ownership
    }

    /// Begins a job that makes files.
    pub(crate) fn begin_job(&self) -> Job<'_> {
        let first = self.first_of_job();
        Job { registry: self, first }
    }

    /// Begins an import of files.
    pub fn begin_import(self: &Arc<Self>) -> ImportJob {
        ImportJob {
            first: self.first_of_job(),
            registry: self.clone(),
        }
    }

    fn first_of_job(&self) -> u32 {
        let mut jobs = self.jobs.lock();
        let first = self.next.load(Ordering::Relaxed);
        *jobs.entry(first).or_default() += 1;
        first
    }

    fn end_job(&self, first: u32) {
        let mut jobs = self.jobs.lock();
        let count = jobs.get_mut(&first).expect("a job ends once");
        assert!(*count > 0, "jobs that begin at a number are counted");
        *count -= 1;
        if *count == 0 {
            jobs.remove(&first);
        }
    }

    /// The files that a sweep must leave alone. A file of this server that is not among them when this is called is
    /// named by a manifest by then, or never will be by one of this server.
    pub fn in_use(&self) -> FilesInUse {
        let jobs = self.jobs.lock();
        let next = self.next.load(Ordering::Relaxed);
        let first = jobs.first_key_value().map_or(next, |(first, _)| *first);
        assert!(first <= next, "a job makes files from the next number on");
        let settled_below = FileId::new(self.epoch, first);
        drop(jobs);
        let inner = self.inner.lock();
        let read = inner.obsolete.iter().filter(|it| it.is_held()).map(|it| it.file.id());
        let held = inner.files.keys().copied().chain(read);
        FilesInUse {
            settled_below,
            held: held.collect(),
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

    /// The same registry with another size of values that go to value files, and other memory for those on their way to
    /// readers.
    pub fn with_values(mut self, separate_bytes: usize, reservation: ValueMemory) -> Self {
        self.separate_bytes = separate_bytes;
        self.value_memory = reservation;
        self
    }

    /// The same registry with a bound on the read-ahead of all sources of one flush or compaction together.
    pub fn with_job_readahead(mut self, bytes: usize) -> Self {
        self.job_readahead_bytes = bytes;
        self
    }

    /// Bytes that all sources of one flush or compaction may read ahead together.
    pub fn job_readahead_bytes(&self) -> usize {
        self.job_readahead_bytes
    }

    /// The same registry with the parts of a pool for values, readahead and bloom filters. Files without memory for their
    /// filters are read without them.
    pub fn with_pool(mut self, pool: &Pool) -> Self {
        self.value_memory = ValueMemory::of(pool);
        self.scan_ahead = ScanAhead::of(pool);
        self.filters = BloomMemory::of(pool);
        self
    }

    /// The same registry with another size of values that go to value files.
    pub fn with_separate_bytes(mut self, bytes: usize) -> Self {
        self.separate_bytes = bytes;
        self
    }

    /// The same registry with a bound on the memory of bloom filters of open files. Files whose filters do not fit are read
    /// without them.
    pub fn with_bloom_memory(mut self, bytes: usize) -> Self {
        self.filters = BloomMemory::new(bytes);
        self
    }

    /// Memory for bloom filters of open files.
    pub fn bloom_memory(&self) -> &BloomMemory {
        &self.filters
    }

    /// The readahead budget of scans.
    pub fn scan_ahead(&self) -> &ScanAhead {
        &self.scan_ahead
    }

    /// Values from this size on go to value files.
    pub fn separate_bytes(&self) -> usize {
        self.separate_bytes
    }

    /// Memory for values on their way to readers.
    pub fn value_memory(&self) -> &ValueMemory {
        &self.value_memory
    }

    /// A new file id.
    pub fn allocate(&self) -> FileId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert_ne!(number, u32::MAX, "an epoch has file numbers left");
        FileId::new(self.epoch, number)
    }

    /// The storage backend.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The sstable, opened if it is not, with one more reference.
    pub async fn acquire(&self, reference: &FileRef, opening: Opening) -> Result<Arc<Sstable>> {
        let file = reference.id();
        let of = |open: &OpenFile| match open {
            OpenFile::Sstable(sstable) => Some(sstable.clone()),
            OpenFile::Values(_) => None,
        };
        if let Some(sstable) = self.acquire_open(file, of) {
            return Ok(sstable);
        }
        let path = FileRef::path(file);
        let _turn = self.opening.acquire().await.ok();
        let first = Sstable::read_first(reference.len);
        let reader = self.storage.open_known(&path, reference.len, first).await;
        let sstable = match opening {
            Opening::Intact => Sstable::open_within(reader?, file, self.cache.clone(), &self.filters).await?,
            Opening::EvenDamaged => {
                Sstable::open_or_damaged(reader, &path, file, self.cache.clone(), &self.filters).await?
            }
        };
        self.acquire_new(file, OpenFile::Sstable(sstable), of)
    }

    /// The value file of a link, opened if it is not, with one more reference.
    pub async fn acquire_values(&self, link: &ValueLink, opening: Opening) -> Result<Arc<ValueFile>> {
        let of = |open: &OpenFile| match open {
            OpenFile::Values(values) => Some(values.clone()),
            OpenFile::Sstable(_) => None,
        };
        if let Some(values) = self.acquire_open(link.id(), of) {
            return Ok(values);
        }
        let path = StoredFile::Values(link.id()).path();
        let _turn = self.opening.acquire().await.ok();
        let reader = self.storage.open_known(&path, link.len, ValueFile::READ_FIRST).await;
        let values = match opening {
            Opening::Intact => ValueFile::open(reader?, link.id()).await?,
            Opening::EvenDamaged => ValueFile::open_or_damaged(reader, &path, link.id()).await?,
        };
        self.acquire_new(link.id(), OpenFile::Values(Arc::new(values)), of)
    }

    fn acquire_open<T>(&self, file: FileId, of: impl Fn(&OpenFile) -> Option<T>) -> Option<T> {
        self.acquire_registered(&mut self.inner.lock(), file, &of)
    }

    /// One more reference to a file that has any, or that is obsolete and still open.
    fn acquire_registered<T>(
        &self,
        inner: &mut Inner,
        file: FileId,
        of: &impl Fn(&OpenFile) -> Option<T>,
    ) -> Option<T> {
        if !inner.files.contains_key(&file) {
            let bytes = inner.revive(file);
            let before = self.obsolete_bytes.fetch_sub(bytes, Ordering::Relaxed);
            assert!(before >= bytes, "a file that is taken up again was counted as obsolete");
        }
        let entry = inner.files.get_mut(&file)?;
        let open = of(&entry.open)?;
        entry.references += 1;
        Some(open)
    }

    fn acquire_new<T>(&self, file: FileId, open: OpenFile, of: impl Fn(&OpenFile) -> Option<T>) -> Result<T> {
        let mut inner = self.inner.lock();
        // Somebody else may have opened it meanwhile, and released it.
        if let Some(open) = self.acquire_registered(&mut inner, file, &of) {
            return Ok(open);
        }
        let entry = inner.files.entry(file).or_insert(Entry { open, references: 0 });
        let open = of(&entry.open).ok_or_else(|| TabletError::Corruption {
            path: Arc::from(entry.open.stored().path()),
            detail: "manifests name this file as an sstable and as a value file".to_owned(),
        })?;
        entry.references += 1;
        Ok(open)
    }

    /// The open files of which something was found damaged.
    pub fn damaged(&self) -> Vec<DamagedFile> {
        let inner = self.inner.lock();
        let damaged = inner.files.values().filter_map(|entry| {
            let (error, times_met) = entry.open.damage()?;
            Some(DamagedFile {
                file: entry.open.stored(),
                error,
                times_met,
            })
        });
        damaged.collect()
    }

    /// Open sstables that are damaged in their cells: blocks that a device cannot read are worth another attempt.
    pub fn damaged_sstables(&self) -> Vec<Arc<Sstable>> {
        let inner = self.inner.lock();
        let damaged = inner.files.values().filter_map(|entry| match &entry.open {
            OpenFile::Sstable(sstable) => sstable.damage().of_cells().map(|_| Arc::clone(sstable)),
            OpenFile::Values(_) => None,
        });
        damaged.collect()
    }

    /// Open value files of which the device could not read something when it was last asked: worth trying again, too.
    pub fn unread_values(&self) -> Vec<Arc<ValueFile>> {
        let inner = self.inner.lock();
        let unread = inner.files.values().filter_map(|entry| match &entry.open {
            OpenFile::Values(values) => values.is_unread().then(|| Arc::clone(values)),
            OpenFile::Sstable(_) => None,
        });
        unread.collect()
    }

    /// The files that are held, although the device could not read the parts that opening needs.
    pub fn unopened(&self) -> Vec<StoredFile> {
        let inner = self.inner.lock();
        let unopened = inner.files.values().filter(|entry| entry.open.is_unopened());
        unopened.map(|entry| entry.open.stored()).collect()
    }

    /// Tries once more to open such a file; whether it is open now. Tablets hold the placeholder until they acquire the
    /// file again ([`crate::Tablet::hold_opened`]).
    pub async fn open_again(&self, file: StoredFile) -> bool {
        let path = file.path();
        let _turn = self.opening.acquire().await.ok();
        let reader = self.storage.open(&path).await;
        let open = match file {
            StoredFile::Sstable(id) => {
                let sstable = Sstable::open_or_damaged(reader, &path, id, self.cache.clone(), &self.filters).await;
                sstable.ok().map(OpenFile::Sstable)
            }
            StoredFile::Values(id) => {
                let values = ValueFile::open_or_damaged(reader, &path, id).await;
                values.ok().map(|values| OpenFile::Values(Arc::new(values)))
            }
        };
        let Some(open) = open.filter(OpenFile::is_open) else {
            return false;
        };
        match self.inner.lock().files.get_mut(&file.id()) {
            Some(entry) if entry.open.is_unopened() => {
                entry.open = open;
                true
            }
            // Nothing refers to it any more.
            _ => false,
        }
    }

    /// Whether a file is held and open.
    pub(crate) fn is_open(&self, file: StoredFile) -> bool {
        let inner = self.inner.lock();
        inner.files.get(&file.id()).is_some_and(|entry| entry.open.is_open())
    }

    /// From now on deletes none of these: manifests name them that belong to no tablet of this server.
    pub fn keep(&self, files: BTreeSet<StoredFile>) {
        self.inner.lock().holders.keep(files);
    }

    /// From now on deletes no file that an earlier process wrote. Such a file becomes an orphan instead of obsolete, for a
    /// start that can read every manifest.
    pub fn keep_former_files(&self) {
        self.inner.lock().holders.keep_before(FileId::new(self.epoch, 0));
    }

    /// Counts one more snapshot reference to each file. The caller keeps a tablet that refers to them from changing its
    /// manifest meanwhile, or holds a snapshot that names them.
    pub fn hold(&self, files: impl IntoIterator<Item = StoredFile>) {
        let mut inner = self.inner.lock();
        files.into_iter().for_each(|file| inner.holders.hold(file));
    }

    /// Gives back references of a snapshot, with the bytes of each file. A file that nothing else needs becomes obsolete.
    pub fn let_go(&self, files: impl IntoIterator<Item = (StoredFile, u64)>) {
        let mut inner = self.inner.lock();
        // Readers may still hold a file that was obsolete before: then it is in the list.
        let listed: BTreeSet<FileId> = inner.obsolete.iter().map(|it| it.file.id()).collect();
        let mut noted = false;
        for (file, bytes) in files {
            let is_free = inner.holders.let_go(file) && inner.holders.holder(file).is_none();
            if !is_free || inner.files.contains_key(&file.id()) || listed.contains(&file.id()) {
                continue;
            }
            self.obsolete_bytes.fetch_add(bytes, Ordering::Relaxed);
            inner.obsolete.push(Obsolete {
                file,
                open: None,
                bytes,
                was_named: true,
            });
            noted = true;
        }
        drop(inner);
        if noted {
            self.noted.notify_one();
        }
    }

    /// A holder of a file, besides the tablets of this server.
    pub fn holder(&self, file: StoredFile) -> Option<Holder> {
        self.inner.lock().holders.holder(file)
    }

    /// An earlier process wrote it.
    fn is_former(&self, file: FileId) -> bool {
        file < FileId::new(self.epoch, 0)
    }

    /// Another server's file, or one that a manifest has named where servers share the data: the sweep deletes it.
    fn is_left_to_sweep(&self, obsolete: &Obsolete) -> bool {
        self.ownership == Ownership::Shared && (obsolete.was_named || self.is_former(obsolete.file.id()))
    }

    /// Gives one reference back; the last one makes the file obsolete.
    pub fn release(&self, file: StoredFile) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.files.get_mut(&file.id()) else {
            debug_assert!(false, "only acquired files are released");
            return;
        };
        assert!(entry.references > 0, "a registered file has a reference");
        entry.references -= 1;
        if entry.references == 0
            && let Some(entry) = inner.files.remove(&file.id())
        {
            self.note(&mut inner, file, Some(entry.open), true);
        }
    }

    /// Notes a file that was written but never referred to.
    pub fn discard(&self, file: StoredFile) {
        assert!(
            self.ownership == Ownership::Sole || file.id().epoch() == self.epoch,
            "a server discards files that it made"
        );
        self.note(&mut self.inner.lock(), file, None, false);
    }

    fn note(&self, inner: &mut Inner, file: StoredFile, open: Option<OpenFile>, was_named: bool) {
        debug_assert!(
            !inner.files.contains_key(&file.id()),
            "an obsolete file has no reference"
        );
        let bytes = open.as_ref().map_or(0, OpenFile::bytes);
        self.obsolete_bytes.fetch_add(bytes, Ordering::Relaxed);
        inner.obsolete.push(Obsolete {
            file,
            open,
            bytes,
            was_named,
        });
        self.noted.notify_one();
    }

    /// Waits until a file becomes obsolete, if none has since the last time.
    pub async fn obsolete_noted(&self) {
        self.noted.notified().await;
    }

    /// Bytes of obsolete files that are not deleted yet, because readers hold them or there was no time.
    pub fn obsolete_bytes(&self) -> u64 {
        self.obsolete_bytes.load(Ordering::Relaxed)
    }

    /// Deletes obsolete files that no reader holds; how many.
    pub async fn delete_obsolete(&self) -> Result<usize> {
        let mut deleted = 0;
        let mut failure = None;
        let mut unheld = self.take_unheld();
        while !unheld.is_empty() {
            let batch = unheld.drain(..unheld.len().min(DELETED_PER_BATCH));
            // Closed before they are deleted: a file system gives back the space when the last of both happens, which may
            // take long (100 ms for 64 MB that are discarded on the device). The storage deletes where that harms nobody.
            let batch: Vec<Obsolete> = batch.map(|it| Obsolete { open: None, ..it }).collect();
            let paths: Vec<String> = batch.iter().map(|it| it.file.path()).collect();
            let together = self.storage.delete_all(&paths).await.is_ok();
            for (obsolete, path) in batch.into_iter().zip(&paths) {
                let Obsolete { file, bytes, .. } = obsolete;
                // Where one cannot be deleted, the others shall be.
                let outcome = if together {
                    Ok(())
                } else {
                    self.storage.delete(path).await
                };
                match outcome {
                    Ok(()) => {
                        self.cache.remove_file(file.id().0);
                        let before = self.obsolete_bytes.fetch_sub(bytes, Ordering::Relaxed);
                        assert!(before >= bytes, "deleted files were counted as obsolete");
                        deleted += 1;
                    }
                    Err(error) => {
                        self.inner.lock().obsolete.push(obsolete);
                        failure = Some(error);
                    }
                }
            }
        }
        failure.map_or(Ok(deleted), |e| Err(e.into()))
    }

    /// The obsolete files that nobody holds, without those that are left to a later start or to the sweep.
    fn take_unheld(&self) -> Vec<Obsolete> {
        let mut inner = self.inner.lock();
        let (held, unheld): (Vec<_>, Vec<_>) = std::mem::take(&mut inner.obsolete)
            .into_iter()
            .partition(Obsolete::is_held);
        inner.obsolete = held;
        let (kept, unheld): (Vec<_>, Vec<_>) = unheld
            .into_iter()
            .partition(|it| Self::is_needed(&inner, it.file) || self.is_left_to_sweep(it));
        drop(inner);
        kept.iter().for_each(|it| self.cache.remove_file(it.file.id().0));
        let kept = kept.iter().map(|it| it.bytes).sum();
        let before = self.obsolete_bytes.fetch_sub(kept, Ordering::Relaxed);
        assert!(before >= kept, "files left to a later start were counted as obsolete");
        unheld
    }

    /// Whether somebody besides tablets needs a file that no tablet refers to.
    fn is_needed(inner: &Inner, file: StoredFile) -> bool {
        assert!(
            !inner.files.contains_key(&file.id()),
            "an obsolete file has no reference: a clone that takes it up makes it no longer obsolete"
        );
        inner.holders.holder(file).is_some()
    }

    /// For a simulation: deletes files although a snapshot names them.
    pub fn forget_snapshots(&self) {
        self.inner.lock().holders.forget_snapshots();
    }

    /// After a start: deletes every sstable and value file of an earlier process that no manifest named when this one took
    /// over, while it makes files of its own; how many. Files whose names we would not give stay. So do files that a tablet has
    /// taken up since: a clone refers to files that only a snapshot named before, and the snapshot may be gone by now.
    pub async fn sweep(&self, referenced: &BTreeSet<StoredFile>) -> Result<usize> {
        assert_eq!(
            self.ownership,
            Ownership::Sole,
            "files of other servers look like those of earlier processes"
        );
        let files = self.storage.list("sst/").await?;
        self.storage.confirm_owner().await?;
        let former = files.into_iter().filter(|info| {
            let file = StoredFile::parse_path(&info.path);
            file.is_some_and(|file| self.is_former(file.id()) && !referenced.contains(&file))
        });
        let orphans = self.unneeded(former.map(|info| info.path).collect());
        for some in orphans.chunks(SWEPT_CONCURRENTLY) {
            self.storage.delete_all(some).await.map_err(TabletError::from)?;
        }
        Ok(orphans.len())
    }

    /// The files that neither a tablet nor a snapshot refers to, at one moment. Nobody can come to refer to one of them: tablets are
    /// made of the files of other tablets and of snapshots. Obsolete files are left to their own deletion, which waits for readers.
    fn unneeded(&self, paths: Vec<String>) -> Vec<String> {
        let inner = self.inner.lock();
        let obsolete: BTreeSet<FileId> = inner.obsolete.iter().map(|it| it.file.id()).collect();
        let is_unneeded = |file: StoredFile| {
            let is_known = inner.files.contains_key(&file.id()) || obsolete.contains(&file.id());
            !is_known && inner.holders.holder(file).is_none()
        };
        let unneeded = paths
            .into_iter()
            .filter(|path| StoredFile::parse_path(path).is_some_and(is_unneeded));
        unneeded.collect()
    }

    /// Number of open files, and the bytes their indexes and filters pin.
    pub fn open_files(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let pinned = inner.files.values().map(|entry| match &entry.open {
            OpenFile::Sstable(sstable) => sstable.pinned_bytes(),
            OpenFile::Values(_) => size_of::<ValueFile>(),
        });
        (inner.files.len(), pinned.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_storage::StorageError;
    use stele_storage::memory::MemoryStorage;

    #[tokio::test]
    async fn the_sweep_takes_only_files_we_named() {
        let storage = MemoryStorage::new();
        let kept = [
            FileRef::path(FileId(0xa)),
            "sst/000000000000000B.sst".to_owned(),
            "sst/b.sst".to_owned(),
            StoredFile::Values(FileId(0xc)).path(),
            "sst/000000000000000C.val".to_owned(),
        ];
        let swept = [StoredFile::Sstable(FileId(0xb)), StoredFile::Values(FileId(0xa))].map(StoredFile::path);
        for path in kept.iter().chain(&swept) {
            storage
                .put_if_absent(path, bytes::Bytes::new())
                .await
                .expect("a new medium");
        }
        let registry = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
        let deleted = registry
            .sweep(&BTreeSet::from([
                StoredFile::Sstable(FileId(0xa)),
                StoredFile::Values(FileId(0xc)),
            ]))
            .await
            .expect("memory does not fail");
        assert_eq!(deleted, 2);
        let left = storage.list("sst/").await.expect("memory does not fail");
        let mut left: Vec<String> = left.into_iter().map(|info| info.path).collect();
        left.sort_by_key(|path| kept.iter().position(|k| k == path));
        assert_eq!(left, kept);
    }

    /// A clone is made of a snapshot after a start has listed the files of all manifests, and the snapshot is deleted before the sweep.
    #[tokio::test]
    async fn the_sweep_leaves_files_that_a_clone_has_taken_up() {
        let storage = MemoryStorage::new();
        let registry = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
        let [taken, held, orphan] = [1, 2, 3].map(|id| StoredFile::Values(FileId(id)));
        for file in [taken, held, orphan] {
            let path = file.path();
            storage
                .put_if_absent(&path, bytes::Bytes::new())
                .await
                .expect("a new medium");
        }
        registry.hold([taken, held]);
        let missing = StorageError::NotFound { path: taken.path() };
        let file = ValueFile::open_or_damaged(Err(missing), &taken.path(), taken.id()).await;
        let open = OpenFile::Values(Arc::new(file.expect("noted as damaged")));
        registry
            .acquire_new(taken.id(), open, |_| Some(()))
            .expect("one kind of file");
        registry.let_go([(taken, 0)]);
        assert!(registry.holder(taken).is_none(), "no snapshot names it any more");
        let swept = registry.sweep(&BTreeSet::new()).await.expect("memory does not fail");
        assert_eq!(swept, 1);
        let left = storage.list("sst/").await.expect("memory does not fail");
        let left: Vec<String> = left.into_iter().map(|info| info.path).collect();
        assert_eq!(left, [taken.path(), held.path()]);
    }
}
