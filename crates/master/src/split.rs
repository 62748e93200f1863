//! Splits.
//!
//! The server stops writes to the tablet and makes two tablets over its files; the catalog replaces one record by two, in one
//! transaction, which is the commit point; the server then serves the two, or the one again. In between nobody may write:
//! a write acknowledged by the one after the catalog named the two would be lost. So when it is unknown whether the
//! transaction happened, the master asks again until it knows.

use crate::admin::Master;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_client::ServiceResult;
use stele_types::{RowRange, TableName, TabletId};

/// How often the master looks for tablets to split.
const INTERVAL: Duration = Duration::from_millis(500);
/// Pause before the master asks again for an unknown outcome.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(100);

impl Master {
    /// Splits tablets that have grown too large, and settles catalog changes of unknown outcome, until the master is
    /// dropped.
    pub fn start_splitting(self: &Arc<Self>) {
        let master = Arc::downgrade(self);
        self.env.spawn_background("split", split_loop(master));
    }

    /// Tries to split every tablet that is due; how many were. The first error is returned after all have had their
    /// turn.
    pub async fn split_due(&self) -> ServiceResult<usize> {
        let mut split = 0;
        let mut failure = None;
        for tablet in self.tablets.split_candidates() {
            let _changing = self.changing.lock().await;
            match self.split(tablet).await {
                Ok(done) => split += usize::from(done),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(split), Err)
    }

    async fn split(&self, tablet: TabletId) -> ServiceResult<bool> {
        let Some((table, range)) = self.find(tablet) else {
            return Ok(false);
        };
        let ids = self.catalog.allocate_ids(2).await.map_err(crate::admin::from_catalog)?;
        let &[left, right] = &ids[..] else {
            return Ok(false);
        };
        let (left, right) = (TabletId(left), TabletId(right));
        let Some(row) = self.tablets.prepare_split(tablet, left, right).await? else {
            return Ok(false);
        };
        let halves = vec![
            (
                left,
                RowRange {
                    start: range.start,
                    end: Some(row.clone()),
                },
            ),
            (
                right,
                RowRange {
                    start: row,
                    end: range.end,
                },
            ),
        ];
        let outcome = self.replace(&table, tablet, &halves).await;
        self.tablets.finish_split(tablet, outcome.is_ok()).await;
        outcome.map(|()| {
            tracing::info!(%table, %tablet, %left, %right, "tablet split");
            true
        })
    }

    /// Replaces the record, however long it takes to know.
    async fn replace(&self, table: &TableName, old: TabletId, new: &[(TabletId, RowRange)]) -> ServiceResult<()> {
        loop {
            match self.catalog.replace_tablet(table, old, new.to_vec()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_ambiguous() => {
                    tracing::warn!(%table, tablet = %old, %error, "outcome of a split unknown, asking again");
                    self.env.sleep(UNKNOWN_PAUSE).await;
                }
                Err(error) => return Err(crate::admin::from_catalog(error)),
            }
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
