//! The log roots of all servers, and their fences.

use async_trait::async_trait;
use std::sync::Arc;
use stele_storage::Storage;
use stele_tabletserver::SealedLogs;
use stele_types::ServerId;

/// Opens log roots.
#[async_trait]
pub trait LogRoots: SealedLogs {
    /// Becomes the owner of a server's log root. Afterwards no former owner appends to the log.
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>>;
}
