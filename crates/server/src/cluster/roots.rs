//! The log roots of all servers, in an object store or in HDFS.

use crate::data_dir::LogRoot;
use crate::encryption::beside;
use async_trait::async_trait;
use std::sync::Arc;
use stele_cluster::LogRoots;
use stele_encryption::KeyRing;
use stele_env::Env;
use stele_hdfs::{HdfsMetrics, HdfsStorage};
use stele_objects::{ObjectMetrics, ObjectStorage};
use stele_settings::Place;
use stele_storage::servers::log_root;
use stele_storage::{Storage, StorageError};
use stele_tabletserver::SealedLogs;
use stele_types::ServerId;

/// Bytes of a log that count as much as one of its objects. After a failure rows wait until the log is read, so a log of
/// 256 MiB has at most a thousand, which take about a second.
const LOG_PART_COST: u64 = 256 << 10;

/// The roots below a place.
pub(super) struct RootsOfPlace {
    place: Place,
    env: Env,
    /// The data keys of the cluster, which encrypt the logs, too.
    keys: Option<Arc<KeyRing>>,
    /// That of this server: the first that was taken over.
    own: tokio::sync::OnceCell<LogRoot>,
}

impl RootsOfPlace {
    pub(super) fn new(place: Place, env: Env, keys: Option<Arc<KeyRing>>) -> RootsOfPlace {
        RootsOfPlace {
            place,
            env,
            keys,
            own: tokio::sync::OnceCell::new(),
        }
    }

    /// That of this server, after it has joined.
    pub(super) fn own(&self) -> Option<LogRoot> {
        self.own.get().cloned()
    }

    fn no_folder(&self) -> StorageError {
        StorageError::Io {
            path: self.place.to_string(),
            operation: "share",
            message: "the servers of a cluster cannot share a folder".to_owned(),
        }
    }
}

#[async_trait]
impl SealedLogs for RootsOfPlace {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let root = log_root(server);
        let sealed: Arc<dyn Storage> = match &self.place {
            Place::Objects(address) => ObjectStorage::look_sealed(&address.below(&root), self.env.clone()).await?,
            Place::Hdfs(address) => HdfsStorage::look(&address.below(&root), self.env.clone()).await?,
            Place::Folder(_) => return Err(self.no_folder()),
        };
        Ok(beside(sealed, self.keys.as_ref()))
    }
}

#[async_trait]
impl LogRoots for RootsOfPlace {
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let (root, env) = (log_root(server), self.env.clone());
        let log = match &self.place {
            Place::Objects(address) => {
                let log = ObjectStorage::open(&address.below(&root), env, None, ObjectMetrics::default()).await?;
                log.set_part_cost(LOG_PART_COST);
                LogRoot::Objects(log)
            }
            Place::Hdfs(address) => {
                LogRoot::Hdfs(HdfsStorage::open(&address.below(&root), env, None, HdfsMetrics::default()).await?)
            }
            Place::Folder(_) => return Err(self.no_folder()),
        };
        let _ = self.own.set(log.clone());
        Ok(beside(log.storage(), self.keys.as_ref()))
    }
}
