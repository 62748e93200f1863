//! State that all open files and tasks of one owner share.

use crate::cluster::Cluster;
use stele_env::Env;
use stele_storage::Result;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Access, Fence, owner};

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

impl Shared {
    /// Refuses a change to which this process has no right, or of a directory that another process owns.
    pub(crate) fn check_owned(&self, path: &str, operation: &'static str) -> Result<()> {
        self.fence.check(path)?;
        assert_eq!(
            self.access == Access::Owner,
            self.epoch > 0,
            "an owner, and nobody else, has a number"
        );
        self.access.check_change("directory", path, operation)
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
