//! Replacements of tablets by others, as transactions of the catalog: splits, merges, truncations, restores.
//!
//! The server stops writes to the old tablets and makes new ones that cover the same rows. The catalog replaces the records of
//! the old by those of the new, in one transaction, which is the commit point. Then the server serves the new ones, or the old
//! ones again. In between no write is accepted: a write that an old tablet acknowledged after the catalog named the new ones
//! would be lost. So while it is unknown whether the transaction happened, the replacement is *undecided*: the tablets take no
//! writes, and the master asks again until it knows. Other changes have their turn in between: on full storage that may be for
//! ever, and dropping a table frees space.
//!
//! Invariant: there is one undecided replacement at most. No other is begun before it is decided.

use crate::error::{from_catalog, once_begun};
use parking_lot::Mutex;
use std::sync::Arc;
use stele_catalog::{Catalog, CatalogError};
use stele_client::{ServiceResult, TabletControl};
use stele_types::{RowRange, TableId, TableName, TableSchema, TabletId};

/// A replacement of which the new tablets are made.
#[derive(Clone)]
pub(crate) struct Replacement {
    pub(crate) table: TableName,
    /// Take no writes until it is known whether the others have replaced them; never empty.
    pub(crate) old: Vec<TabletId>,
    pub(crate) new: Vec<(TabletId, RowRange)>,
    /// If all tablets of the table are replaced: its number, and that of the new set.
    pub(crate) set: Option<(TableId, TableId)>,
    /// The schema that the table gets with them, if it is another.
    pub(crate) restored: Option<Arc<TableSchema>>,
}

impl Replacement {
    /// The tablet that the server knows it by.
    fn first(&self) -> TabletId {
        *self.old.first().expect("a replacement replaces a tablet at least")
    }
}

/// Replaces tablets in the catalog and on the server. Within a change of the master only.
pub(crate) struct Replacements {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tablets: Arc<dyn TabletControl>,
    /// A replacement that was tried, and of which nobody knows whether the catalog has it.
    undecided: Mutex<Option<Replacement>>,
}

impl Replacements {
    /// Of the tablets of one catalog.
    pub(crate) fn new(catalog: Arc<Catalog>, tablets: Arc<dyn TabletControl>) -> Self {
        Replacements {
            catalog,
            tablets,
            undecided: Mutex::default(),
        }
    }

    /// Carries out a replacement that the server has prepared.
    pub(crate) async fn carry_out(&self, replacement: Replacement) -> ServiceResult<()> {
        let former = self.undecided.lock().replace(replacement);
        assert!(former.is_none(), "none begins before the undecided one is decided");
        let decided = self.decide().await.map(drop);
        match self.is_undecided() {
            true => decided.map_err(once_begun),
            false => decided,
        }
    }

    /// Whether the outcome of a replacement is unknown.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided.lock().is_some()
    }

    /// The same of a replacement in one table.
    pub(crate) fn is_undecided_for(&self, table: &TableName) -> bool {
        let undecided = self.undecided.lock();
        undecided
            .as_ref()
            .is_some_and(|replacement| replacement.table == *table)
    }

    /// Replaces the records of an undecided replacement, if there is one, and has the server go by the outcome; whether the
    /// tablets are replaced. Asks once: while the outcome is unknown it stays undecided. Within a change, and to its end.
    pub(crate) async fn decide(&self) -> ServiceResult<bool> {
        let undecided = self.undecided.lock().clone();
        let Some(replacement) = undecided else {
            return Ok(false);
        };
        let (table, first, new) = (&replacement.table, replacement.first(), replacement.new.clone());
        let happened = match self.has_happened(&replacement).await {
            Ok(happened) => happened,
            Err(error) => {
                tracing::warn!(%table, tablet = %first, %error, "outcome of a replacement unknown, to be asked again");
                return Err(from_catalog(error));
            }
        };
        let outcome = match replacement.set {
            _ if happened => Ok(()),
            None => self.catalog.replace_tablets(table, &replacement.old, new).await,
            Some((id, set)) => {
                let restored = replacement.restored.as_deref();
                self.catalog.replace_all_tablets((table, id), set, new, restored).await
            }
        };
        if let Err(error) = &outcome
            && let Some(error) = self.still_unknown(error).await
        {
            tracing::warn!(%table, tablet = %first, %error, "outcome of a replacement unknown, to be asked again");
            return Err(from_catalog(error));
        }
        self.tablets.finish_replacement(first, outcome.is_ok()).await;
        // Under the version that the catalog gave it.
        if replacement.restored.is_some()
            && outcome.is_ok()
            && let Ok(entry) = self.catalog.table(table)
        {
            self.tablets.set_schema(entry.schema.clone()).await;
        }
        let decided = self.undecided.lock().take();
        assert!(
            decided.is_some_and(|decided| decided.old == replacement.old),
            "a replacement is decided once, within a change"
        );
        outcome.map_err(from_catalog)?;
        let Replacement { table, old, new, .. } = replacement;
        tracing::info!(%table, tablet = %first, old = old.len(), new = new.len(), "tablets replaced");
        Ok(true)
    }

    /// Decides an undecided replacement. Fails only while there is one: its own failure concerns another caller.
    pub(crate) async fn decide_former(&self) -> ServiceResult<()> {
        match self.decide().await {
            Err(error) if self.is_undecided() => Err(error),
            _ => Ok(()),
        }
    }

    /// For a change of a table that cannot be made during a replacement of unknown outcome. Such a change would wait for the
    /// writers that the replacement keeps out, or depends on the contents of files. Fails while there is such a replacement
    /// in the table.
    pub(crate) async fn decide_for(&self, table: &TableName) -> ServiceResult<()> {
        match self.is_undecided_for(table) {
            true => self.decide_former().await,
            false => Ok(()),
        }
    }

    /// Whether an earlier try has replaced the tablets, although its answer said nothing. Tried again, it would be refused, and the tablets
    /// that the catalog names would be dropped. Fails while that cannot be known.
    async fn has_happened(&self, replacement: &Replacement) -> Result<bool, CatalogError> {
        self.catalog.settle().await?;
        let Ok(entry) = self.catalog.table(&replacement.table) else {
            return Ok(false);
        };
        Ok(match replacement.set {
            Some((_, set)) => entry.tablet_set == set,
            None => {
                let is_new = |id: TabletId| replacement.new.iter().any(|(new, _)| *new == id);
                entry.tablets().iter().any(|tablet| is_new(tablet.id))
            }
        })
    }

    /// Why the outcome of a change is unknown still, after a try that failed. That this one has certainly not happened decides
    /// nothing while an earlier one may count at the next start, as when the coordinator refuses to write anything any more.
    async fn still_unknown(&self, error: &CatalogError) -> Option<CatalogError> {
        match error.is_ambiguous() {
            true => Some(error.clone()),
            false => self.catalog.settle().await.err(),
        }
    }
}
