//! Splits of tablets that have grown too large, or that a client names.

use crate::error::from_catalog;
use crate::files::no_tablet;
use crate::master::Master;
use crate::replacement::{Replacement, Replacements};
use crate::switches::switched_off;
use bytes::Bytes;
use stele_client::{ServiceError, ServiceResult};
use stele_types::{ErrorKind, RowRange, TableName, TabletId, limits};

impl Replacements {
    /// Splits a tablet before a row inside of it, or in the middle. Returns the halves; `None` when it is not there any
    /// more, or has no row to split at.
    pub(crate) async fn split(
        &self,
        tablet: TabletId,
        at: Option<Bytes>,
    ) -> ServiceResult<Option<(TabletId, TabletId)>> {
        // Of another caller.
        self.decide().await?;
        let Some((table, range)) = self.find(tablet) else {
            return Ok(None);
        };
        let ids = self.catalog.allocate_ids(2).await.map_err(from_catalog)?;
        let &[left, right] = &ids[..] else {
            unreachable!("the catalog allocates as many identifiers as it was asked for: {ids:?}");
        };
        let (left, right) = (TabletId(left), TabletId(right));
        let Some(row) = self.tablets.prepare_split(tablet, (left, right), at).await? else {
            return Ok(None);
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
        self.carry_out(Replacement {
            table,
            old: vec![tablet],
            new: vec![(left, below), (right, above)],
            set: None,
            restored: None,
        })
        .await?;
        Ok(Some((left, right)))
    }

    fn find(&self, tablet: TabletId) -> Option<(TableName, RowRange)> {
        let view = self.catalog.view();
        view.tables.iter().find_map(|(name, table)| {
            let entry = table.tablets().iter().find(|t| t.id == tablet)?;
            Some((name.clone(), entry.range.clone()))
        })
    }
}

impl Master {
    /// Splits a tablet for a client. No other split of it runs: each is a change.
    pub(crate) async fn split_locked(
        &self,
        table: &TableName,
        tablet: TabletId,
        at: Option<Bytes>,
    ) -> ServiceResult<(TabletId, TabletId)> {
        if !self.catalog.view().switches.split {
            return Err(switched_off("split"));
        }
        self.replacements.decide_former().await?;
        let entry = self.entry(table)?;
        let found = entry.tablets().iter().find(|entry| entry.id == tablet);
        let range = &found.ok_or_else(|| no_tablet(table, tablet))?.range;
        if let Some(row) = &at
            && (row.len() > limits::FIRST_ROW_BYTES_MAX || *row == range.start || !range.contains(row))
        {
            let message = format!("the row to split at is not inside of tablet {tablet}, or is its first");
            return Err(ServiceError::invalid(message));
        }
        let halves = self.replacements.split(tablet, at).await?;
        halves.ok_or_else(|| {
            let message = format!("tablet {tablet} has too few rows to be divided");
            ServiceError::new(ErrorKind::FailedPrecondition, message)
        })
    }
}
