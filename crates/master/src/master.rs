//! The master serialises changes of tables, and resolves those of unknown outcome.
//!
//! One change at a time, so that each works on the catalog that it has read. A change that has begun is carried out also when
//! its caller goes away. Stopped half-way, it could be in storage and not in memory; rows then written to a table that
//! the next start does not know would be lost.

use crate::due::DueBackups;
use crate::error::from_catalog;
use crate::replacement::Replacements;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use stele_assignment::limit_divisor;
use stele_catalog::{Catalog, CatalogError, SnapshotEntry, TableEntry};
use stele_client::{BackupAdmin, ServiceError, ServiceResult, SplitPolicy, TabletControl, cancellation};
use stele_env::{Env, Priority};
use stele_types::{ErrorKind, RowRange, TableName, TableSchema, TabletId};
use tokio::sync::Mutex;

/// How often the master searches for tablets to split.
const INTERVAL: Duration = Duration::from_millis(500);

/// Administers the tables of one catalog over one server's tablets.
pub struct Master {
    pub(crate) env: Env,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tablets: Arc<dyn TabletControl>,
    /// Held across a change.
    pub(crate) changing: Arc<Mutex<()>>,
    /// A table that was made, and of which nobody knows whether the catalog names it. Changed during a change. There is one
    /// at most: no other table is made before its fate is known.
    pub(crate) unknown: parking_lot::Mutex<Option<Made>>,
    /// The same of a snapshot, whose files are listed in storage.
    pub(crate) unknown_snapshot: parking_lot::Mutex<Option<SnapshotEntry>>,
    pub(crate) replacements: Replacements,
    /// How long deleted tables are kept, in microseconds; 0 for not at all.
    pub(crate) grace_micros: AtomicI64,
    /// When automated backups are due.
    pub(crate) automated: DueBackups,
    /// Makes backups at destinations; set once.
    pub(crate) backups: OnceLock<Weak<dyn BackupAdmin>>,
    /// Gives the times of snapshots, in wall-clock microseconds; set once, or the wall clock does.
    clock: OnceLock<Arc<dyn Fn() -> i64 + Send + Sync>>,
    /// Itself, for changes that outlive their callers.
    this: Weak<Master>,
}

/// A table with its tablets, which are served.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) schema: TableSchema,
    pub(crate) tablets: Vec<(TabletId, RowRange)>,
}

impl Master {
    /// A master over a catalog and the server of its tablets.
    pub fn new(env: Env, catalog: Arc<Catalog>, tablets: Arc<dyn TabletControl>) -> Arc<Self> {
        Arc::new_cyclic(|this| Master {
            env,
            replacements: Replacements::new(catalog.clone(), tablets.clone()),
            catalog,
            tablets,
            changing: Arc::default(),
            unknown: parking_lot::Mutex::default(),
            unknown_snapshot: parking_lot::Mutex::default(),
            grace_micros: AtomicI64::new(0),
            automated: DueBackups::default(),
            backups: OnceLock::new(),
            clock: OnceLock::new(),
            this: this.clone(),
        })
    }

    /// Has snapshots take their times, in wall-clock microseconds, from a clock that is never set back.
    pub fn take_times_from(&self, clock: Arc<dyn Fn() -> i64 + Send + Sync>) {
        let _ = self.clock.set(clock);
    }

    pub(crate) fn moment(&self) -> i64 {
        self.clock.get().map_or_else(|| self.env.wall_micros(), |clock| clock())
    }

    /// Makes a change when its turn comes, in a task of its own: a caller that goes away while it waits calls the change
    /// off, one that goes away later does not. So does the caller on another server ([`cancellation`]).
    pub(crate) async fn carry_out<T: Send + 'static, F: Future<Output = ServiceResult<T>> + Send + 'static>(
        &self,
        change: impl FnOnce(Arc<Master>) -> F + Send + 'static,
    ) -> ServiceResult<T> {
        let stopped = || ServiceError::new(ErrorKind::Aborted, "the server stopped during the change");
        let changing = cancellation::turn(self.changing.clone().lock_owned()).await?;
        let master = self.this.upgrade().ok_or_else(stopped)?;
        let task = async move {
            let outcome = change(master.clone()).await;
            if outcome.is_err() {
                master.settle().await;
            }
            drop(changing);
            outcome
        };
        let outcome = self.env.spawn_join(Priority::Foreground, "table change", task).await;
        outcome.unwrap_or_else(|_| Err(stopped()))
    }

    /// Determines the outcome of changes that have an unknown one, if that is possible now. Never runs concurrently
    /// with a change: it might take the unknown outcome of that change for settled.
    pub(crate) async fn settle(&self) {
        let settled = async {
            self.catalog.settle().await?;
            self.find_out_made().await?;
            self.find_out_snapshot().await
        };
        if let Err(error) = settled.await {
            tracing::warn!(%error, "the outcome of a catalog change is still unknown");
        }
    }

    /// Whether the table of unknown outcome has been made: then it stays, else its tablets go.
    pub(crate) async fn find_out_made(&self) -> Result<(), CatalogError> {
        let unknown = self.unknown.lock().clone();
        let Some(Made { schema, tablets }) = unknown else {
            return Ok(());
        };
        let found = self.catalog.find_out_created(&schema, &tablets).await?;
        *self.unknown.lock() = None;
        match found {
            Some(_) => tracing::info!(table = %schema.name, "the table was made after all"),
            None => {
                tracing::info!(table = %schema.name, "the table was not made; its tablets are dropped");
                self.abandon(tablets).await;
            }
        }
        Ok(())
    }

    pub(crate) fn entry(&self, table: &TableName) -> ServiceResult<Arc<TableEntry>> {
        self.catalog.table(table).map_err(from_catalog)
    }

    pub(crate) async fn abandon(&self, tablets: Vec<(TabletId, RowRange)>) {
        self.tablets
            .drop_tablets(tablets.into_iter().map(|(id, _)| id).collect())
            .await;
    }

    /// Splits tablets that have grown too large, settles catalog changes of unknown outcome, takes automated backups, and deletes
    /// expired snapshots, until the master is dropped.
    pub fn start_splitting(self: &Arc<Self>) {
        let master = Arc::downgrade(self);
        self.env.spawn_background("split", split_loop(master));
    }

    /// Decides an undecided split, and tries to split every tablet that is due; returns how many were split. The
    /// first error is returned after all have had their turn, or immediately when it leaves a split undecided.
    pub async fn split_due(&self) -> ServiceResult<usize> {
        let mut split = {
            let _changing = self.changing.lock().await;
            usize::from(self.replacements.decide().await?)
        };
        if !self.catalog.view().switches.split {
            return Ok(split);
        }
        let mut failure = None;
        for tablet in self.tablets.split_candidates(&self.split_policy()).await {
            let _changing = self.changing.lock().await;
            match self.replacements.split(tablet, None).await {
                Ok(done) => split += usize::from(done.is_some()),
                Err(error) if self.replacements.is_undecided() => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(split), Err)
    }
}

impl Master {
    /// Tables begin with small tablets, so that all servers soon have a part of them.
    fn split_policy(&self) -> SplitPolicy {
        let servers = self.tablets.servers();
        let mut divisors = BTreeMap::new();
        if servers > 1 {
            let view = self.catalog.view();
            let tables = view.tables.values();
            let all = tables.map(|table| (table.schema.id, limit_divisor(servers, table.tablets().len())));
            divisors.extend(all.filter(|(_, divisor)| *divisor > 1));
        }
        SplitPolicy { servers, divisors }
    }
}

async fn split_loop(master: Weak<Master>) {
    loop {
        let Some(current) = master.upgrade() else {
            return;
        };
        {
            let _changing = current.changing.lock().await;
            current.settle().await;
        }
        if let Err(error) = current.split_due().await {
            tracing::warn!(%error, "a split failed; it will be tried again");
        }
        if let Err(error) = current.delete_expired().await {
            tracing::warn!(%error, "an expired snapshot is not deleted yet");
        }
        current.back_up_due().await;
        if let Err(error) = current.give_up_kept().await {
            tracing::warn!(%error, "a kept table is not given up yet");
        }
        let env = current.env.clone();
        drop(current);
        env.sleep(INTERVAL).await;
    }
}
