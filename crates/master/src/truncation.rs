//! Truncation: empty tablets replace all tablets of a table.

use crate::error::{from_catalog, once_begun};
use crate::master::Master;
use crate::replacement::Replacement;
use crate::schema::check_finished;
use stele_catalog::TableEntry;
use stele_client::ServiceResult;
use stele_types::{Kept, RowRange, TableId, TableName, TabletId};

impl Master {
    /// Drops all rows of a table. Its tablets keep their boundaries if `keep_tablets`, or it has one from then on.
    pub(crate) async fn truncate_locked(&self, table: &TableName, keep_tablets: bool) -> ServiceResult<()> {
        self.replacements.decide_former().await?;
        let entry = self.entry(table)?;
        check_finished(&entry.schema)?;
        self.keep(&entry, Kept::Truncated).await?;
        let truncated = self.empty_tablets(&entry, keep_tablets).await;
        truncated.map_err(once_begun)
    }

    /// Replaces all tablets by empty ones.
    async fn empty_tablets(&self, entry: &TableEntry, keep_tablets: bool) -> ServiceResult<()> {
        let ranges = match keep_tablets {
            true => entry.tablets().iter().map(|tablet| tablet.range.clone()).collect(),
            false => vec![RowRange::all()],
        };
        let ids = self.catalog.allocate_ids(ranges.len() + 1).await;
        let mut ids = ids.map_err(from_catalog)?.into_iter();
        let set = TableId(ids.next().unwrap_or_default());
        let new: Vec<(TabletId, RowRange)> = ids.map(TabletId).zip(ranges).collect();
        let old: Vec<TabletId> = entry.tablets().iter().map(|tablet| tablet.id).collect();
        self.tablets
            .prepare_truncation(entry.schema.clone(), old.clone(), new.clone())
            .await?;
        let replacement = Replacement {
            table: entry.schema.name.clone(),
            old,
            new,
            set: Some((entry.schema.id, set)),
            restored: None,
        };
        self.replacements.carry_out(replacement).await
    }
}
