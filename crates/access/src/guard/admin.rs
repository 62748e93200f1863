//! Administration as a caller may do it.
//!
//! Lists have only the entries that the caller may see. All other calls are allowed as a whole or not at all.

use super::Guard;
use crate::grants::Grants;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{
    BackupDestination, BackupInfo, BackupOrder, BackupWork, ClusterStatus, CompactionState, FamilyChange, GroupChange,
    NewSnapshot, NewTable, OrderedWork, ServiceResult, SnapshotCopy, SnapshotInfo, SnapshotName, SnapshotUpdate,
    TableAdmin, TableGroups, TableUpdate,
};
use stele_types::{Resource, Rights, RowRange, ServerId, Switches, SwitchesChange, TableName, TableSchema, TabletId};

fn table(name: &TableName) -> Resource {
    Resource::Table(name.clone())
}

fn namespace(name: &str) -> Resource {
    Resource::Namespace(name.to_owned())
}

fn snapshot(name: &SnapshotName) -> Resource {
    Resource::Snapshot {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
    }
}

impl Guard {
    /// Checks that a resource may be administered, makes the call, and writes it to the audit log.
    async fn administer<T>(
        &self,
        operation: &'static str,
        resource: Resource,
        call: impl Future<Output = ServiceResult<T>>,
    ) -> ServiceResult<T> {
        self.check(operation, &resource, Rights::ADMIN)?;
        self.audited(operation, &resource, call).await
    }

    /// Checks that the rows of a snapshot may be taken elsewhere.
    fn check_source(&self, operation: &'static str, name: &SnapshotName) -> ServiceResult<()> {
        let rights = self.rights(&snapshot(name));
        let may = rights.has(Rights::READ) || rights.has(Rights::ADMIN);
        self.allow(may, operation, &snapshot(name), Rights::READ)
    }
}

/// Stands for the first row of a tablet where the caller may not know it.
const HIDDEN: &[u8] = b"hidden";

/// Whether the rows of a table, given as `NAMESPACE/TABLE`, may be known: keys are data, and seeing a table is not enough.
fn knows_rows(grants: &Grants, shown: &str) -> bool {
    let Some((namespace, name)) = shown.split_once('/') else {
        return false;
    };
    let rights = grants.on(&table(&TableName::new(namespace, name)));
    rights.has(Rights::READ) || rights.has(Rights::ADMIN)
}

fn sees_snapshot(grants: &Grants, info: &SnapshotInfo) -> bool {
    grants.on_snapshot(&info.name.namespace, &info.name.name, Rights::VIEW)
}

#[async_trait]
impl TableAdmin for Guard {
    async fn create_table(&self, new: NewTable) -> ServiceResult<Arc<TableSchema>> {
        const OPERATION: &str = "create_table";
        self.check(OPERATION, &namespace(&new.name.namespace), Rights::ADMIN)?;
        let resource = table(&new.name);
        self.audited(OPERATION, &resource, self.tables.create_table(new)).await
    }

    async fn delete_table(&self, name: &TableName) -> ServiceResult<()> {
        let call = self.tables.delete_table(name);
        self.administer("delete_table", table(name), call).await
    }

    async fn update_table(&self, name: &TableName, update: TableUpdate) -> ServiceResult<Arc<TableSchema>> {
        let call = self.tables.update_table(name, update);
        self.administer("update_table", table(name), call).await
    }

    async fn modify_families(&self, name: &TableName, changes: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>> {
        let call = self.tables.modify_families(name, changes);
        self.administer("modify_families", table(name), call).await
    }

    async fn groups(&self, name: &TableName) -> ServiceResult<TableGroups> {
        self.check_seen("groups", name)?;
        self.tables.groups(name).await
    }

    async fn modify_groups(&self, name: &TableName, changes: Vec<GroupChange>) -> ServiceResult<TableGroups> {
        let call = self.tables.modify_groups(name, changes);
        self.administer("modify_groups", table(name), call).await
    }

    /// Deletes rows, so it needs the right to write all families of them.
    async fn drop_row_range(&self, name: &TableName, range: RowRange) -> ServiceResult<()> {
        const OPERATION: &str = "drop_row_range";
        let families = self.grants().table(name).families_of(Rights::WRITE, &range);
        let may = families == crate::grants::Families::All;
        self.allow(may, OPERATION, &table(name), Rights::WRITE)?;
        let call = self.tables.drop_row_range(name, range);
        self.audited(OPERATION, &table(name), call).await
    }

    async fn flush(&self, name: &TableName, tablet: Option<TabletId>) -> ServiceResult<()> {
        let call = self.tables.flush(name, tablet);
        self.administer("flush", table(name), call).await
    }

    async fn compact(&self, name: &TableName, tablet: Option<TabletId>, major: bool) -> ServiceResult<()> {
        let call = self.tables.compact(name, tablet, major);
        self.administer("compact", table(name), call).await
    }

    async fn compactions(&self, name: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        self.check_seen("compactions", name)?;
        self.tables.compactions(name).await
    }

    async fn split(
        &self,
        name: &TableName,
        tablet: TabletId,
        at: Option<Bytes>,
    ) -> ServiceResult<(TabletId, TabletId)> {
        let call = self.tables.split(name, tablet, at);
        self.administer("split", table(name), call).await
    }

    async fn merge(&self, name: &TableName, tablets: Vec<TabletId>) -> ServiceResult<TabletId> {
        let call = self.tables.merge(name, tablets);
        self.administer("merge", table(name), call).await
    }

    async fn switches(&self) -> ServiceResult<Switches> {
        self.known_grants()?;
        self.tables.switches().await
    }

    async fn set_switches(&self, change: SwitchesChange) -> ServiceResult<Switches> {
        let call = self.tables.set_switches(change);
        self.administer("set_switches", Resource::Cluster, call).await
    }

    async fn truncate(&self, name: &TableName, keep_tablets: bool) -> ServiceResult<()> {
        let call = self.tables.truncate(name, keep_tablets);
        self.administer("truncate", table(name), call).await
    }

    async fn create_snapshot(&self, new: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        const OPERATION: &str = "create_snapshot";
        self.check(OPERATION, &table(&new.table), Rights::ADMIN)?;
        self.check(OPERATION, &namespace(&new.name.namespace), Rights::ADMIN)?;
        let resource = snapshot(&new.name);
        self.audited(OPERATION, &resource, self.tables.create_snapshot(new))
            .await
    }

    async fn copy_snapshot(&self, copy: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        const OPERATION: &str = "copy_snapshot";
        self.check_source(OPERATION, &copy.source)?;
        self.check(OPERATION, &namespace(&copy.name.namespace), Rights::ADMIN)?;
        let resource = snapshot(&copy.name);
        self.audited(OPERATION, &resource, self.tables.copy_snapshot(copy))
            .await
    }

    async fn list_snapshots(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        let mut all = self.tables.list_snapshots(namespace).await?;
        let grants = self.known_grants()?;
        all.retain(|info| sees_snapshot(&grants, info));
        Ok(all)
    }

    async fn snapshot(&self, name: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>> {
        self.check("snapshot", &snapshot(name), Rights::VIEW)?;
        self.tables.snapshot(name).await
    }

    async fn update_snapshot(&self, name: &SnapshotName, update: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>> {
        let call = self.tables.update_snapshot(name, update);
        self.administer("update_snapshot", snapshot(name), call).await
    }

    async fn delete_snapshot(&self, name: &SnapshotName) -> ServiceResult<()> {
        let call = self.tables.delete_snapshot(name);
        self.administer("delete_snapshot", snapshot(name), call).await
    }

    async fn clone_snapshot(
        &self,
        name: &SnapshotName,
        target: &TableName,
        front_end_data: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>> {
        const OPERATION: &str = "clone_snapshot";
        self.check_source(OPERATION, name)?;
        self.check(OPERATION, &namespace(&target.namespace), Rights::ADMIN)?;
        let call = self.tables.clone_snapshot(name, target, front_end_data);
        self.audited(OPERATION, &table(target), call).await
    }

    async fn restore_snapshot(&self, name: &SnapshotName, target: &TableName) -> ServiceResult<Arc<TableSchema>> {
        const OPERATION: &str = "restore_snapshot";
        self.check_source(OPERATION, name)?;
        let call = self.tables.restore_snapshot(name, target);
        self.administer(OPERATION, table(target), call).await
    }

    async fn kept_tables(&self, of: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        let mut all = self.tables.kept_tables(of).await?;
        let grants = self.known_grants()?;
        all.retain(|info| sees_snapshot(&grants, info));
        Ok(all)
    }

    async fn undelete_table(&self, name: &TableName) -> ServiceResult<Arc<TableSchema>> {
        const OPERATION: &str = "undelete_table";
        self.check(OPERATION, &namespace(&name.namespace), Rights::ADMIN)?;
        self.audited(OPERATION, &table(name), self.tables.undelete_table(name))
            .await
    }

    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>> {
        let mut all = self.tables.list_tables(namespace).await?;
        let grants = self.known_grants()?;
        all.retain(|schema| grants.table(&schema.name).is_seen());
        Ok(all)
    }

    async fn create_namespace(&self, name: &str, front_end_data: Vec<u8>) -> ServiceResult<()> {
        const OPERATION: &str = "create_namespace";
        self.check(OPERATION, &Resource::Cluster, Rights::ADMIN)?;
        let call = self.tables.create_namespace(name, front_end_data);
        self.audited(OPERATION, &namespace(name), call).await
    }

    async fn update_namespace(&self, name: &str, former: Bytes, front_end_data: Vec<u8>) -> ServiceResult<()> {
        let call = self.tables.update_namespace(name, former, front_end_data);
        self.administer("update_namespace", namespace(name), call).await
    }

    async fn delete_namespace(&self, name: &str, only_if_empty: bool) -> ServiceResult<()> {
        let call = self.tables.delete_namespace(name, only_if_empty);
        self.administer("delete_namespace", namespace(name), call).await
    }

    async fn namespace(&self, name: &str) -> ServiceResult<Option<Bytes>> {
        if !self.grants().sees_namespace(name) {
            self.check("namespace", &namespace(name), Rights::VIEW)?;
        }
        self.tables.namespace(name).await
    }

    async fn begin_backup_work(&self, order: BackupOrder) -> ServiceResult<u64> {
        let call = self.tables.begin_backup_work(order);
        self.administer("begin_backup_work", Resource::Cluster, call).await
    }

    async fn backup_work(&self, number: u64) -> ServiceResult<BackupWork> {
        self.check("backup_work", &Resource::Cluster, Rights::ADMIN)?;
        self.tables.backup_work(number).await
    }

    async fn backup_works(&self) -> ServiceResult<Vec<OrderedWork>> {
        self.check("backup_works", &Resource::Cluster, Rights::ADMIN)?;
        self.tables.backup_works().await
    }

    async fn cancel_backup_work(&self, number: u64) -> ServiceResult<()> {
        let call = self.tables.cancel_backup_work(number);
        self.administer("cancel_backup_work", Resource::Cluster, call).await
    }

    async fn list_backups(&self, destination: BackupDestination) -> ServiceResult<Vec<BackupInfo>> {
        self.check("list_backups", &Resource::Cluster, Rights::ADMIN)?;
        self.tables.list_backups(destination).await
    }

    async fn restorable_times(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> ServiceResult<Vec<(i64, i64)>> {
        self.check("restorable_times", &Resource::Cluster, Rights::ADMIN)?;
        self.tables.restorable_times(destination, archive).await
    }

    async fn cluster_status(&self) -> ServiceResult<ClusterStatus> {
        self.check("cluster_status", &Resource::Cluster, Rights::VIEW)?;
        let mut status = self.tables.cluster_status().await?;
        let grants = self.grants();
        for tablet in &mut status.tablets {
            if !tablet.start.is_empty() && !knows_rows(&grants, &tablet.table) {
                tablet.start = HIDDEN.to_vec();
            }
        }
        Ok(status)
    }

    async fn move_tablet(&self, tablet: TabletId, to: ServerId) -> ServiceResult<()> {
        let call = self.tables.move_tablet(tablet, to);
        self.administer("move_tablet", Resource::Cluster, call).await
    }

    async fn drain_server(&self, server: ServerId, drains: bool) -> ServiceResult<()> {
        let call = self.tables.drain_server(server, drains);
        self.administer("drain_server", Resource::Cluster, call).await
    }

    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>> {
        let mut all = self.tables.list_namespaces().await?;
        let grants = self.known_grants()?;
        all.retain(|(name, _)| grants.sees_namespace(name));
        Ok(all)
    }
}
