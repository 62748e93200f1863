//! Files in HDFS, through a client of the cluster's own protocols.
//!
//! `docs/storage.md` states the requirements on the cluster, the cost of each operation, and the possible losses.
//!
//! Terms: a *piece* is an HDFS file that holds a part of a growing file. A *lease* is the NameNode's permission to
//! write a file, which one client has at a time. The *pipeline* is the chain of DataNodes through which a block's bytes
//! pass.
//!
//! * Most files are one HDFS file each, written as a stream and closed by their first sync ([`whole`]).
//! * Files that grow after a sync (see [`stele_storage::grows`]) are append streams, synced on every DataNode of the
//!   pipeline ([`growing`]).
//! * A directory has one owner. A later process wins: it makes an owner record ([`stele_storage::remote::owner`]) and
//!   takes the leases of all growing files. After that the previous owner can sync nothing any more. A directory without
//!   growing files may be shared instead, by the servers of a cluster ([`stele_storage::servers`]).
//! * A put is a file that was closed under another name and renamed: atomic, and the first one wins ([`cluster`]).
//! * Chunks that were read are cached in a bounded folder of the local disk ([`stele_storage::remote::cache`]).
//!
//! The local disk holds only that cache. Every operation is bounded in time and in retries.
#![forbid(unsafe_code)]

mod address;
pub mod client;
mod cluster;
mod fault;
mod foreign;
pub mod fuzzing;
mod growing;
mod located;
mod metrics;
mod native;
mod shared;
mod whole;

pub use address::{HdfsAddress, HdfsAddressError};
pub use foreign::ForeignDirectory;
pub use metrics::HdfsMetrics;

use async_trait::async_trait;
use bytes::Bytes;
use client::Client;
use cluster::Cluster;
use growing::pieces::Pieces;
use growing::{Writers, pieces, reader, sealing};
use shared::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::remote::cache::{CacheOptions, ChunkCache};
use stele_storage::remote::{Access, Fence, owner};
use stele_storage::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError, check_path, grows};

/// A directory of HDFS: owned by this process until another one opens it, shared with others, or opened read-only.
pub struct HdfsStorage {
    shared: Arc<Shared>,
    writers: Arc<Writers>,
}

impl HdfsStorage {
    /// Takes over the directory: from now on the previous owner, if it still runs, can append to nothing.
    pub async fn open(
        address: &HdfsAddress,
        env: Env,
        cache: Option<CacheOptions>,
        metrics: HdfsMetrics,
    ) -> Result<Arc<HdfsStorage>> {
        Self::over(address.cluster(env.clone(), metrics)?, env, cache).await
    }

    /// The same with the caller's client, for simulations: no address, and no cache.
    pub async fn open_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<HdfsStorage>> {
        Self::over(Cluster::of_client(client, root, env.clone()), env, None).await
    }

    async fn over(cluster: Cluster, env: Env, cache: Option<CacheOptions>) -> Result<Arc<HdfsStorage>> {
        probe(&cluster).await?;
        // Before the claim, because an unusable folder must not end the present owner.
        let cache = ChunkCache::open(cache, env.clone()).await?;
        let epoch = owner::claim(&cluster, &env).await?;
        sealing::seal_all(&cluster, epoch).await?;
        cluster.remove_unfinished().await?;
        cluster.remove_empty_directories().await?;
        Ok(Self::with(cluster, env, cache, (Access::Owner, epoch)))
    }

    /// Opens the directory next to other processes: each creates and deletes files that do not grow. Growing files are
    /// refused, and the directory has no owner: manifests decide the ownership of each tablet.
    pub async fn share(
        address: &HdfsAddress,
        env: Env,
        cache: Option<CacheOptions>,
        metrics: HdfsMetrics,
    ) -> Result<Arc<HdfsStorage>> {
        Self::share_over(address.cluster(env.clone(), metrics)?, env, cache).await
    }

    /// The same with the caller's client.
    pub async fn shared_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<HdfsStorage>> {
        Self::share_over(Cluster::of_client(client, root, env.clone()), env, None).await
    }

    async fn share_over(cluster: Cluster, env: Env, cache: Option<CacheOptions>) -> Result<Arc<HdfsStorage>> {
        probe(&cluster).await?;
        let cache = ChunkCache::open(cache, env.clone()).await?;
        // Those that are old: others may be writing some at this moment.
        cluster.remove_unfinished().await?;
        Ok(Self::with(cluster, env, cache, (Access::Member, 0)))
    }

    /// Opens the directory read-only, without becoming its owner: nothing is changed. It fails unless every growing
    /// file is finished, as after a regular stop of a server. Only its owner knows the end of a file that is being
    /// written, and the next owner must seal the files of a killed one.
    pub async fn look(address: &HdfsAddress, env: Env) -> Result<Arc<HdfsStorage>> {
        Self::look_over(address.cluster(env.clone(), HdfsMetrics::default())?, env).await
    }

    /// The same with the caller's client.
    pub async fn look_client(client: Arc<dyn Client>, root: &str, env: Env) -> Result<Arc<HdfsStorage>> {
        Self::look_over(Cluster::of_client(client, root, env.clone()), env).await
    }

    async fn look_over(cluster: Cluster, env: Env) -> Result<Arc<HdfsStorage>> {
        pieces::check_finished(&cluster).await?;
        let cache = ChunkCache::open(None, env.clone()).await?;
        Ok(Self::with(cluster, env, cache, (Access::Reader, 0)))
    }

    fn with(cluster: Cluster, env: Env, cache: ChunkCache, (access, epoch): (Access, u64)) -> Arc<HdfsStorage> {
        assert_eq!(access == Access::Owner, epoch > 0, "owners are numbered from 1");
        let shared = Shared {
            cluster,
            env,
            fence: Fence::default(),
            epoch,
            cache,
            access,
        };
        let shared = Arc::new(shared);
        Arc::new(HdfsStorage {
            writers: Writers::new(Arc::clone(&shared)),
            shared,
        })
    }

    /// The content of a file without becoming the owner; `None` when it does not exist. For a check before
    /// [`Self::open`].
    pub async fn peek(address: &HdfsAddress, env: Env, path: &str) -> Result<Option<Bytes>> {
        check_path(path)?;
        match address.cluster(env, HdfsMetrics::default())?.content(path).await {
            Err(StorageError::NotFound { .. }) => Ok(None),
            content => content.map(Some),
        }
    }

    /// An entry of the directory that is neither an owner record nor an unfinished put, if there is one.
    pub async fn any_key(address: &HdfsAddress, env: Env) -> Result<Option<String>> {
        let entries = address.cluster(env, HdfsMetrics::default())?.entries("").await?;
        let mut keys = entries.into_iter().map(|(key, _)| key);
        Ok(keys.find(|key| key != cluster::UNFINISHED && *key != owner::DIRECTORY.trim_end_matches('/')))
    }

    /// Completes when another process has become the owner, with its number. Polls periodically, so that an idle server
    /// learns of it, too.
    pub async fn replaced(&self) -> String {
        let shared = &self.shared;
        owner::watch(&shared.cluster, &shared.env, &shared.fence, shared.epoch).await
    }

    /// Finishes every growing file that this process writes, before it ends and after its last write. Otherwise the
    /// directory could not be opened read-only ([`Self::look`]) before the next owner has sealed those files, which
    /// takes seconds.
    pub async fn finish(&self) {
        growing::finish_all(&self.writers).await;
    }

    /// Counters of operations.
    pub fn metrics(&self) -> &HdfsMetrics {
        &self.shared.cluster.metrics
    }
}

/// Checks before a takeover that files can be synced here. They cannot in an erasure-coded directory, and in an
/// encryption zone they cannot even be written.
async fn probe(cluster: &Cluster) -> Result<()> {
    let key = cluster.unfinished();
    let mut stream = cluster.create(&key, true).await?;
    let synced = async {
        cluster.write(&key, &mut *stream, &[Bytes::from_static(b"x")]).await?;
        cluster.sync(&key, &mut *stream).await?;
        cluster.status(&key).await
    };
    let synced = synced.await;
    cluster.delete(&key, false).await?;
    // Ends the pipeline; the file to complete is already deleted.
    let _ = cluster.close(&key, &mut *stream).await;
    if synced?.replication == Some(1) {
        tracing::warn!("every file has one replica: what one DataNode's disk loses is lost");
    }
    Ok(())
}

#[async_trait]
impl Storage for HdfsStorage {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        check_path(path)?;
        self.shared.check_owned(path, "create")?;
        if grows(path) {
            Ok(Box::new(growing::create(&self.writers, path).await?))
        } else {
            Ok(Box::new(whole::create(&self.shared, path).await?))
        }
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        self.shared.fence.check(path)?;
        if grows(path) {
            Ok(Arc::new(reader::open(&self.writers, path).await?))
        } else {
            Ok(Arc::new(whole::open(&self.shared, path).await?))
        }
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        check_path(path)?;
        self.shared.check_owned(path, "put")?;
        if grows(path) {
            growing::put(&self.shared, path, content).await
        } else {
            self.shared.cluster.put_new(path, &content).await
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.shared.fence.check(prefix)?;
        let mut files = BTreeMap::new();
        let mut growing: BTreeMap<String, Pieces> = BTreeMap::new();
        for (key, len) in self.shared.cluster.files(prefix).await? {
            match pieces::parse_piece(&key) {
                Some((path, number, open)) => growing.entry(path.to_owned()).or_default().add(number, open, len),
                None if check_path(&key).is_ok() => {
                    files.insert(key, len);
                }
                None => {}
            }
        }
        let growing = growing.into_iter().filter(|(_, pieces)| pieces.is_file());
        files.extend(growing.map(|(path, pieces)| (path, pieces.len())));
        let files = files.into_iter().filter(|(path, _)| path.starts_with(prefix));
        Ok(files.map(|(path, len)| FileInfo { path, len }).collect())
    }

    async fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        self.shared.check_owned(path, "delete")?;
        if grows(path) {
            growing::delete(&self.writers, path).await
        } else {
            self.shared.cluster.delete(path, false).await
        }
    }

    /// Also removes directories that this leaves empty. Tablets and snapshots are deleted by this call, and single manifests, whose
    /// directories stay, by others.
    async fn delete_all(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            self.delete(path).await?;
        }
        self.shared.cluster.leave(paths).await;
        Ok(())
    }

    async fn discard_all(&self, paths: &[String]) -> Result<()> {
        self.delete_all(paths).await
    }

    /// Does nothing: files that readers see were closed by their writer or copied by an owner, and both sync.
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
}
