//! Splits.
//!
//! The server stops writes to the tablet and makes two tablets over its files; the catalog replaces one record by two, in one
//! transaction, which is the commit point; the server then serves the two, or the one again. In between nobody may write:
//! a write acknowledged by the one after the catalog named the two would be lost. So when it is unknown whether the
//! transaction happened, the split is *undecided*: the tablet takes no writes, and the master asks again until it knows. Other
//! changes have their turn in between: on a full medium that may be for ever, and dropping a table is what makes room.
//!
//! Invariant: there is one undecided split at most. No other is begun before it is decided.

use crate::admin::{Master, from_catalog};
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_catalog::CatalogError;
use stele_client::ServiceResult;
use stele_types::{RowRange, TableName, TabletId};

/// How often the master looks for tablets to split.
const INTERVAL: Duration = Duration::from_millis(500);

/// A split of which the halves are made.
#[derive(Clone)]
pub(crate) struct Split {
    table: TableName,
    /// Takes no writes until it is known whether the halves have replaced it.
    tablet: TabletId,
    halves: [(TabletId, RowRange); 2],
}

impl Master {
    /// Splits tablets that have grown too large, and settles catalog changes of unknown outcome, until the master is
    /// dropped.
    pub fn start_splitting(self: &Arc<Self>) {
        let master = Arc::downgrade(self);
        self.env.spawn_background("split", split_loop(master));
    }

    /// Decides an undecided split, and tries to split every tablet that is due; how many were split. The first error is returned
    /// after all have had their turn, or at once when it leaves a split undecided.
    pub async fn split_due(&self) -> ServiceResult<usize> {
        let mut split = {
            let _changing = self.changing.lock().await;
            usize::from(self.decide().await?)
        };
        let mut failure = None;
        for tablet in self.tablets.split_candidates() {
            let _changing = self.changing.lock().await;
            match self.split(tablet).await {
                Ok(done) => split += usize::from(done),
                Err(error) if self.is_undecided() => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(split), Err)
    }

    async fn split(&self, tablet: TabletId) -> ServiceResult<bool> {
        // Of another caller.
        self.decide().await?;
        let Some((table, range)) = self.find(tablet) else {
            return Ok(false);
        };
        let ids = self.catalog.allocate_ids(2).await.map_err(from_catalog)?;
        let &[left, right] = &ids[..] else {
            return Ok(false);
        };
        let (left, right) = (TabletId(left), TabletId(right));
        let Some(row) = self.tablets.prepare_split(tablet, left, right).await? else {
            return Ok(false);
        };
        let below = RowRange {
            start: range.start,
            end: Some(row.clone()),
        };
        let above = RowRange {
            start: row,
            end: range.end,
        };
        *self.undecided.lock() = Some(Split {
            table,
            tablet,
            halves: [(left, below), (right, above)],
        });
        self.decide().await
    }

    /// Whether the outcome of a split is unknown.
    fn is_undecided(&self) -> bool {
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
    async fn decide(&self) -> ServiceResult<bool> {
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
        *self.undecided.lock() = None;
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

    /// For a change of a table that cannot be made beside a split of unknown outcome: one that would wait for the writers that it
    /// keeps out, or that goes by what is in files. Fails while there is such a split of the table.
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
        let env = current.env.clone();
        drop(current);
        env.sleep(INTERVAL).await;
    }
}
