//! State that all open files and tasks of one owner share.

use crate::store::Store;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::remote::cache::ChunkCache;
use stele_storage::remote::{Fence, owner};
use stele_storage::{Result, StorageError};
use tokio::sync::Semaphore;

/// What every open file and every task of one owner shares.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) env: Env,
    pub(crate) fence: Fence,
    /// This owner's number; larger than that of every owner before.
    pub(crate) epoch: u64,
    pub(crate) cache: ChunkCache,
    /// One for each piece of an upload that may be on its way.
    pub(crate) pieces: Arc<Semaphore>,
    /// Only looked at: nothing is written, and nobody is kept from writing.
    pub(crate) looking: bool,
}

impl Shared {
    /// Refuses what changes something, of a prefix that is only looked at.
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

    /// Fails with `Fenced` when another process owns the prefix. To be called after a growing file was made.
    pub(crate) async fn verify(&self, path: &str) -> Result<()> {
        if self.store.skips_verify() {
            return Ok(());
        }
        owner::verify(&self.store, &self.fence, self.epoch, path).await
    }
}
