//! Files in an object store: S3 and compatible stores, Google Cloud Storage, Azure.
//!
//! `docs/storage.md` states the requirements on the store, the cost of each operation, and the possible losses.
//!
//! Terms: an *object* is the store's unit under a key. A *part* is an object that holds a piece of a growing file. An
//! *owner* is a process that has put an owner record. A *seal* is an empty part that ends a growing file for good.
//!
//! * Most files are one object each, put whole or uploaded in pieces, visible once synced ([`whole`]).
//! * Files that grow after a sync (see [`stele_storage::grows`]) are a sequence of parts with consecutive numbers, each
//!   created with put-if-absent. A sync is one put of all appended bytes, and group commit is such a sync
//!   ([`growing`]).
//! * A prefix has one owner. A later process wins, and the previous owner can acknowledge nothing any more
//!   ([`stele_storage::remote::owner`]). A prefix without growing files may be shared instead, by the servers of a
//!   cluster; each of them owns the prefix of its log ([`stele_storage::servers`]).
//! * Chunks that were read are cached in a bounded folder of the local disk, which may vanish at any time
//!   ([`stele_storage::remote::cache`]).
//!
//! The local disk holds only that cache. Every request is bounded in time and in retries ([`store`]). One that the store
//! refuses because of this machine's clock is signed with the store's time ([`clock`]).
#![forbid(unsafe_code)]

mod address;
mod clock;
mod foreign;
pub mod fuzzing;
mod growing;
mod metrics;
mod owner;
mod shared;
mod signing;
mod store;
mod whole;

#[cfg(test)]
mod tests;

pub use address::Address;
pub use foreign::ForeignObjects;
pub use metrics::ObjectMetrics;

use async_trait::async_trait;
use bytes::Bytes;
use growing::{Object, Parts};
use parking_lot::Mutex;
use shared::Shared;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::Env;
pub use stele_storage::remote::cache::CacheOptions;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Access, Fence, owner as ownership};
use stele_storage::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError, check_path, grows};
pub use store::Client;
use store::Store;
use tokio::sync::Semaphore;

/// A prefix of a bucket: owned by this process until another one opens it, shared with others, or opened read-only.
pub struct ObjectStorage {
    shared: Arc<Shared>,
    /// The growing files of the former owners, as they were sealed. Until this owner makes or deletes one, or has opened them.
    sealed: Mutex<Option<owner::Files>>,
}

impl ObjectStorage {
    /// Takes over the prefix: from now on the previous owner, if it still runs, can append to nothing.
    pub async fn open(
        address: &Address,
        env: Env,
        cache: Option<CacheOptions>,
        metrics: ObjectMetrics,
    ) -> Result<Arc<ObjectStorage>> {
        Self::over(address.store(env.clone(), metrics), env, cache).await
    }

    /// The same with the caller's client, for simulations: no address, and no cache.
    pub async fn open_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<ObjectStorage>> {
        let store = Store::new(client, root, env.clone(), ObjectMetrics::default());
        Self::over(store, env, None).await
    }

    async fn over(store: Store, env: Env, cache: Option<CacheOptions>) -> Result<Arc<ObjectStorage>> {
        // First, because an unusable folder must not end the present owner.
        let cache = ChunkCache::open(cache, env.clone()).await?;
        let epoch = ownership::claim(&store, &env).await?;
        let sealed = owner::seal_all(&store, epoch).await?;
        // By that bug there are files that were not sealed, and count.
        let sealed = (!store.may_skip_seals()).then_some(sealed);
        let storage = Self::with(store, env, cache, (Access::Owner, epoch, false));
        *storage.sealed.lock() = sealed;
        Ok(storage)
    }

    /// Opens the prefix next to other processes: each creates and deletes files that do not grow. Growing files are
    /// refused, and the prefix has no owner: manifests decide the ownership of each tablet.
    pub async fn share(
        address: &Address,
        env: Env,
        cache: Option<CacheOptions>,
        metrics: ObjectMetrics,
    ) -> Result<Arc<ObjectStorage>> {
        Self::share_over(address.store(env.clone(), metrics), env, cache).await
    }

    /// The same with the caller's client.
    pub async fn shared_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<ObjectStorage>> {
        let store = Store::new(client, root, env.clone(), ObjectMetrics::default());
        Self::share_over(store, env, None).await
    }

    async fn share_over(store: Store, env: Env, cache: Option<CacheOptions>) -> Result<Arc<ObjectStorage>> {
        let cache = ChunkCache::open(cache, env.clone()).await?;
        Ok(Self::with(store, env, cache, (Access::Member, 0, false)))
    }

    /// Opens the prefix read-only, without becoming its owner: nothing is changed, and a server that runs on it
    /// continues.
    pub async fn look(address: &Address, env: Env) -> Result<Arc<ObjectStorage>> {
        Self::check_over(address.store(env.clone(), ObjectMetrics::default()), env).await
    }

    /// The same with the caller's client.
    pub async fn checked_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<ObjectStorage>> {
        Self::check_over(Store::new(client, root, env.clone(), ObjectMetrics::default()), env).await
    }

    async fn check_over(store: Store, env: Env) -> Result<Arc<ObjectStorage>> {
        Self::read_over(store, env, false).await
    }

    /// The same for a prefix that an owner has taken over, which is known: all files have a seal. One without a seal was deleted
    /// before, and is not shown.
    pub async fn look_sealed(address: &Address, env: Env) -> Result<Arc<ObjectStorage>> {
        Self::read_over(address.store(env.clone(), ObjectMetrics::default()), env, true).await
    }

    /// The same with the caller's client.
    pub async fn sealed_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<ObjectStorage>> {
        let store = Store::new(client, root, env.clone(), ObjectMetrics::default());
        Self::read_over(store, env, true).await
    }

    async fn read_over(store: Store, env: Env, is_sealed: bool) -> Result<Arc<ObjectStorage>> {
        let cache = ChunkCache::open(None, env.clone()).await?;
        Ok(Self::with(store, env, cache, (Access::Reader, 0, is_sealed)))
    }

    fn with(
        store: Store,
        env: Env,
        cache: ChunkCache,
        (access, epoch, is_sealed): (Access, u64, bool),
    ) -> Arc<ObjectStorage> {
        assert_eq!(access == Access::Owner, epoch > 0, "owners are numbered from 1");
        let shared = Shared {
            store,
            env,
            fence: Fence::default(),
            epoch,
            cache,
            pieces: Arc::new(Semaphore::new(whole::PIECES_IN_ALL)),
            access,
            is_sealed,
            part_cost: AtomicU64::new(growing::PART_COST_BYTES),
        };
        Arc::new(ObjectStorage {
            shared: Arc::new(shared),
            sealed: Mutex::default(),
        })
    }

    /// Forgets the files as they were sealed, before one is made or deleted.
    fn forget_sealed(&self) {
        *self.sealed.lock() = None;
    }

    /// The growing files below a prefix. After a takeover these are first those that were sealed: rows wait, and another listing would
    /// show the same. A former owner may still delete and join their parts, which a reader notices.
    async fn growing_below(&self, prefix: &str) -> Result<owner::Files> {
        let sealed = self.sealed.lock().take();
        let files = match sealed {
            Some(files) => files,
            None => owner::files_of(&self.shared.store.list_dated(prefix).await?),
        };
        debug_assert!(files.keys().all(|path| grows(path)), "only files that grow have parts");
        let below = files.into_iter();
        Ok(below.filter(|(path, _)| path.starts_with(prefix)).collect())
    }

    /// Counts each part of a growing file like as many bytes, or more, where others wait for the end of a reading. A log
    /// that is written in small parts is then flushed sooner.
    pub fn set_part_cost(&self, bytes: u64) {
        let cost = bytes.max(growing::PART_COST_BYTES);
        self.shared.part_cost.store(cost, Ordering::Relaxed);
    }

    /// The content of a file without becoming the owner; `None` when it does not exist. For a check before
    /// [`Self::open`].
    pub async fn peek(address: &Address, env: Env, path: &str) -> Result<Option<Bytes>> {
        check_path(path)?;
        match address.store(env, ObjectMetrics::default()).get(path).await {
            Err(StorageError::NotFound { .. }) => Ok(None),
            content => content.map(Some),
        }
    }

    /// Some key below the prefix, if there is any.
    pub async fn any_key(address: &Address, env: Env) -> Result<Option<String>> {
        address.store(env, ObjectMetrics::default()).any_key().await
    }

    /// Completes when another process has become the owner, with its number. Polls periodically, so that an idle server
    /// learns of it, too.
    pub async fn replaced(&self) -> String {
        ownership::watch(
            &self.shared.store,
            &self.shared.env,
            &self.shared.fence,
            self.shared.epoch,
        )
        .await
    }

    /// Counters of requests.
    pub fn metrics(&self) -> &ObjectMetrics {
        self.shared.store.metrics()
    }
}

#[async_trait]
impl Storage for ObjectStorage {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        check_path(path)?;
        self.shared.check_owned(path, "create")?;
        if grows(path) {
            self.forget_sealed();
            Ok(Box::new(growing::create(&self.shared, path).await?))
        } else {
            Ok(Box::new(whole::create(&self.shared, path).await?))
        }
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        self.shared.fence.check(path)?;
        if grows(path) {
            Ok(Arc::new(growing::open(&self.shared, path).await?))
        } else {
            Ok(Arc::new(whole::open(&self.shared, path).await?))
        }
    }

    async fn open_known(&self, path: &str, len: u64, first: Range<u64>) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        self.shared.fence.check(path)?;
        if grows(path) {
            Ok(Arc::new(growing::open(&self.shared, path).await?))
        } else {
            Ok(Arc::new(whole::open_known(&self.shared, path, len, first).await?))
        }
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        check_path(path)?;
        self.shared.check_owned(path, "put")?;
        if grows(path) {
            self.forget_sealed();
            growing::put(&self.shared, path, content).await
        } else {
            self.shared.store.put_new(path, &[content]).await
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.shared.fence.check(prefix)?;
        let mut files = Vec::new();
        let mut growing: BTreeMap<String, Vec<(Object, u64)>> = BTreeMap::new();
        for (key, len) in self.shared.store.list(prefix).await? {
            match growing::parse_key(&key) {
                Some((path, object)) => growing.entry(path.to_owned()).or_default().push((object, len)),
                None if check_path(&key).is_ok() => files.push(FileInfo { path: key, len }),
                None => {}
            }
        }
        for (path, objects) in growing {
            let parts = Parts::new(objects);
            if path.starts_with(prefix) && growing::is_file(&self.shared, &path, &parts).await? {
                files.push(FileInfo { path, len: parts.len() });
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    async fn directories(&self, path: &str) -> Result<Option<Vec<String>>> {
        self.shared.fence.check(path)?;
        let directory = path.strip_suffix('/').unwrap_or(path);
        check_path(directory)?;
        self.shared.store.directories(directory).await.map(Some)
    }

    /// A file that grows is a listing of its objects.
    async fn open_listed(
        &self,
        prefix: &str,
        wants: &(dyn for<'a> Fn(&'a str) -> bool + Sync),
    ) -> Result<Option<Vec<Arc<dyn ReadFile>>>> {
        if !grows(prefix) {
            return Ok(None);
        }
        self.shared.fence.check(prefix)?;
        let mut files = self.growing_below(prefix).await?;
        files.retain(|path, _| wants(path));
        let mut opened: Vec<Arc<dyn ReadFile>> = Vec::with_capacity(files.len());
        for (path, parts) in files {
            if !growing::is_file(&self.shared, &path, &parts).await? {
                continue;
            }
            // Parts were joined meanwhile, or the file is being deleted.
            let Some(file) = growing::of_listing(&self.shared, &path, &parts) else {
                return Ok(None);
            };
            opened.push(Arc::new(file));
        }
        assert!(
            opened.is_sorted_by(|a, b| a.path() < b.path()),
            "each file of a listing is opened once"
        );
        Ok(Some(opened))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        self.shared.check_owned(path, "delete")?;
        if grows(path) {
            self.forget_sealed();
            growing::delete(&self.shared.store, path).await
        } else {
            self.shared.store.delete(path).await
        }
    }

    /// Takes one request for up to a thousand single-object files.
    async fn delete_all(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            check_path(path)?;
            self.shared.check_owned(path, "delete")?;
        }
        let (growing, whole): (Vec<String>, Vec<String>) = paths.iter().cloned().partition(|path| grows(path));
        for path in &growing {
            self.forget_sealed();
            growing::delete(&self.shared.store, path).await?;
        }
        self.shared.store.delete_many(&whole).await
    }

    async fn discard_all(&self, paths: &[String]) -> Result<()> {
        self.delete_all(paths).await
    }

    /// Does nothing: readers see only bytes that were put, and those are durable.
    async fn sync_file(&self, path: &str) -> Result<()> {
        self.shared.fence.check(path)
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn confirm_owner(&self) -> Result<()> {
        self.shared.check_owned("", "confirm")?;
        self.shared.verify("").await
    }

    fn keeps_appends(&self) -> bool {
        false
    }

    fn owner_epoch(&self) -> Option<u64> {
        (self.shared.access == Access::Owner).then_some(self.shared.epoch)
    }

    async fn read_all(&self, path: &str) -> Result<Bytes> {
        check_path(path)?;
        self.shared.fence.check(path)?;
        if grows(path) {
            let file = growing::open(&self.shared, path).await?;
            return file.read_at(0, usize::try_from(file.len()).unwrap_or(usize::MAX)).await;
        }
        self.shared.store.get(path).await
    }
}
