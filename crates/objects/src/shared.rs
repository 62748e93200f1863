//! State that all open files and tasks of one owner share.

use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::Env;
use stele_storage::Result;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Access, Fence, owner};
use tokio::sync::Semaphore;

/// The state.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) env: Env,
    pub(crate) fence: Fence,
    /// This owner's number, larger than those of all previous owners. 0 where this process does not own the prefix.
    pub(crate) epoch: u64,
    pub(crate) cache: ChunkCache,
    /// A permit for each piece of an upload that may be under way.
    pub(crate) pieces: Arc<Semaphore>,
    pub(crate) access: Access,
    /// Every file has a seal, but for those that came back and those that the last owner has made.
    pub(crate) is_sealed: bool,
    /// Bytes that count as much as a part of a growing file.
    pub(crate) part_cost: AtomicU64,
}

impl Shared {
    pub(crate) fn part_cost(&self) -> u64 {
        self.part_cost.load(Ordering::Relaxed)
    }

    /// Refuses a change to which this process has no right, or of a prefix that another process owns.
    pub(crate) fn check_owned(&self, path: &str, operation: &'static str) -> Result<()> {
        self.fence.check(path)?;
        assert_eq!(
            self.access == Access::Owner,
            self.epoch > 0,
            "an owner, and nobody else, has a number"
        );
        self.access.check_change("prefix", path, operation)
    }

    /// Fails with `Fenced` when another process owns the prefix. Must be called after a growing file was created.
    pub(crate) async fn verify(&self, path: &str) -> Result<()> {
        // A shared prefix has no owner: manifests decide the ownership of each tablet.
        if self.access == Access::Member || self.store.skips_verify() {
            return Ok(());
        }
        assert!(self.epoch > 0, "only an owner has something to verify");
        owner::verify(&self.store, &self.fence, self.epoch, path).await
    }
}
