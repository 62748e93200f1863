//! The two interfaces of the server: data for the router, control for the master.

use crate::server::TabletServer;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_client::{
    RmwRule, RowStream, ServiceResult, TabletCheckAndMutate, TabletControl, TabletRead, TabletSample, TabletService,
};
use stele_filter::Filter;
use stele_types::{Cell, Durability, FamilyId, RowBatch, RowRange, RowWrites, TableSchema, TabletId};

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
        self.writer.write(tablet, &rows, durability).await
    }

    async fn check_and_mutate(&self, tablet: TabletId, request: TabletCheckAndMutate) -> ServiceResult<bool> {
        self.rmw.check_and_mutate_row(tablet, request).await
    }

    async fn read_modify_write(
        &self,
        tablet: TabletId,
        row: Bytes,
        rules: Vec<RmwRule>,
        durability: Option<Durability>,
    ) -> ServiceResult<Vec<Cell>> {
        self.rmw.read_modify_write_row(tablet, row, rules, durability).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.reader.sample_tablet(tablet, every).await
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
        self.lifecycle.publish_schema(&schema);
    }

    fn unsettled(&self, tablet: TabletId) -> ServiceResult<BTreeSet<FamilyId>> {
        let state = self.served(tablet)?.tablet.state();
        Ok(state
            .misplaced()
            .iter()
            .map(|misplaced_cells| misplaced_cells.family)
            .collect())
    }

    async fn drop_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()> {
        self.lifecycle.drop_rows(tablet, range).await
    }

    fn split_candidates(&self) -> Vec<TabletId> {
        self.splitter.candidates()
    }

    async fn prepare_split(&self, tablet: TabletId, left: TabletId, right: TabletId) -> ServiceResult<Option<Bytes>> {
        self.splitter.prepare(tablet, left, right).await
    }

    async fn finish_split(&self, tablet: TabletId, committed: bool) {
        self.splitter.finish(tablet, committed).await;
    }
}

#[cfg(test)]
mod tests;
