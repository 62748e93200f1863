//! Files in HDFS, through a client of the cluster's own protocols. `docs/storage.md` says what is asked of the cluster, what
//! each operation costs and what is lost when.
//!
//! Terms: a *piece* is a file of HDFS that holds a part of a growing file; a *lease* is the NameNode's permission to write a
//! file, which one client has at a time; the *pipeline* is the DataNodes that take a block's bytes one from the other.
//!
//! * Most files are one file of HDFS each, written as they come and closed by their first sync ([`whole`]).
//! * Files that grow after a sync (see [`stele_storage::grows`]) are append streams, synced on every DataNode of the
//!   pipeline ([`growing`]).
//! * A directory has one owner. Who comes later wins: it makes an owner record ([`stele_storage::remote::owner`]) and takes
//!   the leases of all growing files, after which the one before can sync nothing any more.
//! * A put is a file that was closed under another name and renamed: atomic, and the first one wins ([`cluster`]).
//! * Blocks that were read stay in a bounded folder of the local disk ([`stele_storage::remote::cache`]).
//!
//! Nothing is kept on the local disk but that cache. Every operation is bounded in time and in retries.
#![forbid(unsafe_code)]

mod address;
mod cluster;
mod fault;
pub mod fuzzing;
mod growing;
mod located;
mod metrics;
mod whole;

pub use address::{HdfsAddress, HdfsAddressError};
pub use metrics::HdfsMetrics;

use async_trait::async_trait;
use bytes::Bytes;
use cluster::Cluster;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use stele_env::Env;
use stele_storage::remote::cache::{CacheOptions, ChunkCache};
use stele_storage::remote::{Fence, owner};
use stele_storage::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError, check_path, grows};

/// What every open file and every task of one owner shares.
struct Shared {
    cluster: Cluster,
    env: Env,
    fence: Fence,
    /// This owner's number; larger than that of every owner before.
    epoch: u64,
    cache: ChunkCache,
    /// Growing files that this process writes.
    writing: Mutex<BTreeMap<String, Weak<growing::Writer>>>,
    /// Only looked at: nothing is written, and nobody is kept from writing.
    looking: bool,
}

impl Shared {
    /// Refuses what changes something, of a directory that is only looked at.
    fn check_owned(&self, path: &str, operation: &'static str) -> Result<()> {
        self.fence.check(path)?;
        match self.looking {
            false => Ok(()),
            true => Err(StorageError::Io {
                path: path.to_owned(),
                operation,
                message: "the directory was opened to be looked at".to_owned(),
            }),
        }
    }
}

/// A directory of HDFS, owned by this process until another one opens it, or only looked at.
pub struct HdfsStorage {
    shared: Arc<Shared>,
}

impl HdfsStorage {
    /// Takes the directory over: from now on the former owner, if it still lives, can append to nothing.
    pub async fn open(
        address: &HdfsAddress,
        env: Env,
        cache: Option<CacheOptions>,
        metrics: HdfsMetrics,
    ) -> Result<Arc<HdfsStorage>> {
        let cluster = address.cluster(env.clone(), metrics)?;
        probe(&cluster).await?;
        // Before the claim: a folder that cannot be used is no reason to end the owner that there is.
        let cache = ChunkCache::open(cache, env.clone()).await?;
        let epoch = owner::claim(&cluster, &env).await?;
        growing::seal_all(&cluster, epoch).await?;
        cluster.remove_unfinished().await?;
        cluster.remove_empty_directories().await?;
        Ok(Self::with(cluster, env, cache, Some(epoch)))
    }

    /// Opens the directory to be read, without becoming its owner: nothing that is there is touched. Only where every growing
    /// file has been finished, as by a server that was stopped: the end of one that is being written is known to its
    /// owner alone, and what one left that was killed has to be sealed by the next.
    pub async fn look(address: &HdfsAddress, env: Env) -> Result<Arc<HdfsStorage>> {
        let cluster = address.cluster(env.clone(), HdfsMetrics::default())?;
        growing::check_finished(&cluster).await?;
        let cache = ChunkCache::open(None, env.clone()).await?;
        Ok(Self::with(cluster, env, cache, None))
    }

    fn with(cluster: Cluster, env: Env, cache: ChunkCache, epoch: Option<u64>) -> Arc<HdfsStorage> {
        let shared = Shared {
            cluster,
            env,
            fence: Fence::default(),
            epoch: epoch.unwrap_or_default(),
            cache,
            writing: Mutex::default(),
            looking: epoch.is_none(),
        };
        Arc::new(HdfsStorage {
            shared: Arc::new(shared),
        })
    }

    /// The content of a file without becoming the owner; `None` when it is not there. For a look before [`Self::open`].
    pub async fn peek(address: &HdfsAddress, env: Env, path: &str) -> Result<Option<Bytes>> {
        check_path(path)?;
        match address.cluster(env, HdfsMetrics::default())?.content(path).await {
            Err(StorageError::NotFound { .. }) => Ok(None),
            content => content.map(Some),
        }
    }

    /// Something in the directory that is neither an owner record nor an unfinished put, if there is any.
    pub async fn any_key(address: &HdfsAddress, env: Env) -> Result<Option<String>> {
        let entries = address.cluster(env, HdfsMetrics::default())?.entries("").await?;
        let mut keys = entries.into_iter().map(|(key, _)| key);
        Ok(keys.find(|key| key != cluster::UNFINISHED && *key != owner::DIRECTORY.trim_end_matches('/')))
    }

    /// Completes when another process has become the owner, with its number. Looks every now and then, so that an idle
    /// server learns of it, too.
    pub async fn replaced(&self) -> String {
        let shared = &self.shared;
        owner::watch(&shared.cluster, &shared.env, &shared.fence, shared.epoch).await
    }

    /// Finishes every growing file that this process writes; for who ends, after the last write. Otherwise nobody could look at
    /// the directory ([`Self::look`]) before the next owner has sealed them, for which that one waits seconds.
    pub async fn finish(&self) {
        growing::finish_all(&self.shared).await;
    }

    /// What was done so far.
    pub fn metrics(&self) -> &HdfsMetrics {
        &self.shared.cluster.metrics
    }
}

/// Finds out before anything is taken over whether files here can be synced: in an erasure-coded directory they cannot, and
/// in one of an encryption zone not even be written.
async fn probe(cluster: &Cluster) -> Result<()> {
    let key = cluster.unfinished();
    let mut stream = cluster.create(&key, true).await?;
    let synced = async {
        cluster.write(&key, &mut stream, &[Bytes::from_static(b"x")]).await?;
        cluster.sync(&key, &mut stream).await?;
        cluster.status(&key).await
    };
    let synced = synced.await;
    cluster.delete(&key, false).await?;
    // Ends the pipeline; there is no file any more that could be completed.
    let _ = cluster.close(&key, &mut stream).await;
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

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        check_path(path)?;
        self.shared.check_owned(path, "put")?;
        match grows(path) {
            true => growing::put(&self.shared, path, content).await,
            false => self.shared.cluster.put_new(path, &content).await,
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.shared.fence.check(prefix)?;
        let mut files = BTreeMap::new();
        let mut growing: BTreeMap<String, growing::Pieces> = BTreeMap::new();
        for (key, len) in self.shared.cluster.files(prefix).await? {
            match growing::parse_piece(&key) {
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
            growing::delete(&self.shared, path).await
        } else {
            self.shared.cluster.delete(path, false).await
        }
    }

    /// Nothing to do: what a reader sees was closed by its writer or copied by an owner, and both sync.
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
        (!self.shared.looking).then_some(self.shared.epoch)
    }
}
