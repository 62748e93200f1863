//! State that all open files and tasks of one owner share.

use crate::cluster::Cluster;
use stele_env::Env;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Fence, owner};
use stele_storage::{Result, StorageError, grows};

/// The state.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) env: Env,
    pub(crate) fence: Fence,
    /// This owner's number, larger than those of all previous owners. 0 where this process does not own the directory.
    pub(crate) epoch: u64,
    pub(crate) cache: ChunkCache,
    pub(crate) access: Access,
}

/// The rights of this process on the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All of them, until another process becomes the owner.
    Owner,
    /// Files that do not grow, like other processes that have the same right. Growing files need an owner.
    Member,
    /// None: nothing is written, and no other process is kept from writing.
    Reader,
}

impl Shared {
    /// Refuses a change to which this process has no right, or of a directory that another process owns.
    pub(crate) fn check_owned(&self, path: &str, operation: &'static str) -> Result<()> {
        self.fence.check(path)?;
        assert_eq!(
            self.access == Access::Owner,
            self.epoch > 0,
            "an owner, and nobody else, has a number"
        );
        let message = match self.access {
            Access::Owner => return Ok(()),
            Access::Member if !grows(path) => return Ok(()),
            Access::Member => "refused, because a growing file needs an owner, and the directory is shared",
            Access::Reader => "the directory was opened read-only",
        };
        Err(StorageError::Io {
            path: path.to_owned(),
            operation,
            message: message.to_owned(),
        })
    }

    /// Fails with `Fenced` when another process owns the directory. Must be called after a growing file was created.
    pub(crate) async fn verify(&self, path: &str) -> Result<()> {
        // A shared directory has no owner: manifests decide the ownership of each tablet.
        if self.access == Access::Member {
            return Ok(());
        }
        owner::verify(&self.cluster, &self.fence, self.epoch, path).await
    }
}
