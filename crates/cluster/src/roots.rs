//! The log roots of all servers, and their fences.

use async_trait::async_trait;
use std::sync::Arc;
use stele_storage::Storage;
use stele_tabletserver::SealedLogs;
use stele_types::ServerId;

/// Opens log roots.
#[async_trait]
pub trait LogRoots: SealedLogs {
    /// Becomes the owner of a server's log root. Afterwards no former owner appends to the log, and all that a reader finds
    /// in it is durable. So it is not read here: its readers leave out the same segments after a gap, and failover waits
    /// for one reading less.
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>>;
}
