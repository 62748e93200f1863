//! The data root of a running server.
//!
//! Backups are made of it and restored into it.

use crate::error::{BackupError, Result};
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_env::Env;
use stele_master::Master;
use stele_storage::Storage;
use stele_tabletserver::TabletServer;

/// A data root that one server owns.
pub struct DataRoot {
    env: Env,
    catalog: Arc<Catalog>,
    master: Arc<Master>,
    server: Arc<TabletServer>,
}

impl DataRoot {
    /// Of a running server.
    pub fn new(env: Env, catalog: Arc<Catalog>, master: Arc<Master>, server: Arc<TabletServer>) -> DataRoot {
        DataRoot {
            env,
            catalog,
            master,
            server,
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn master(&self) -> &Master {
        &self.master
    }

    pub(crate) fn server(&self) -> &TabletServer {
        &self.server
    }

    /// The storage of its files.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        self.server.data_storage()
    }

    /// Its number, which no other root has.
    pub(crate) async fn id(&self) -> Result<Vec<u8>> {
        let random = [self.env.random_u64(), self.env.random_u64()];
        let id = self.catalog.root_id(random).await;
        id.map(|id| id.to_vec()).map_err(BackupError::Catalog)
    }
}
