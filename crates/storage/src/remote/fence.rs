//! A fence records that this process was replaced. From then on everything is refused, for good.

use crate::{Result, StorageError};
use std::sync::OnceLock;
use tokio::sync::Notify;

/// Shared by everything of one owner.
#[derive(Default)]
pub struct Fence {
    /// The new owner, once known.
    by: OnceLock<String>,
    tripped: Notify,
}

impl Fence {
    /// Fails with `Fenced` once a new owner is known.
    pub fn check(&self, path: &str) -> Result<()> {
        match self.by.get() {
            None => Ok(()),
            Some(by) => Err(StorageError::Fenced {
                path: path.to_owned(),
                by: by.clone(),
            }),
        }
    }

    /// Records a new owner, and returns the error for the caller.
    pub fn trip(&self, path: &str, by: String) -> StorageError {
        let by = self.by.get_or_init(|| by).clone();
        self.tripped.notify_waiters();
        StorageError::Fenced {
            path: path.to_owned(),
            by,
        }
    }

    /// The new owner, if there is one.
    pub fn by(&self) -> Option<String> {
        self.by.get().cloned()
    }

    /// Completes when a new owner is recorded after the call.
    pub async fn tripped(&self) {
        self.tripped.notified().await;
    }
}
