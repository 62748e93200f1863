//! Places of backups and archives in use by this server.
//!
//! A folder cannot be opened twice.

use crate::error::Result;
use futures::future::BoxFuture;
use std::sync::{Arc, Weak};
use stele_client::{BackupDestination, ServiceResult};
use stele_storage::Storage;

/// Opens the storage of a destination. It may be made if the flag is set.
pub type OpenDestination =
    Arc<dyn Fn(BackupDestination, bool) -> BoxFuture<'static, ServiceResult<Arc<dyn Storage>>> + Send + Sync>;

/// Opens places, each once at a time.
pub struct Places {
    open: OpenDestination,
    opened: tokio::sync::Mutex<Vec<(BackupDestination, Weak<dyn Storage>)>>,
}

impl Places {
    /// Of an opener.
    pub fn new(open: OpenDestination) -> Arc<Places> {
        Arc::new(Places {
            open,
            opened: tokio::sync::Mutex::default(),
        })
    }

    /// The storage of a place. It may be made if the flag is set.
    pub async fn open(&self, place: BackupDestination, make: bool) -> Result<Arc<dyn Storage>> {
        let mut opened = self.opened.lock().await;
        opened.retain(|(_, storage)| storage.strong_count() > 0);
        let found = opened.iter().find(|(at, _)| *at == place);
        if let Some(storage) = found.and_then(|(_, storage)| storage.upgrade()) {
            return Ok(storage);
        }
        let storage = (self.open)(place.clone(), make).await?;
        opened.push((place, Arc::downgrade(&storage)));
        Ok(storage)
    }
}
