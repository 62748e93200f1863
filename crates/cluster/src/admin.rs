//! Administration from any server: calls go to the leader.

use crate::admin_calls::AdminCall;
use crate::backup_calls::{BackupCall, Begun, SentOrdered, SentWork};
use crate::codec;
use crate::election;
use crate::local::Local;
use crate::messages::{Call, ClusterCall, Request};
use crate::rules::RulesAge;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::{Catalog, CatalogView};
use stele_client::{
    BackupDestination, BackupInfo, BackupOrder, BackupWork, ClusterStatus, CompactionState, FamilyChange, GroupChange,
    NewSnapshot, NewTable, OrderedWork, ServiceError, ServiceResult, SnapshotCopy, SnapshotInfo, SnapshotName,
    SnapshotUpdate, TableAdmin, TableGroups, TableUpdate,
};
use stele_coord::Coord;
use stele_env::Env;
use stele_master::{kept_in, snapshots_in};
use stele_types::{ErrorKind, RowRange, ServerId, Switches, SwitchesChange, TableName, TableSchema, TabletId};

/// Longest time of a call: it may flush tablets, or wait for other changes.
const CALL_WAIT: Duration = Duration::from_secs(180);
/// How long a leader is looked for: an election takes as long as the session of a silent leader.
const LEADER_WAIT: Duration = Duration::from_secs(30);
/// Longest wait until this server follows the catalog. Afterwards a list is refused, and the client may ask another server.
const CATCH_UP_WAIT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Administration of the cluster.
pub struct ClusterAdmin {
    local: Arc<Local>,
    coord: Arc<dyn Coord>,
    /// The leader that answered last.
    leader: Mutex<Option<ServerId>>,
    rules_age: Arc<RulesAge>,
}

impl ClusterAdmin {
    pub(crate) fn new(local: Arc<Local>, coord: Arc<dyn Coord>, rules_age: Arc<RulesAge>) -> Arc<ClusterAdmin> {
        Arc::new(ClusterAdmin {
            local,
            coord,
            leader: Mutex::new(None),
            rules_age,
        })
    }

    /// The catalog as this server follows it.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.local.catalog
    }

    pub(crate) fn rules_age(&self) -> &RulesAge {
        &self.rules_age
    }

    /// Has this server neither lead nor be elected any more; completes when that is so. For a server that is about to stop.
    pub async fn retire(&self) {
        self.local.retirement.ask().await;
    }

    /// Whether tablets are assigned to this server.
    pub fn has_tablets(&self) -> bool {
        let (view, own) = (self.local.catalog.view(), self.local.peers.own());
        let mut tablets = view.tables.values().flat_map(|table| table.tablets());
        tablets.any(|tablet| tablet.assignment.owner.is_some_and(|owner| owner.server == own))
    }

    pub(crate) async fn call<T: DeserializeOwned>(&self, call: AdminCall) -> ServiceResult<T> {
        self.ask(&Request::Admin(call)).await
    }

    /// Asks the leader. A call that no leader has begun is sent to the next one: it is `Unavailable`. The master answers so only
    /// where a repetition is the same change.
    async fn ask<T: DeserializeOwned>(&self, request: &Request) -> ServiceResult<T> {
        let env = &self.local.env;
        let deadline = env.now() + LEADER_WAIT;
        loop {
            let answered = self.ask_once(request).await;
            match answered {
                Err(error) if error.kind == ErrorKind::Unavailable && env.now() < deadline => {
                    *self.leader.lock() = None;
                    env.sleep(PAUSE).await;
                }
                answered => return codec::decode(&answered?),
            }
        }
    }

    /// The catalog with all changes that were made before. Lists come from here: the leader would send the schema of each snapshot.
    async fn newest_view(&self) -> ServiceResult<Arc<CatalogView>> {
        caught_up(&self.local.env, &self.local.catalog).await
    }

    async fn ask_once(&self, request: &Request) -> ServiceResult<Bytes> {
        if let Some(leader) = self.local.leader() {
            return leader.answer(request.clone()).await;
        }
        let known = *self.leader.lock();
        let leader = match known {
            Some(leader) => Some(leader),
            None => election::current(&*self.coord).await,
        };
        let leader =
            leader.ok_or_else(|| ServiceError::new(ErrorKind::Unavailable, "the cluster has no leader now"))?;
        let call = Call {
            term: 0,
            request: request.clone(),
        };
        let answer: ServiceResult<serde_json::Value> = self.local.peers.call(leader, &call, CALL_WAIT).await;
        let answer = answer?;
        *self.leader.lock() = Some(leader);
        codec::encode(&answer)
    }
}

/// The view with all changes that were made before. Fails while the records are not followed.
async fn caught_up(env: &Env, catalog: &Catalog) -> ServiceResult<Arc<CatalogView>> {
    let late = || ServiceError::new(ErrorKind::Unavailable, "this server does not follow the catalog now");
    let done = env.timeout(CATCH_UP_WAIT, catalog.catch_up()).await;
    let done = done.map_err(|_| late())?;
    done.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
    Ok(catalog.view())
}

#[async_trait]
impl TableAdmin for ClusterAdmin {
    async fn create_table(&self, table: NewTable) -> ServiceResult<Arc<TableSchema>> {
        self.call(AdminCall::CreateTable(Box::new(table))).await
    }

    async fn delete_table(&self, table: &TableName) -> ServiceResult<()> {
        self.call(AdminCall::DeleteTable(table.clone())).await
    }

    async fn update_table(&self, table: &TableName, update: TableUpdate) -> ServiceResult<Arc<TableSchema>> {
        self.call(AdminCall::UpdateTable(table.clone(), Box::new(update))).await
    }

    async fn modify_families(&self, table: &TableName, changes: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>> {
        self.call(AdminCall::ModifyFamilies(table.clone(), changes)).await
    }

    async fn groups(&self, table: &TableName) -> ServiceResult<TableGroups> {
        self.call(AdminCall::Groups(table.clone())).await
    }

    async fn modify_groups(&self, table: &TableName, changes: Vec<GroupChange>) -> ServiceResult<TableGroups> {
        self.call(AdminCall::ModifyGroups(table.clone(), changes)).await
    }

    async fn drop_row_range(&self, table: &TableName, range: RowRange) -> ServiceResult<()> {
        self.call(AdminCall::DropRowRange(table.clone(), range)).await
    }

    async fn flush(&self, table: &TableName, tablet: Option<TabletId>) -> ServiceResult<()> {
        self.call(AdminCall::Flush(table.clone(), tablet)).await
    }

    async fn compact(&self, table: &TableName, tablet: Option<TabletId>, major: bool) -> ServiceResult<()> {
        self.call(AdminCall::Compact(table.clone(), tablet, major)).await
    }

    async fn compactions(&self, table: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        self.call(AdminCall::Compactions(table.clone())).await
    }

    async fn split(
        &self,
        table: &TableName,
        tablet: TabletId,
        at: Option<Bytes>,
    ) -> ServiceResult<(TabletId, TabletId)> {
        self.call(AdminCall::Split(table.clone(), tablet, at)).await
    }

    async fn merge(&self, table: &TableName, tablets: Vec<TabletId>) -> ServiceResult<TabletId> {
        self.call(AdminCall::Merge(table.clone(), tablets)).await
    }

    async fn switches(&self) -> ServiceResult<Switches> {
        Ok(self.local.catalog.view().switches)
    }

    async fn set_switches(&self, change: SwitchesChange) -> ServiceResult<Switches> {
        self.call(AdminCall::SetSwitches(change)).await
    }

    async fn truncate(&self, table: &TableName, keep_tablets: bool) -> ServiceResult<()> {
        self.call(AdminCall::Truncate(table.clone(), keep_tablets)).await
    }

    async fn create_snapshot(&self, snapshot: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        self.call(AdminCall::CreateSnapshot(snapshot)).await
    }

    async fn copy_snapshot(&self, copy: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        self.call(AdminCall::CopySnapshot(copy)).await
    }

    async fn list_snapshots(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        Ok(snapshots_in(&*self.newest_view().await?, namespace))
    }

    async fn snapshot(&self, name: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>> {
        self.call(AdminCall::Snapshot(name.clone())).await
    }

    async fn update_snapshot(&self, name: &SnapshotName, update: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>> {
        self.call(AdminCall::UpdateSnapshot(name.clone(), update)).await
    }

    async fn delete_snapshot(&self, name: &SnapshotName) -> ServiceResult<()> {
        self.call(AdminCall::DeleteSnapshot(name.clone())).await
    }

    async fn clone_snapshot(
        &self,
        name: &SnapshotName,
        table: &TableName,
        front_end_data: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>> {
        self.call(AdminCall::CloneSnapshot(name.clone(), table.clone(), front_end_data))
            .await
    }

    async fn restore_snapshot(&self, name: &SnapshotName, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        self.call(AdminCall::RestoreSnapshot(name.clone(), table.clone())).await
    }

    async fn kept_tables(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        Ok(kept_in(&*self.newest_view().await?, namespace))
    }

    async fn undelete_table(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        self.call(AdminCall::UndeleteTable(table.clone())).await
    }

    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>> {
        // A change is answered after every server has followed it.
        let view = self.local.catalog.view();
        Ok(view.tables_of(namespace).map(|table| table.schema.clone()).collect())
    }

    async fn create_namespace(&self, namespace: &str, front_end_data: Vec<u8>) -> ServiceResult<()> {
        self.call(AdminCall::CreateNamespace(namespace.to_owned(), front_end_data))
            .await
    }

    async fn update_namespace(&self, namespace: &str, former: Bytes, front_end_data: Vec<u8>) -> ServiceResult<()> {
        self.call(AdminCall::UpdateNamespace(namespace.to_owned(), former, front_end_data))
            .await
    }

    async fn delete_namespace(&self, namespace: &str, only_if_empty: bool) -> ServiceResult<()> {
        let namespace = namespace.to_owned();
        self.call(match only_if_empty {
            true => AdminCall::DeleteEmptyNamespace(namespace),
            false => AdminCall::DeleteNamespace(namespace),
        })
        .await
    }

    async fn namespace(&self, namespace: &str) -> ServiceResult<Option<Bytes>> {
        let view = self.local.catalog.view();
        Ok(view.namespaces.get(namespace).map(|(data, _)| data.clone()))
    }

    async fn cluster_status(&self) -> ServiceResult<ClusterStatus> {
        self.ask(&Request::Cluster(ClusterCall::Status)).await
    }

    async fn move_tablet(&self, tablet: TabletId, to: ServerId) -> ServiceResult<()> {
        self.ask(&Request::Cluster(ClusterCall::Move { tablet, to })).await
    }

    async fn drain_server(&self, server: ServerId, drains: bool) -> ServiceResult<()> {
        self.ask(&Request::Cluster(ClusterCall::Drain { server, drains })).await
    }

    async fn begin_backup_work(&self, order: BackupOrder) -> ServiceResult<u64> {
        let begun: Begun = self.ask(&Request::Backups(BackupCall::Begin(Box::new(order)))).await?;
        codec::result(begun)
    }

    async fn backup_work(&self, number: u64) -> ServiceResult<BackupWork> {
        let work: SentWork = self.ask(&Request::Backups(BackupCall::Work(number))).await?;
        Ok(work.into())
    }

    async fn backup_works(&self) -> ServiceResult<Vec<OrderedWork>> {
        let works: Vec<SentOrdered> = self.ask(&Request::Backups(BackupCall::Works)).await?;
        let works = works.into_iter().map(|(work, order)| OrderedWork {
            work: work.into(),
            order,
        });
        Ok(works.collect())
    }

    async fn cancel_backup_work(&self, number: u64) -> ServiceResult<()> {
        codec::result(self.ask(&Request::Backups(BackupCall::Cancel(number))).await?)
    }

    async fn list_backups(&self, destination: BackupDestination) -> ServiceResult<Vec<BackupInfo>> {
        self.ask(&Request::Backups(BackupCall::List(destination))).await
    }

    async fn restorable_times(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> ServiceResult<Vec<(i64, i64)>> {
        self.ask(&Request::Backups(BackupCall::Restorable(destination, archive)))
            .await
    }

    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>> {
        let view = self.local.catalog.view();
        let data = |(name, (data, _)): (&String, &(Bytes, bool))| (name.clone(), data.clone());
        Ok(view.namespaces.iter().map(data).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_coord::{EmbeddedCoord, Txn, Write};
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;

    #[tokio::test(start_paused = true)]
    async fn a_list_does_not_wait_for_ever_for_a_catalog_that_is_not_followed() {
        let env = TokioRuntime::current();
        let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await.unwrap();
        // Its records are followed by nobody.
        let (catalog, _follower) = Catalog::follow(coord.clone()).await.unwrap();
        caught_up(&env, &catalog).await.unwrap();
        let change = Write::Put {
            key: "catalog/changed".to_owned(),
            value: Bytes::new(),
        };
        let txn = Txn {
            conditions: Vec::new(),
            writes: vec![change],
        };
        let _ = coord.txn(txn).await.unwrap();
        let listed = env.timeout(CALL_WAIT, caught_up(&env, &catalog)).await;
        let refused = listed.expect("within the limit").map(drop).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unavailable);
    }
}
