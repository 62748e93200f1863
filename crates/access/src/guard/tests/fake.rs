//! A service that tells that a call has reached it.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_client::{
    BulkLoad, ClusterCheck, ClusterStatus, CompactionState, FamilyChange, GroupChange, LoadTarget, Loaded, MutateRows,
    NewSnapshot, NewTable, ReadRows, RowOperation, RowOutcome, RowSample, RowStream, RowsOperation, ServiceError,
    ServiceResult, SnapshotCopy, SnapshotInfo, SnapshotName, SnapshotUpdate, TableAdmin, TableGroups, TableService,
    TableUpdate, TabletFigures, TabletInfo, TabletPlace, TabletStatus,
};
use stele_filter::Filter;
use stele_types::row::ReadCounts;
use stele_types::{
    Compression, Epoch, ErrorKind, Family, FamilyId, GroupId, LocalityGroup, RowBatch, RowRange, ServerId, Switches,
    SwitchesChange, TableId, TableName, TableSchema, TabletId, ValueType,
};

/// The error of a call that was allowed.
pub const REACHED: &str = "reached";

#[derive(Default)]
pub struct Fake {
    filter: Mutex<Option<Arc<Filter>>>,
    write_was_bound: AtomicBool,
    serves_streams: AtomicBool,
    never_answers: AtomicBool,
}

impl Fake {
    pub fn last_filter(&self) -> Option<Filter> {
        self.filter.lock().as_deref().cloned()
    }

    pub fn last_write_was_bound(&self) -> bool {
        self.write_was_bound.load(Ordering::Relaxed)
    }

    pub fn serve_streams(&self) {
        self.serves_streams.store(true, Ordering::Relaxed);
    }

    /// Deletions of tables and writes of rows go on for ever.
    pub fn never_answer(&self) {
        self.never_answers.store(true, Ordering::Relaxed);
    }

    async fn answer<T>(&self) -> ServiceResult<T> {
        match self.never_answers.load(Ordering::Relaxed) {
            true => std::future::pending().await,
            false => reached(),
        }
    }

    fn note(&self, filter: Option<&Arc<Filter>>) {
        *self.filter.lock() = filter.cloned();
    }

    fn note_write(&self, request: &MutateRows) {
        self.write_was_bound.store(request.id.is_some(), Ordering::Relaxed);
    }
}

fn reached<T>() -> ServiceResult<T> {
    Err(ServiceError::new(ErrorKind::Internal, REACHED))
}

/// Families `f`, which is 1, and `g`, which is 2.
fn schema(name: &TableName) -> Arc<TableSchema> {
    let family = |name: &str| Family {
        name: name.to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    Arc::new(TableSchema {
        families: BTreeMap::from([(FamilyId(1), family("f")), (FamilyId(2), family("g"))]),
        next_family: FamilyId(3),
        groups: vec![LocalityGroup::new(GroupId(0), "default", Compression::Lz4)],
        ..TableSchema::new(TableId(7), name.clone())
    })
}

struct Endless;

#[async_trait]
impl RowStream for Endless {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        let mut batch = RowBatch::default();
        batch.seen = ReadCounts { rows: 9, cells: 99 };
        batch.scanned_through = Some(Bytes::from_static(b"passed"));
        Ok(Some(batch))
    }
}

#[async_trait]
impl TableService for Fake {
    fn schema(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        Ok(schema(table))
    }

    async fn read_rows(&self, request: ReadRows) -> ServiceResult<Box<dyn RowStream>> {
        self.note(request.filter.as_ref());
        match self.serves_streams.load(Ordering::Relaxed) {
            true => Ok(Box::new(Endless)),
            false => reached(),
        }
    }

    fn try_read_row(&self, request: &ReadRows) -> ServiceResult<Option<RowBatch>> {
        self.note(request.filter.as_ref());
        reached()
    }

    async fn mutate_rows(&self, request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>> {
        self.note_write(&request);
        self.answer().await
    }

    async fn mutate_rows_together(&self, request: MutateRows) -> ServiceResult<()> {
        self.note_write(&request);
        reached()
    }

    async fn row_operation(&self, request: RowOperation) -> ServiceResult<RowOutcome> {
        self.note(
            request
                .condition
                .as_ref()
                .and_then(|condition| condition.reads.as_ref()),
        );
        reached()
    }

    async fn rows_operation(&self, _: RowsOperation) -> ServiceResult<bool> {
        reached()
    }

    fn check_load(&self, _: &LoadTarget) -> ServiceResult<()> {
        reached()
    }

    async fn bulk_load(&self, _: BulkLoad) -> ServiceResult<Loaded> {
        reached()
    }

    async fn sample_row_keys(&self, _: &TableName, _: RowRange) -> ServiceResult<Vec<RowSample>> {
        reached()
    }

    fn place_of(&self, _: &TableName, _: &[u8]) -> ServiceResult<TabletPlace> {
        reached()
    }

    fn places(&self, _: &TableName) -> ServiceResult<Vec<TabletPlace>> {
        reached()
    }

    /// One tablet, if streams are served.
    async fn tablets(&self, _: &TableName) -> ServiceResult<Vec<TabletInfo>> {
        let tablet = TabletInfo {
            id: TabletId(1),
            range: RowRange::all(),
            figures: Some(TabletFigures {
                bytes: 1,
                storage: None,
                operations: None,
            }),
        };
        match self.serves_streams.load(Ordering::Relaxed) {
            true => Ok(vec![tablet]),
            false => reached(),
        }
    }
}

#[async_trait]
impl TableAdmin for Fake {
    async fn create_table(&self, _: NewTable) -> ServiceResult<Arc<TableSchema>> {
        reached()
    }

    async fn delete_table(&self, _: &TableName) -> ServiceResult<()> {
        self.answer().await
    }

    async fn update_table(&self, _: &TableName, _: TableUpdate) -> ServiceResult<Arc<TableSchema>> {
        reached()
    }

    async fn modify_families(&self, _: &TableName, _: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>> {
        reached()
    }

    async fn groups(&self, _: &TableName) -> ServiceResult<TableGroups> {
        reached()
    }

    async fn modify_groups(&self, _: &TableName, _: Vec<GroupChange>) -> ServiceResult<TableGroups> {
        reached()
    }

    async fn drop_row_range(&self, _: &TableName, _: RowRange) -> ServiceResult<()> {
        reached()
    }

    async fn flush(&self, _: &TableName, _: Option<TabletId>) -> ServiceResult<()> {
        reached()
    }

    async fn compact(&self, _: &TableName, _: Option<TabletId>, _: bool) -> ServiceResult<()> {
        reached()
    }

    async fn compactions(&self, _: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        reached()
    }

    async fn split(&self, _: &TableName, _: TabletId, _: Option<Bytes>) -> ServiceResult<(TabletId, TabletId)> {
        reached()
    }

    async fn merge(&self, _: &TableName, _: Vec<TabletId>) -> ServiceResult<TabletId> {
        reached()
    }

    /// Of a cluster with a tablet of table `n/t` from row `r` on, if streams are served.
    async fn cluster_status(&self) -> ServiceResult<ClusterStatus> {
        let tablet = TabletStatus {
            table: "n/t".to_owned(),
            tablet: TabletId(1),
            start: b"r".to_vec(),
            owner: None,
            epoch: Epoch(1),
            moving_to: None,
            serves: true,
            logs: Vec::new(),
            bytes: 1,
            waits_for: String::new(),
            waited_millis: 0,
        };
        match self.serves_streams.load(Ordering::Relaxed) {
            true => Ok(ClusterStatus {
                leader: ServerId(1),
                servers: Vec::new(),
                tablets: vec![tablet],
                check: ClusterCheck::default(),
            }),
            false => reached(),
        }
    }

    async fn set_switches(&self, _: SwitchesChange) -> ServiceResult<Switches> {
        reached()
    }

    async fn truncate(&self, _: &TableName, _: bool) -> ServiceResult<()> {
        reached()
    }

    async fn create_snapshot(&self, _: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        reached()
    }

    async fn copy_snapshot(&self, _: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        reached()
    }

    async fn list_snapshots(&self, _: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        Ok(Vec::new())
    }

    async fn snapshot(&self, _: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>> {
        reached()
    }

    async fn update_snapshot(&self, _: &SnapshotName, _: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>> {
        reached()
    }

    async fn delete_snapshot(&self, _: &SnapshotName) -> ServiceResult<()> {
        reached()
    }

    async fn clone_snapshot(
        &self,
        _: &SnapshotName,
        _: &TableName,
        _: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>> {
        reached()
    }

    async fn restore_snapshot(&self, _: &SnapshotName, _: &TableName) -> ServiceResult<Arc<TableSchema>> {
        reached()
    }

    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>> {
        Ok(["t", "u"].map(|name| schema(&TableName::new(namespace, name))).into())
    }

    async fn create_namespace(&self, _: &str, _: Vec<u8>) -> ServiceResult<()> {
        reached()
    }

    async fn update_namespace(&self, _: &str, _: Bytes, _: Vec<u8>) -> ServiceResult<()> {
        reached()
    }

    async fn delete_namespace(&self, _: &str, _: bool) -> ServiceResult<()> {
        reached()
    }

    async fn namespace(&self, _: &str) -> ServiceResult<Option<Bytes>> {
        reached()
    }

    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>> {
        Ok(["m", "n"].map(|name| (name.to_owned(), Bytes::new())).into())
    }
}
