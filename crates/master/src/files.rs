//! Flushes and compactions that clients ask for.
//!
//! They change no catalog, so they do not take turns with changes. A tablet may be split or merged meanwhile. Its memtables
//! were flushed for that, and its successors are found in the catalog.

use crate::error::from_catalog;
use crate::master::Master;
use futures::{FutureExt, StreamExt};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::{Catalog, TableEntry};
use stele_client::{CompactionState, ServiceError, ServiceResult, TabletControl};
use stele_env::{Env, Priority};
use stele_types::{ErrorKind, TableName, TabletId};

/// Tablets flushed concurrently, as many as the server flushes by itself.
const FLUSHES_MAX: usize = 4;
/// Longest time until a tablet that moves, or whose server has failed, is flushed, and the time between two tries.
const OWNER_WAIT: Duration = Duration::from_secs(30);
const TRIED_EVERY: Duration = Duration::from_millis(100);
/// How often successors of tablets that went away during a call are looked up. Each time is another split in the moment
/// between a lookup and a call.
const LOOKUPS_MAX: usize = 10;

/// The tablets of a table that a request is for.
fn wanted(entry: &TableEntry, tablet: Option<TabletId>) -> ServiceResult<Vec<TabletId>> {
    let ids = entry.tablets().iter().map(|entry| entry.id);
    let wanted: Vec<TabletId> = ids.filter(|id| tablet.is_none_or(|tablet| tablet == *id)).collect();
    match (tablet, wanted.is_empty()) {
        (Some(tablet), true) => Err(no_tablet(&entry.schema.name, tablet)),
        _ => Ok(wanted),
    }
}

/// The error for a tablet that is not the table's, or not any more.
pub(crate) fn no_tablet(table: &TableName, tablet: TabletId) -> ServiceError {
    ServiceError::not_found(format!("table {table} has no tablet {tablet}"))
}

/// A flush of tablets of a table.
struct Flush {
    env: Env,
    tablets: Arc<dyn TabletControl>,
    catalog: Arc<Catalog>,
    table: TableName,
}

impl Flush {
    /// Flushes a tablet, also one that moves meanwhile.
    async fn tablet(&self, id: TabletId) -> ServiceResult<()> {
        let deadline = self.env.now() + OWNER_WAIT;
        loop {
            match self.tablets.flush(id).await {
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    let entry = self.catalog.table(&self.table).map_err(from_catalog)?;
                    if !entry.tablets().iter().any(|entry| entry.id == id) {
                        // It was replaced, and flushed for that.
                        return Ok(());
                    }
                    if self.env.now() >= deadline {
                        return Err(error);
                    }
                }
                flushed => return flushed,
            }
            self.env.sleep(TRIED_EVERY).await;
        }
    }
}

impl Master {
    /// Flushes tablets, in a task of its own: a flush is not stopped half-way when its caller goes away.
    pub(crate) async fn flush_tablets(&self, table: &TableName, tablet: Option<TabletId>) -> ServiceResult<()> {
        let ids = wanted(&*self.entry(table)?, tablet)?;
        let flush = Flush {
            env: self.env.clone(),
            tablets: self.tablets.clone(),
            catalog: self.catalog.clone(),
            table: table.clone(),
        };
        let flush_all = async move {
            let flushes = ids.into_iter().map(|id| flush.tablet(id).boxed());
            let outcomes = futures::stream::iter(flushes).buffer_unordered(FLUSHES_MAX);
            outcomes.fold(Ok(()), |all, one| async { all.and(one) }).await
        };
        let task = self.env.spawn_join(Priority::Background, "requested flush", flush_all);
        let stopped = || ServiceError::new(ErrorKind::Aborted, "the server stopped during the flush");
        task.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Requests a compaction of each tablet.
    pub(crate) async fn request_compactions(
        &self,
        table: &TableName,
        tablet: Option<TabletId>,
        major: bool,
    ) -> ServiceResult<()> {
        let mut asked = BTreeSet::new();
        for _ in 0..LOOKUPS_MAX {
            let mut gone = None;
            for id in wanted(&*self.entry(table)?, tablet)? {
                if asked.contains(&id) {
                    continue;
                }
                match self.tablets.compact(id, major).await {
                    Ok(()) => drop(asked.insert(id)),
                    Err(error) if error.kind == ErrorKind::Unavailable => gone = Some(error),
                    Err(error) => return Err(error),
                }
            }
            match gone {
                None => return Ok(()),
                Some(error) if tablet.is_some() => return Err(error),
                Some(_) => {}
            }
        }
        Err(ServiceError::new(
            ErrorKind::Busy,
            format!("tablets of table {table} are being replaced: try again"),
        ))
    }

    /// The compactions of each tablet; of one that is not served none runs.
    pub(crate) async fn compaction_states(&self, table: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        let entry: Arc<TableEntry> = self.entry(table)?;
        let mut states = Vec::with_capacity(entry.tablets().len());
        for tablet in entry.tablets() {
            let state = self.tablets.compaction(tablet.id).await;
            states.push((tablet.id, state.unwrap_or_default()));
        }
        Ok(states)
    }
}
