//! Whether this process is still the owner. Once it is not, everything is refused, for good.

use crate::{Result, StorageError};
use std::sync::OnceLock;
use tokio::sync::Notify;

/// Shared by everything of one owner.
#[derive(Default)]
pub struct Fence {
    /// Who took over, once known.
    by: OnceLock<String>,
    tripped: Notify,
}

impl Fence {
    /// `Fenced` from the moment a new owner was met.
    pub fn check(&self, path: &str) -> Result<()> {
        match self.by.get() {
            None => Ok(()),
            Some(by) => Err(StorageError::Fenced {
                path: path.to_owned(),
                by: by.clone(),
            }),
        }
    }

    /// A new owner was met; the error to answer with.
    pub fn trip(&self, path: &str, by: String) -> StorageError {
        let by = self.by.get_or_init(|| by).clone();
        self.tripped.notify_waiters();
        StorageError::Fenced {
            path: path.to_owned(),
            by,
        }
    }

    /// Who took over, if anybody did.
    pub fn by(&self) -> Option<String> {
        self.by.get().cloned()
    }

    /// Completes when a new owner was met after the call.
    pub async fn tripped(&self) {
        self.tripped.notified().await;
    }
}
