//! State that all open files and tasks of one owner share.

use crate::store::Store;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Fence, owner};
use stele_storage::{Result, StorageError};
use tokio::sync::Semaphore;

/// The state.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) env: Env,
    pub(crate) fence: Fence,
    /// This owner's number, larger than those of all previous owners.
    pub(crate) epoch: u64,
    pub(crate) cache: ChunkCache,
    /// A permit for each piece of an upload that may be under way.
    pub(crate) pieces: Arc<Semaphore>,
    /// Opened read-only: nothing is written, and no other process is kept from writing.
    pub(crate) looking: bool,
}

impl Shared {
    /// Refuses a change when the prefix was opened read-only, or another process owns it.
    pub(crate) fn check_owned(&self, path: &str, operation: &'static str) -> Result<()> {
        self.fence.check(path)?;
        if self.looking {
            return Err(StorageError::Io {
                path: path.to_owned(),
                operation,
                message: "the prefix was opened read-only".to_owned(),
            });
        }
        Ok(())
    }

    /// Fails with `Fenced` when another process owns the prefix. Must be called after a growing file was created.
    pub(crate) async fn verify(&self, path: &str) -> Result<()> {
        if self.store.skips_verify() {
            return Ok(());
        }
        owner::verify(&self.store, &self.fence, self.epoch, path).await
    }
}
