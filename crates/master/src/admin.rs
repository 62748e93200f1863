//! Tables and namespaces: creation, change, removal.
//!
//! Each change runs in its turn ([`Master`] serialises them), on the catalog that it has read.

use crate::error::{from_catalog, once_begun};
use crate::kept::kept_in;
use crate::master::{Made, Master};
use crate::schema::{self, check_deletable, check_finished};
use crate::snapshots::{self, snapshots_in};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_catalog::{CatalogError, TableEntry};
use stele_client::{
    BackupDestination, BackupInfo, BackupOrder, BackupWork, CompactionState, FamilyChange, GroupChange, NewSnapshot,
    NewTable, OrderedWork, ServiceError, ServiceResult, SnapshotCopy, SnapshotInfo, SnapshotName, SnapshotUpdate,
    TableAdmin, TableGroups, TableUpdate,
};
use stele_types::{
    AccessRule, ErrorKind, FamilyId, Kept, Resource, RowRange, RowSet, Switches, SwitchesChange, TableId, TableName,
    TableSchema, TabletId, limits,
};

impl Master {
    /// Makes a changed schema durable, then the law: for the tablets first, and then for those who write to them.
    pub(crate) async fn publish(&self, next: TableSchema) -> ServiceResult<Arc<TableSchema>> {
        debug_assert!(
            !self.replacements.is_undecided_for(&next.name) || !self.moves_families(&next),
            "a family moves while nobody knows which tablets there are"
        );
        let tablets = self.tablets.clone();
        let tell = |schema: Arc<TableSchema>| async move {
            tablets.set_schema(schema).await;
        };
        self.catalog.update_schema(next, tell).await.map_err(from_catalog)
    }

    fn moves_families(&self, next: &TableSchema) -> bool {
        let now = self.entry(&next.name).map(|entry| entry.schema.clone());
        let has_moved = |now: &TableSchema| {
            let mut kept = now.families.keys().filter(|id| next.families.contains_key(*id));
            kept.any(|id| now.group_of(*id) != next.group_of(*id))
        };
        now.is_ok_and(|now| has_moved(&now))
    }

    /// The families of which some tablet may have cells in a group that is not theirs. Of a tablet that is not served nobody
    /// knows: then the word of the catalog counts.
    async fn unsettled(&self, entry: &TableEntry) -> BTreeSet<FamilyId> {
        let groups = &entry.schema.groups;
        let mut unsettled = BTreeSet::new();
        if groups.len() > 1 {
            for tablet in entry.tablets() {
                match self.tablets.unsettled(tablet.id, entry.schema.version).await {
                    Ok(families) => unsettled.extend(families),
                    Err(_) => unsettled.extend(groups.iter().flat_map(|group| group.left.iter().copied())),
                }
            }
        }
        unsettled
    }

    pub(crate) async fn delete_locked(&self, table: &TableName) -> ServiceResult<()> {
        let entry = self.entry(table)?;
        check_deletable(&entry.schema)?;
        // A part of a table is not worth keeping, and would look like a whole one.
        if !entry.schema.is_unfinished() {
            self.keep(&entry, Kept::DeletedTable).await?;
        }
        let dropped = self.catalog.delete_table(table).await;
        let dropped = dropped.map_err(from_catalog).map_err(once_begun)?;
        self.tablets
            .drop_tablets(dropped.tablets().iter().map(|t| t.id).collect())
            .await;
        Ok(())
    }

    async fn create_locked(&self, table: NewTable) -> ServiceResult<Arc<TableSchema>> {
        self.find_out_made().await.map_err(from_catalog)?;
        if self.catalog.view().table(&table.name).is_some() {
            return Err(from_catalog(CatalogError::TableExists(table.name)));
        }
        self.check_new_namespace(&table.name.namespace)?;
        let ranges = initial_ranges(table.initial_splits.clone())?;
        // Checked before anything is made.
        let mut schema = schema::new_schema(TableId(0), table)?;
        let ids = self
            .catalog
            .allocate_ids(ranges.len() + 1)
            .await
            .map_err(from_catalog)?;
        let mut ids = ids.into_iter();
        schema.id = TableId(ids.next().unwrap_or_default());
        let tablets: Vec<(TabletId, RowRange)> = ids.map(TabletId).zip(ranges).collect();
        let made = self
            .tablets
            .create_tablets(Arc::new(schema.clone()), tablets.clone())
            .await;
        // A call that is refused gives nothing up.
        let made = match made {
            Ok(()) => self.give_up_namespace(&schema.name.namespace).await,
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            self.abandon(tablets).await;
            return Err(error);
        }
        self.record_table(schema, tablets, &[]).await
    }

    /// Refuses to begin a namespace of the name by which access rules mean all of them. One that an earlier version has made goes on,
    /// and a restore may bring it back.
    pub(crate) fn check_new_namespace(&self, name: &str) -> ServiceResult<()> {
        let view = self.catalog.view();
        if name != Resource::CLUSTER || view.namespaces.contains_key(name) || view.tables_of(name).next().is_some() {
            return Ok(());
        }
        Err(ServiceError::invalid(
            "an instance or namespace cannot be named cluster: access rules name the whole cluster so",
        ))
    }

    /// Records a new table, whose tablets are served, with its access rules.
    pub(crate) async fn record_table(
        &self,
        schema: TableSchema,
        tablets: Vec<(TabletId, RowRange)>,
        rules: &[AccessRule],
    ) -> ServiceResult<Arc<TableSchema>> {
        let (made, served) = (schema.clone(), tablets.clone());
        if let Err(error) = self.catalog.create_table_with_rules(made, served, rules).await {
            // While it is unknown whether the catalog names them, they must stay.
            match error.is_ambiguous() {
                true => *self.unknown.lock() = Some(Made { schema, tablets }),
                false => self.abandon(tablets).await,
            }
            return Err(from_catalog(error));
        }
        Ok(Arc::new(schema))
    }

    async fn drop_rows_locked(&self, table: &TableName, range: RowRange) -> ServiceResult<()> {
        self.replacements.decide_for(table).await?;
        // Splits are changes, too: none happens between the lookup and the last drop.
        let entry = self.entry(table)?;
        check_finished(&entry.schema)?;
        let rows = RowSet::new(vec![range]);
        self.keep(&entry, Kept::DroppedRows).await?;
        for tablet in entry.tablets() {
            for part in rows.intersect(&tablet.range).ranges() {
                let dropped = self.tablets.drop_rows(tablet.id, part.clone()).await;
                dropped.map_err(once_begun)?;
            }
        }
        Ok(())
    }

    async fn delete_namespace_locked(&self, namespace: &str, only_if_empty: bool) -> ServiceResult<()> {
        // A table that the catalog may name goes, too: found out later, it would be in a namespace that there is not.
        self.find_out_made().await.map_err(from_catalog)?;
        let view = self.catalog.view();
        if !view.namespaces.contains_key(namespace) {
            return Err(from_catalog(CatalogError::NoNamespace(namespace.to_owned())));
        }
        // Tables that are kept stay so. Undeleting one makes the namespace again; making another of its name gives them up.
        if view
            .snapshots
            .values()
            .any(|entry| entry.name.0 == namespace && entry.kept.is_none())
        {
            let message = format!("namespace {namespace} has snapshots or backups: delete them first");
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
        }
        let tables = view.tables_of(namespace).count();
        if only_if_empty && tables > 0 {
            let message = format!("namespace {namespace} is not empty: it has {tables} tables");
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
        }
        for table in view.tables_of(namespace) {
            check_deletable(&table.schema)?;
        }
        for table in view.tables_of(namespace) {
            self.delete_locked(&table.schema.name).await?;
        }
        self.catalog.delete_namespace(namespace).await.map_err(from_catalog)
    }
}

/// The ranges between splits. Duplicates and the empty key split nothing.
fn initial_ranges(mut splits: Vec<Bytes>) -> ServiceResult<Vec<RowRange>> {
    splits.retain(|s| !s.is_empty());
    splits.sort_unstable();
    splits.dedup();
    if splits.len() > limits::INITIAL_SPLITS_MAX {
        let message = format!("at most {} initial splits", limits::INITIAL_SPLITS_MAX);
        return Err(ServiceError::invalid(message));
    }
    if let Some(long) = splits.iter().find(|s| s.len() > limits::FIRST_ROW_BYTES_MAX) {
        return Err(ServiceError::invalid(format!(
            "an initial split of {} bytes, the limit is {}",
            long.len(),
            limits::FIRST_ROW_BYTES_MAX
        )));
    }
    let mut ranges = Vec::with_capacity(splits.len() + 1);
    let mut start = Bytes::new();
    for split in splits {
        ranges.push(RowRange {
            start,
            end: Some(split.clone()),
        });
        start = split;
    }
    ranges.push(RowRange { start, end: None });
    Ok(ranges)
}

#[async_trait]
impl TableAdmin for Master {
    async fn create_table(&self, table: NewTable) -> ServiceResult<Arc<TableSchema>> {
        self.carry_out(|master| async move { master.create_locked(table).await })
            .await
    }

    async fn delete_table(&self, table: &TableName) -> ServiceResult<()> {
        let table = table.clone();
        self.carry_out(|master| async move { master.delete_locked(&table).await })
            .await
    }

    async fn update_table(&self, table: &TableName, update: TableUpdate) -> ServiceResult<Arc<TableSchema>> {
        let table = table.clone();
        self.carry_out(|master| async move {
            let entry = master.entry(&table)?;
            master.publish(schema::change_table(&entry.schema, update)?).await
        })
        .await
    }

    async fn modify_families(&self, table: &TableName, changes: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>> {
        let table = table.clone();
        self.carry_out(|master| async move {
            let entry = master.entry(&table)?;
            let next = schema::change_families(&entry.schema, changes)?;
            let mut former = entry.schema.families.keys();
            if former.all(|family| next.families.contains_key(family)) {
                return master.publish(next).await;
            }
            master.keep(&entry, Kept::DroppedFamilies).await?;
            master.publish(next).await.map_err(once_begun)
        })
        .await
    }

    async fn groups(&self, table: &TableName) -> ServiceResult<TableGroups> {
        let entry = self.entry(table)?;
        Ok(TableGroups {
            schema: entry.schema.clone(),
            unsettled: self.unsettled(&entry).await,
        })
    }

    async fn modify_groups(&self, table: &TableName, changes: Vec<GroupChange>) -> ServiceResult<TableGroups> {
        let table = table.clone();
        self.carry_out(|master| async move {
            // Halves have the files from before the split, so later compactions of the tablet say nothing about them.
            master.replacements.decide_for(&table).await?;
            let entry = master.entry(&table)?;
            let next = schema::change_groups(&entry.schema, changes, &master.unsettled(&entry).await)?;
            let schema = master.publish(next).await?;
            let unsettled = master.unsettled(&*master.entry(&table)?).await;
            Ok(TableGroups { schema, unsettled })
        })
        .await
    }

    async fn drop_row_range(&self, table: &TableName, range: RowRange) -> ServiceResult<()> {
        let table = table.clone();
        self.carry_out(|master| async move { master.drop_rows_locked(&table, range).await })
            .await
    }

    async fn flush(&self, table: &TableName, tablet: Option<TabletId>) -> ServiceResult<()> {
        self.flush_tablets(table, tablet).await
    }

    async fn compact(&self, table: &TableName, tablet: Option<TabletId>, major: bool) -> ServiceResult<()> {
        self.request_compactions(table, tablet, major).await
    }

    async fn compactions(&self, table: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        self.compaction_states(table).await
    }

    async fn split(
        &self,
        table: &TableName,
        tablet: TabletId,
        at: Option<Bytes>,
    ) -> ServiceResult<(TabletId, TabletId)> {
        let table = table.clone();
        self.carry_out(move |master| async move { master.split_locked(&table, tablet, at).await })
            .await
    }

    async fn merge(&self, table: &TableName, tablets: Vec<TabletId>) -> ServiceResult<TabletId> {
        let table = table.clone();
        self.carry_out(|master| async move { master.merge_locked(&table, &tablets).await })
            .await
    }

    async fn switches(&self) -> ServiceResult<Switches> {
        Ok(self.catalog.view().switches)
    }

    async fn set_switches(&self, change: SwitchesChange) -> ServiceResult<Switches> {
        self.carry_out(move |master| async move { master.set_switches_locked(change).await })
            .await
    }

    async fn truncate(&self, table: &TableName, keep_tablets: bool) -> ServiceResult<()> {
        let table = table.clone();
        self.carry_out(move |master| async move { master.truncate_locked(&table, keep_tablets).await })
            .await
    }

    async fn create_snapshot(&self, snapshot: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        if snapshot.flush {
            // Most of the memtables go before other changes have to wait.
            self.flush_tablets(&snapshot.table, None).await?;
        }
        self.carry_out(|master| async move { master.create_snapshot_locked(snapshot).await })
            .await
    }

    async fn copy_snapshot(&self, copy: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        self.carry_out(|master| async move { master.copy_snapshot_locked(copy).await })
            .await
    }

    async fn kept_tables(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        Ok(kept_in(&self.catalog.view(), namespace))
    }

    async fn undelete_table(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        let table = table.clone();
        self.carry_out(|master| async move { master.undelete_locked(&table).await })
            .await
    }

    async fn list_snapshots(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        Ok(snapshots_in(&self.catalog.view(), namespace))
    }

    async fn snapshot(&self, name: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>> {
        self.snapshot_entry(name).map(|entry| snapshots::info(&entry))
    }

    async fn update_snapshot(&self, name: &SnapshotName, update: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>> {
        let name = name.clone();
        self.carry_out(|master| async move { master.update_snapshot_locked(&name, update).await })
            .await
    }

    async fn delete_snapshot(&self, name: &SnapshotName) -> ServiceResult<()> {
        let name = name.clone();
        self.carry_out(|master| async move { master.delete_snapshot_locked(&name).await })
            .await
    }

    async fn clone_snapshot(
        &self,
        name: &SnapshotName,
        table: &TableName,
        front_end_data: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>> {
        let (name, table) = (name.clone(), table.clone());
        self.carry_out(|master| async move { master.clone_locked(&name, &table, front_end_data, &[]).await })
            .await
    }

    async fn restore_snapshot(&self, name: &SnapshotName, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        let (name, table) = (name.clone(), table.clone());
        self.carry_out(|master| async move { master.restore_locked(&name, &table).await })
            .await
    }

    async fn begin_backup_work(&self, order: BackupOrder) -> ServiceResult<u64> {
        self.backups()?.begin(order).await
    }

    async fn backup_work(&self, number: u64) -> ServiceResult<BackupWork> {
        self.backups()?.work(number)
    }

    async fn backup_works(&self) -> ServiceResult<Vec<OrderedWork>> {
        Ok(self.backups()?.works())
    }

    async fn cancel_backup_work(&self, number: u64) -> ServiceResult<()> {
        self.backups()?.cancel(number)
    }

    async fn list_backups(&self, destination: BackupDestination) -> ServiceResult<Vec<BackupInfo>> {
        self.backups()?.list(destination).await
    }

    async fn restorable_times(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> ServiceResult<Vec<(i64, i64)>> {
        self.backups()?.restorable(destination, archive).await
    }

    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>> {
        Ok(self
            .catalog
            .view()
            .tables_of(namespace)
            .map(|t| t.schema.clone())
            .collect())
    }

    async fn create_namespace(&self, namespace: &str, front_end_data: Vec<u8>) -> ServiceResult<()> {
        schema::check_namespace(namespace)?;
        let namespace = namespace.to_owned();
        self.carry_out(|master| async move {
            master.check_new_namespace(&namespace)?;
            master.give_up_namespace(&namespace).await?;
            let created = master.catalog.create_namespace(&namespace, front_end_data.into());
            created.await.map_err(from_catalog)
        })
        .await
    }

    async fn update_namespace(&self, namespace: &str, former: Bytes, front_end_data: Vec<u8>) -> ServiceResult<()> {
        let namespace = namespace.to_owned();
        self.carry_out(|master| async move {
            let updated = master
                .catalog
                .update_namespace(&namespace, &former, front_end_data.into());
            updated.await.map_err(from_catalog)
        })
        .await
    }

    async fn delete_namespace(&self, namespace: &str, only_if_empty: bool) -> ServiceResult<()> {
        let namespace = namespace.to_owned();
        self.carry_out(move |master| async move { master.delete_namespace_locked(&namespace, only_if_empty).await })
            .await
    }

    async fn namespace(&self, namespace: &str) -> ServiceResult<Option<Bytes>> {
        Ok(self
            .catalog
            .view()
            .namespaces
            .get(namespace)
            .map(|(data, _)| data.clone()))
    }

    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>> {
        let view = self.catalog.view();
        Ok(view
            .namespaces
            .iter()
            .map(|(name, (data, _))| (name.clone(), data.clone()))
            .collect())
    }
}

#[cfg(test)]
mod tests;
