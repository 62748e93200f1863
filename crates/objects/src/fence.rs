//! Whether this process is still the owner. Once it is not, everything is refused, for good.

use std::sync::OnceLock;
use stele_storage::{Result, StorageError};
use tokio::sync::Notify;

/// Shared by everything of one owner.
#[derive(Default)]
pub(crate) struct Fence {
    /// Who took over, once known.
    by: OnceLock<String>,
    tripped: Notify,
}

impl Fence {
    /// `Fenced` from the moment a new owner was met.
    pub(crate) fn check(&self, path: &str) -> Result<()> {
        match self.by.get() {
            None => Ok(()),
            Some(by) => Err(StorageError::Fenced {
                path: path.to_owned(),
                by: by.clone(),
            }),
        }
    }

    /// A new owner was met; the error to answer with.
    pub(crate) fn trip(&self, path: &str, by: String) -> StorageError {
        let by = self.by.get_or_init(|| by).clone();
        self.tripped.notify_waiters();
        StorageError::Fenced {
            path: path.to_owned(),
            by,
        }
    }

    /// Who took over, if anybody did.
    pub(crate) fn by(&self) -> Option<String> {
        self.by.get().cloned()
    }

    /// Completes when a new owner was met after the call.
    pub(crate) async fn tripped(&self) {
        self.tripped.notified().await;
    }
}
