//! State that all open files and tasks of one owner share.

use crate::cluster::Cluster;
use stele_env::Env;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Fence, owner};
use stele_storage::{Result, StorageError};

/// The state.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) env: Env,
    pub(crate) fence: Fence,
    /// This owner's number, larger than those of all previous owners.
    pub(crate) epoch: u64,
    pub(crate) cache: ChunkCache,
    /// Opened read-only: nothing is written, and no other process is kept from writing.
    pub(crate) looking: bool,
}

impl Shared {
    /// Refuses a change when the directory was opened read-only, or another process owns it.
    pub(crate) fn check_owned(&self, path: &str, operation: &'static str) -> Result<()> {
        self.fence.check(path)?;
        if self.looking {
            return Err(StorageError::Io {
                path: path.to_owned(),
                operation,
                message: "the directory was opened read-only".to_owned(),
            });
        }
        Ok(())
    }
    /// Fails with `Fenced` when another process owns the directory. Must be called after a growing file was created.
    pub(crate) async fn verify(&self, path: &str) -> Result<()> {
        owner::verify(&self.cluster, &self.fence, self.epoch, path).await
    }
}
