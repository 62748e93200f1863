//! Storage that several servers reach: a bucket or HDFS.

use crate::bucket::Bucket;
use crate::hdfs::Hdfs;
use crate::requests::Requests;
use std::sync::Arc;
use stele_env::Env;
use stele_hdfs::HdfsStorage;
use stele_hdfs::client::Client as HdfsClient;
use stele_objects::{Client as ObjectClient, ObjectStorage};
use stele_storage::{Result, Storage};

/// The storage, with the network to it.
#[derive(Clone)]
pub enum SharedStorage {
    /// An object store.
    Bucket(Bucket),
    /// A NameNode with its DataNodes.
    Hdfs(Hdfs),
}

/// A directory of which a process is the owner.
#[derive(Clone)]
pub enum Owned {
    /// A prefix of an object store.
    Bucket(Arc<ObjectStorage>),
    /// A directory of HDFS.
    Hdfs(Arc<HdfsStorage>),
}

impl Owned {
    /// Its files.
    pub fn storage(&self) -> Arc<dyn Storage> {
        match self {
            Owned::Bucket(storage) => storage.clone(),
            Owned::Hdfs(storage) => storage.clone(),
        }
    }

    /// Completes when another process has become the owner.
    pub async fn replaced(&self) -> String {
        match self {
            Owned::Bucket(storage) => storage.replaced().await,
            Owned::Hdfs(storage) => storage.replaced().await,
        }
    }

    /// Finishes files that are being written, as a server does that stops.
    pub async fn finish(&self) {
        match self {
            Owned::Bucket(_) => {}
            Owned::Hdfs(storage) => storage.finish().await,
        }
    }
}

impl SharedStorage {
    fn bucket(bucket: &Bucket) -> Arc<dyn ObjectClient> {
        Arc::new(bucket.clone())
    }

    fn hdfs(hdfs: &Hdfs) -> Arc<dyn HdfsClient> {
        Arc::new(hdfs.clone())
    }

    /// The faults of the network, and counts of requests.
    pub fn requests(&self) -> &Requests {
        match self {
            SharedStorage::Bucket(bucket) => bucket.requests(),
            SharedStorage::Hdfs(hdfs) => hdfs.requests(),
        }
    }

    /// Becomes the owner of a directory.
    pub async fn own(&self, root: &str, env: Env) -> Result<Owned> {
        match self {
            SharedStorage::Bucket(bucket) => {
                let opened = ObjectStorage::open_client(Self::bucket(bucket), root, env).await?;
                Ok(Owned::Bucket(opened))
            }
            SharedStorage::Hdfs(hdfs) => {
                let opened = HdfsStorage::open_client(Self::hdfs(hdfs), root, env).await?;
                Ok(Owned::Hdfs(opened))
            }
        }
    }

    /// Opens a directory next to other processes.
    pub async fn share(&self, root: &str, env: Env) -> Result<Arc<dyn Storage>> {
        match self {
            SharedStorage::Bucket(bucket) => Ok(ObjectStorage::shared_client(Self::bucket(bucket), root, env).await?),
            SharedStorage::Hdfs(hdfs) => Ok(HdfsStorage::shared_client(Self::hdfs(hdfs), root, env).await?),
        }
    }

    /// Opens a directory for reading. Nobody may have written growing files there since the last owner took it over.
    pub async fn look_sealed(&self, root: &str, env: Env) -> Result<Arc<dyn Storage>> {
        match self {
            SharedStorage::Bucket(bucket) => Ok(ObjectStorage::sealed_client(Self::bucket(bucket), root, env).await?),
            SharedStorage::Hdfs(hdfs) => Ok(HdfsStorage::look_client(Self::hdfs(hdfs), root, env).await?),
        }
    }

    /// Opens a directory for reading while others write there, if the storage allows that.
    pub async fn look(&self, root: &str, env: Env) -> Result<Arc<dyn Storage>> {
        match self {
            SharedStorage::Bucket(bucket) => Ok(ObjectStorage::checked_client(Self::bucket(bucket), root, env).await?),
            SharedStorage::Hdfs(hdfs) => Ok(HdfsStorage::look_client(Self::hdfs(hdfs), root, env).await?),
        }
    }

    /// The machines of the storage lose power, and have it again. An object store loses nothing by it.
    pub fn lose_power(&self) {
        match self {
            SharedStorage::Bucket(_) => {}
            SharedStorage::Hdfs(hdfs) => hdfs.lose_power(),
        }
    }
}
