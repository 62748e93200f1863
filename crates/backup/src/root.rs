//! The data root of a running server, or of the cluster that a server leads.
//!
//! Backups are made of it and restored into it.

use crate::error::{BackupError, Result};
use futures::future::BoxFuture;
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_client::{ServiceResult, TabletService};
use stele_commitlog::LogClock;
use stele_env::Env;
use stele_master::Master;
use stele_storage::Storage;
use stele_tabletserver::TabletServer;
use stele_types::{Durability, RowWrites, TabletId};

/// Completes when all servers of a cluster know the changes of the catalog so far.
pub type Barrier = Arc<dyn Fn() -> BoxFuture<'static, ServiceResult<()>> + Send + Sync>;

/// Moves the clocks of all servers of a cluster that archive their logs to a moment at least; the newest moment that any of them has.
pub type Leveling = Arc<dyn Fn(i64) -> BoxFuture<'static, ServiceResult<i64>> + Send + Sync>;

/// A data root, as the server sees it that changes its catalog.
pub struct DataRoot {
    env: Env,
    catalog: Arc<Catalog>,
    master: Arc<Master>,
    server: Arc<TabletServer>,
    /// Of a single server, and of the leader of a cluster whose logs are archived.
    clock: Option<Arc<LogClock>>,
    /// In a cluster.
    barrier: Option<Barrier>,
    /// In a cluster whose logs are archived.
    leveling: Option<Leveling>,
    /// In a cluster: the tablets of all servers.
    tablets: Option<Arc<dyn TabletService>>,
}

impl DataRoot {
    /// Of a running server, or of the leader of a cluster in its term.
    pub fn new(env: Env, catalog: Arc<Catalog>, master: Arc<Master>, server: Arc<TabletServer>) -> DataRoot {
        DataRoot {
            env,
            catalog,
            master,
            server,
            clock: None,
            barrier: None,
            leveling: None,
            tablets: None,
        }
    }

    /// The same of a single server, with the clock that its log has if that is archived: moments of backups and of the log are of one
    /// clock then.
    pub fn with_clock(self, clock: Arc<LogClock>) -> DataRoot {
        DataRoot {
            clock: Some(clock),
            ..self
        }
    }

    /// The same of a cluster, whose servers follow the catalog.
    pub fn with_barrier(self, barrier: Barrier) -> DataRoot {
        DataRoot {
            barrier: Some(barrier),
            ..self
        }
    }

    /// The same of a cluster, whose tablets are on all its servers.
    pub fn with_tablets(self, tablets: Arc<dyn TabletService>) -> DataRoot {
        DataRoot {
            tablets: Some(tablets),
            ..self
        }
    }

    /// The same of a cluster whose servers archive their logs.
    pub fn with_leveling(self, leveling: Leveling) -> DataRoot {
        DataRoot {
            leveling: Some(leveling),
            ..self
        }
    }

    /// Where servers of a cluster archive their logs: no write that begins after the call gets an earlier time than `micros`, on any
    /// server. And no moment of this root is before a time that a write had by then.
    pub(crate) async fn level(&self, micros: i64) -> Result<()> {
        if let (Some(leveling), Some(clock)) = (&self.leveling, &self.clock) {
            clock.raise(leveling(micros).await?);
        }
        Ok(())
    }

    /// Whether tables are restored to moments: not in a cluster whose servers do not archive their logs.
    pub(crate) fn restores_to_moments(&self) -> bool {
        self.barrier.is_none() || self.leveling.is_some()
    }

    /// Writes rows of a tablet.
    pub(crate) async fn write(
        &self,
        tablet: TabletId,
        rows: RowWrites,
        durability: Option<Durability>,
    ) -> ServiceResult<()> {
        match &self.tablets {
            Some(tablets) => tablets.mutate(tablet, rows, durability).await,
            None => self.server.write(tablet, &rows, durability).await,
        }
    }

    /// Whether tablets are on other servers: the answer to a write may be lost, and the next owner of the tablet takes it again.
    pub(crate) fn has_other_servers(&self) -> bool {
        self.tablets.is_some()
    }

    /// Waits until all servers know the tables that there are.
    pub(crate) async fn tell_all(&self) {
        if let Some(barrier) = &self.barrier
            && let Err(error) = barrier().await
        {
            tracing::warn!(%error, "some servers do not know restored tables yet");
        }
    }

    /// This moment in wall-clock microseconds, not before any that was noted. No later owner has an earlier one.
    pub(crate) async fn moment(&self) -> Result<i64> {
        let now = match &self.clock {
            Some(clock) => clock.now(),
            None => self.env.wall_micros(),
        };
        let moment = self.catalog.note_moment(now).await?;
        if let Some(clock) = &self.clock {
            clock.raise(moment);
        }
        Ok(moment)
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
