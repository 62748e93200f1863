//! Durable notes of an archiver outside of the archive.
//!
//! They are where the catalog is. An archive that cannot be reached lacks log, and these notes say so to every later process.

use super::format::Life;
use crate::error::{BackupError, Result};
use async_trait::async_trait;
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_env::Env;

/// A number of a chain of logs.
pub type Chain = [u8; 16];

/// The notes of one archiver.
#[async_trait]
pub trait Notes: Send + Sync + 'static {
    /// The newest moment that was noted.
    async fn noted_moment(&self) -> Result<i64>;

    /// Notes a moment, unless a newer one is noted.
    async fn note_moment(&self, micros: i64) -> Result<()>;

    /// Ends the chain, and begins another one: its number. Fails if the archiver was replaced.
    async fn begin_chain(&self) -> Result<Chain>;
}

/// The servers of a cluster, as the archiver of its tables knows them.
#[async_trait]
pub trait Lives: Send + Sync + 'static {
    /// All servers that may have written before the call and have not been told to [`Lives::archived`] as ended. The error is a reason for
    /// which moments from now on cannot be restored with the range so far.
    async fn list(&self, chain: Chain) -> Result<std::result::Result<Vec<Life>, String>>;

    /// A part names them.
    async fn archived(&self, lives: &[Life]);
}

/// The notes of a server that owns its data root.
pub(crate) struct OfCatalog {
    pub(crate) env: Env,
    pub(crate) catalog: Arc<Catalog>,
}

#[async_trait]
impl Notes for OfCatalog {
    async fn noted_moment(&self) -> Result<i64> {
        self.catalog.noted_moment().await.map_err(BackupError::Catalog)
    }

    async fn note_moment(&self, micros: i64) -> Result<()> {
        self.catalog.note_moment(micros).await?;
        Ok(())
    }

    async fn begin_chain(&self) -> Result<Chain> {
        let number = new_chain(&self.env);
        self.catalog.begin_archived_log(number).await?;
        Ok(number)
    }
}

/// A number that no chain has.
pub fn new_chain(env: &Env) -> Chain {
    let mut number = [0; 16];
    let (first, second) = number.split_at_mut(8);
    first.copy_from_slice(&env.random_u64().to_le_bytes());
    second.copy_from_slice(&env.random_u64().to_le_bytes());
    number
}
