//! The interfaces of the server: data for the router, control and assignments for the master.

use crate::heat::Kind;
use crate::server::TabletServer;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_client::request::server_timestamp;
use stele_client::{
    Assignment, Closing, CompactionState, Confirm, LoadSource, Loaded, RowOutcome, RowStream, ServerLoad, ServiceError,
    ServiceResult, SnapshotFiles, SplitPolicy, TabletAssignments, TabletControl, TabletFigures, TabletRead,
    TabletRowOperation, TabletRowsOperation, TabletSample, TabletService,
};
use stele_env::Priority;
use stele_filter::Filter;
use stele_types::{
    Durability, Epoch, ErrorKind, FamilyId, FilesInUse, RowBatch, RowRange, RowWrites, SnapshotId, TableSchema,
    TabletId,
};

#[async_trait]
impl TabletService for TabletServer {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        self.reader.open_read(tablet, request)
    }

    fn try_read_row(
        &self,
        tablet: TabletId,
        row: &Bytes,
        filter: Option<&Arc<Filter>>,
    ) -> ServiceResult<Option<RowBatch>> {
        let Some(found) = self.reader.get_row(tablet, row, filter)? else {
            return Ok(None);
        };
        let mut batch = found.into_batch();
        batch.scanned_through = Some(row.clone());
        Ok(Some(batch))
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        let keys = || Box::new(rows.iter().map(|row| row.row)) as Box<dyn Iterator<Item = &[u8]>>;
        self.parts.heat.note_all(Kind::Write, tablet, rows.len(), keys);
        let dated = self.with_own_time(tablet, &rows)?;
        self.writer
            .write(tablet, dated.as_ref().unwrap_or(&rows), durability)
            .await
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        self.parts.heat.note(Kind::Write, tablet, &request.row);
        self.row_operations.apply(tablet, request).await
    }

    async fn rows_operation(&self, tablet: TabletId, request: TabletRowsOperation) -> ServiceResult<bool> {
        self.row_operations.apply_together(tablet, request).await
    }

    async fn bulk_load(&self, tablet: TabletId, sources: Vec<LoadSource>) -> ServiceResult<Loaded> {
        self.loads.load(tablet, sources).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.reader.sample_tablet(tablet, every).await
    }

    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        self.reader.figures_of(tablet)
    }
}

impl TabletServer {
    /// The rows with the time of this server, if they have that of another one.
    fn with_own_time(&self, tablet: TabletId, rows: &RowWrites) -> ServiceResult<Option<RowWrites>> {
        if rows.server_time().is_none_or(|time| !time.is_foreign) {
            return Ok(None);
        }
        let schema = self.served(tablet)?.tablet.schema();
        let now = server_timestamp(schema.time_unit, schema.granularity, self.env().wall_micros());
        Ok(Some(rows.at_server_time(now)))
    }
}

#[async_trait]
impl TabletControl for TabletServer {
    async fn create_tablets(&self, schema: Arc<TableSchema>, tablets: Vec<(TabletId, RowRange)>) -> ServiceResult<()> {
        self.lifecycle.create_empty(schema, tablets).await
    }

    async fn drop_tablets(&self, tablets: Vec<TabletId>) {
        self.lifecycle.drop_all(tablets).await;
    }

    async fn set_schema(&self, schema: Arc<TableSchema>) {
        self.assignments.note_schema(&schema);
        self.lifecycle.publish_schema(&schema);
    }

    async fn unsettled(&self, tablet: TabletId, version: u64) -> ServiceResult<BTreeSet<FamilyId>> {
        let served = self.served(tablet)?;
        if served.tablet.with_schema(|schema| schema.version < version) {
            let message = format!("the tablet does not know version {version} of its schema yet");
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        let state = served.tablet.state();
        Ok(state
            .misplaced()
            .iter()
            .map(|misplaced_cells| misplaced_cells.family)
            .collect())
    }

    async fn drop_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()> {
        self.lifecycle.drop_rows(tablet, range).await
    }

    async fn flush(&self, tablet: TabletId) -> ServiceResult<()> {
        self.upkeep.flusher.flush_now(tablet).await
    }

    async fn compact(&self, tablet: TabletId, major: bool) -> ServiceResult<()> {
        self.upkeep.compactor.request(tablet, major)
    }

    async fn compaction(&self, tablet: TabletId) -> ServiceResult<CompactionState> {
        self.upkeep.compactor.state(tablet)
    }

    async fn split_candidates(&self, policy: &SplitPolicy) -> Vec<TabletId> {
        self.splitter.candidates(policy)
    }

    async fn prepare_split(
        &self,
        tablet: TabletId,
        halves: (TabletId, TabletId),
        at: Option<Bytes>,
    ) -> ServiceResult<Option<Bytes>> {
        self.splitter.prepare(tablet, halves, at).await
    }

    async fn prepare_merge(&self, tablets: Vec<TabletId>, merged: TabletId) -> ServiceResult<()> {
        self.replacements.prepare_merge(tablets, merged).await
    }

    async fn prepare_truncation(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<TabletId>,
        empty: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()> {
        self.replacements.prepare_truncation(schema, tablets, empty).await
    }

    async fn take_snapshot(
        &self,
        snapshot: SnapshotId,
        tablets: Vec<TabletId>,
        flush: bool,
    ) -> ServiceResult<SnapshotFiles> {
        self.snapshots.take(snapshot, tablets, flush).await
    }

    async fn copy_snapshot(&self, from: (SnapshotId, u32), to: SnapshotId) -> ServiceResult<SnapshotFiles> {
        self.snapshots.copy(from, to).await
    }

    async fn drop_snapshot(&self, snapshot: SnapshotId, parts: u32) {
        self.snapshots.drop_files(snapshot, parts).await;
    }

    async fn clone_snapshot(
        &self,
        schema: Arc<TableSchema>,
        snapshot: (SnapshotId, u32),
        tablets: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        self.snapshots.clone_tablets(schema, snapshot, tablets).await
    }

    async fn prepare_restore(
        &self,
        schema: Arc<TableSchema>,
        snapshot: (SnapshotId, u32),
        old: Vec<TabletId>,
        new: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        self.snapshots.prepare_restore(schema, snapshot, old, new).await
    }

    async fn is_short_of_space(&self) -> bool {
        self.parts.admission.is_short_of_space()
    }

    async fn finish_replacement(&self, first: TabletId, committed: bool) {
        self.replacements.finish(first, committed).await;
    }
}

fn stopped() -> ServiceError {
    ServiceError::new(
        ErrorKind::Aborted,
        "the server stopped before the tablet was opened or closed",
    )
}

/// Openings and closings are tasks of their own: they are not stopped half-way when their caller goes away.
#[async_trait]
impl TabletAssignments for TabletServer {
    async fn open_tablets(&self, assignments: Vec<Assignment>) -> Vec<ServiceResult<()>> {
        let (count, of_server) = (assignments.len(), self.assignments.clone());
        let open = async move { of_server.open(assignments).await };
        let opened = self.env().spawn_join(Priority::Foreground, "open tablets", open).await;
        opened.unwrap_or_else(|_| vec![Err(stopped()); count])
    }

    async fn close_tablet(
        &self,
        tablet: TabletId,
        epoch: Epoch,
        closing: Closing,
        confirm: Confirm,
    ) -> ServiceResult<bool> {
        let of_server = self.assignments.clone();
        let close = async move { of_server.close(tablet, epoch, closing, confirm).await };
        let closed = self
            .env()
            .spawn_join(Priority::Foreground, "close a tablet", close)
            .await;
        closed.unwrap_or_else(|_| Err(stopped()))
    }

    async fn load(&self) -> ServiceResult<ServerLoad> {
        Ok(self.assignments.load().await)
    }

    async fn files_in_use(&self) -> ServiceResult<FilesInUse> {
        Ok(self.parts.context.files.in_use())
    }
}

#[cfg(test)]
mod tests;
