//! Tables that restores of backups make, with the mark of their restore.
//!
//! The mark is the name of the snapshot that the table is made of. A table with it that is disabled is unfinished: its restore alone
//! writes to it, completes it, or removes it. Clients can delete it, and nothing else. When it is complete, its next change
//! by a client drops the mark, and otherwise the end of the restore.

use crate::error::from_catalog;
use crate::master::Master;
use crate::snapshots::Clone;
use stele_catalog::CatalogError;
use stele_client::{ServiceResult, SnapshotName};
use stele_types::{TableId, TableName, TableSchema};

impl Master {
    /// Makes a table of a snapshot, with the mark of a restore: complete, or unfinished, if rows are to follow. Returns its number.
    pub async fn clone_restored(
        &self,
        name: &SnapshotName,
        table: &TableName,
        is_unfinished: bool,
    ) -> ServiceResult<TableId> {
        let (name, table) = (name.clone(), table.clone());
        self.carry_out(move |master| async move {
            let clone = Clone {
                restoring: Some(name.name.clone()),
                is_unfinished,
                ..Clone::default()
            };
            master
                .clone_with(&name, &table, clone, &[])
                .await
                .map(|schema| schema.id)
        })
        .await
    }

    /// Makes an unfinished table complete. It is enabled and keeps the mark. Another table of the name is an error.
    pub async fn complete_restored(&self, table: &TableName, restore: &str) -> ServiceResult<()> {
        self.change_restored(table, restore, |schema| schema.enabled = true)
            .await
    }

    /// Removes the mark, if the table has it.
    pub async fn release_restored(&self, table: &TableName, restore: &str) -> ServiceResult<()> {
        let has_mark = |schema: &TableSchema| schema.enabled && schema.restoring.as_deref() == Some(restore);
        match self.entry(table).is_ok_and(|entry| has_mark(&entry.schema)) {
            true => {
                self.change_restored(table, restore, |schema| schema.restoring = None)
                    .await
            }
            false => Ok(()),
        }
    }

    /// Removes an unfinished table of a restore. Another table of the name is an error and stays.
    pub async fn delete_unfinished(&self, table: &TableName, restore: &str) -> ServiceResult<()> {
        let (table, restore) = (table.clone(), restore.to_owned());
        self.carry_out(move |master| async move {
            let schema = master.entry(&table)?.schema.clone();
            match schema.is_unfinished() && schema.restoring.as_ref() == Some(&restore) {
                true => master.delete_locked(&table).await,
                false => Err(from_catalog(CatalogError::TableExists(table))),
            }
        })
        .await
    }

    async fn change_restored(
        &self,
        table: &TableName,
        restore: &str,
        change: impl FnOnce(&mut TableSchema) + Send + 'static,
    ) -> ServiceResult<()> {
        let (table, restore) = (table.clone(), restore.to_owned());
        self.carry_out(move |master| async move {
            let mut next = TableSchema::clone(&master.entry(&table)?.schema);
            if next.restoring.as_ref() != Some(&restore) {
                return Err(from_catalog(CatalogError::TableExists(table)));
            }
            next.version += 1;
            change(&mut next);
            master.publish(next).await.map(drop)
        })
        .await
    }
}
