//! Splits of tablets, as transactions of the catalog.
//!
//! The server stops writes to the tablet and makes two tablets over its files. The catalog replaces one record by two, in one
//! transaction, which is the commit point. Then the server serves the two, or the one again. In between no write is
//! accepted: a write that the one acknowledged after the catalog named the two would be lost. So while it is unknown whether
//! the transaction happened, the split is *undecided*: the tablet takes no writes, and the master asks again until it knows.
//! Other changes have their turn in between: on full storage that may be for ever, and dropping a table frees space.
//!
//! Invariant: there is one undecided split at most. No other is begun before it is decided.

use crate::error::from_catalog;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_catalog::{Catalog, CatalogError};
use stele_client::{ServiceResult, TabletControl};
use stele_types::{RowRange, TableName, TabletId};

/// A split of which the halves are made.
#[derive(Clone)]
struct Split {
    table: TableName,
    /// Takes no writes until it is known whether the halves have replaced it.
    tablet: TabletId,
    halves: [(TabletId, RowRange); 2],
}

/// Splits tablets in the catalog and on the server. Within a change of the master only.
pub(crate) struct Splits {
    catalog: Arc<Catalog>,
    tablets: Arc<dyn TabletControl>,
    /// A split that was tried, and of which nobody knows whether the catalog has it.
    undecided: Mutex<Option<Split>>,
}

impl Splits {
    /// Of the tablets of one catalog.
    pub(crate) fn new(catalog: Arc<Catalog>, tablets: Arc<dyn TabletControl>) -> Self {
        Splits {
            catalog,
            tablets,
            undecided: Mutex::default(),
        }
    }

    /// Splits a tablet, if it has a row to split at; whether it did.
    pub(crate) async fn split(&self, tablet: TabletId) -> ServiceResult<bool> {
        // Of another caller.
        self.decide().await?;
        let Some((table, range)) = self.find(tablet) else {
            return Ok(false);
        };
        let ids = self.catalog.allocate_ids(2).await.map_err(from_catalog)?;
        let &[left, right] = &ids[..] else {
            unreachable!("the catalog allocates as many identifiers as it was asked for: {ids:?}");
        };
        let (left, right) = (TabletId(left), TabletId(right));
        let Some(row) = self.tablets.prepare_split(tablet, left, right).await? else {
            return Ok(false);
        };
        assert!(
            range.start < row && range.contains(&row),
            "a tablet splits within its range, or a half would be empty"
        );
        let below = RowRange {
            start: range.start,
            end: Some(row.clone()),
        };
        let above = RowRange {
            start: row,
            end: range.end,
        };
        let former = self.undecided.lock().replace(Split {
            table,
            tablet,
            halves: [(left, below), (right, above)],
        });
        assert!(former.is_none(), "no split begins before the undecided one is decided");
        self.decide().await
    }

    /// Whether the outcome of a split is unknown.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided.lock().is_some()
    }

    /// The same of a split of one table.
    pub(crate) fn is_undecided_for(&self, table: &TableName) -> bool {
        let undecided = self.undecided.lock();
        undecided.as_ref().is_some_and(|split| split.table == *table)
    }

    /// Replaces the record of an undecided split's tablet, if there is one, and has the server go by the outcome; whether the
    /// tablet is split. Asks once: while the outcome is unknown it stays undecided. Within a change, and to its end: asked again
    /// after it has happened, the catalog would refuse it, and the halves would be dropped.
    pub(crate) async fn decide(&self) -> ServiceResult<bool> {
        let undecided = self.undecided.lock().clone();
        let Some(Split { table, tablet, halves }) = undecided else {
            return Ok(false);
        };
        let outcome = self.catalog.replace_tablet(&table, tablet, halves.to_vec()).await;
        if let Err(error) = &outcome
            && let Some(error) = self.still_unknown(error).await
        {
            tracing::warn!(%table, %tablet, %error, "outcome of a split unknown, to be asked again");
            return Err(from_catalog(error));
        }
        self.tablets.finish_split(tablet, outcome.is_ok()).await;
        let decided = self.undecided.lock().take();
        assert!(
            decided.is_some_and(|split| split.tablet == tablet),
            "a split is decided once, within a change"
        );
        outcome.map_err(from_catalog)?;
        let [(left, _), (right, _)] = halves;
        tracing::info!(%table, %tablet, %left, %right, "tablet split");
        Ok(true)
    }

    /// Why the outcome of a change is unknown still, after a try that failed. That this one has certainly not happened decides
    /// nothing while an earlier one may count at the next start, as when the coordinator refuses to write anything any more.
    async fn still_unknown(&self, error: &CatalogError) -> Option<CatalogError> {
        match error.is_ambiguous() {
            true => Some(error.clone()),
            false => self.catalog.settle().await.err(),
        }
    }

    /// For a change of a table that cannot be made during a split of unknown outcome. Such a change would wait for the
    /// writers that the split keeps out, or depends on the contents of files. Fails while there is such a split of the
    /// table.
    pub(crate) async fn decide_for(&self, table: &TableName) -> ServiceResult<()> {
        if !self.is_undecided_for(table) {
            return Ok(());
        }
        match self.decide().await {
            Err(error) if self.is_undecided() => Err(error),
            _ => Ok(()),
        }
    }

    fn find(&self, tablet: TabletId) -> Option<(TableName, RowRange)> {
        let view = self.catalog.view();
        view.tables.iter().find_map(|(name, table)| {
            let entry = table.tablets().iter().find(|t| t.id == tablet)?;
            Some((name.clone(), entry.range.clone()))
        })
    }
}
