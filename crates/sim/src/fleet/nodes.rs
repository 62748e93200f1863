//! All servers of a cluster as one service: each request goes to any of them.

use super::Fleet;
use super::node::Node;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_client::{
    MutateRows, ReadRows, RowOperation, RowOutcome, RowSample, RowStream, RowsOperation, ServiceError, ServiceResult,
    TableAdmin, TableService, TabletInfo, TabletPlace,
};
use stele_types::{ErrorKind, RowRange, ServerId, TableName, TableSchema};

/// The servers that run.
pub(super) struct Nodes {
    fleet: Arc<Fleet>,
    nodes: Mutex<Vec<Arc<Node>>>,
}

impl Nodes {
    pub(super) fn new(fleet: Arc<Fleet>) -> Arc<Nodes> {
        Arc::new(Nodes {
            fleet,
            nodes: Mutex::default(),
        })
    }

    /// Those whose processes have not ended.
    pub(super) fn running(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.lock();
        nodes.retain(|node| !node.process.has_ended());
        nodes.clone()
    }

    pub(super) fn add(&self, node: Arc<Node>) {
        self.nodes.lock().push(node);
    }

    /// Requests to the coordinator of those that run, one excepted.
    pub(super) fn coordinator_requests(&self, except: ServerId) -> u64 {
        let running = self.running();
        let others = running.iter().filter(|node| node.number != except);
        others.map(|node| node.link.requests()).sum()
    }

    /// One of them.
    pub(super) fn any(&self) -> Option<Arc<Node>> {
        let running = self.running();
        let count = running.len() as u64;
        (count > 0).then(|| running[self.fleet.below(count) as usize].clone())
    }

    fn some(&self) -> ServiceResult<Arc<Node>> {
        self.any()
            .ok_or_else(|| ServiceError::new(ErrorKind::Unavailable, "no server runs"))
    }

    /// Has one of them answer.
    async fn ask<T, F>(&self, request: impl FnOnce(Arc<Node>) -> F) -> ServiceResult<T>
    where
        T: Send + 'static,
        F: Future<Output = ServiceResult<T>> + Send + 'static,
    {
        let node = self.some()?;
        node.call(&self.fleet.env, request(node.clone())).await?
    }

    /// An administrative call through one of them.
    pub(super) async fn administer<T, F>(&self, call: impl FnOnce(Arc<dyn TableAdmin>) -> F) -> ServiceResult<T>
    where
        T: Send + 'static,
        F: Future<Output = ServiceResult<T>> + Send + 'static,
    {
        self.ask(|node| call(node.admin.clone())).await
    }
}

fn unused<T>() -> ServiceResult<T> {
    Err(ServiceError::new(
        ErrorKind::Unimplemented,
        "the clients do not call it",
    ))
}

#[async_trait]
impl TableService for Nodes {
    fn schema(&self, _: &TableName) -> ServiceResult<Arc<TableSchema>> {
        unused()
    }

    async fn read_rows(&self, request: ReadRows) -> ServiceResult<Box<dyn RowStream>> {
        let node = self.some()?;
        let service = node.service.clone();
        node.stream(&self.fleet.env, async move { service.read_rows(request).await })
            .await
    }

    async fn mutate_rows(&self, request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>> {
        self.ask(|node| async move { node.service.mutate_rows(request).await })
            .await
    }

    async fn mutate_rows_together(&self, _: MutateRows) -> ServiceResult<()> {
        unused()
    }

    async fn row_operation(&self, request: RowOperation) -> ServiceResult<RowOutcome> {
        self.ask(|node| async move { node.service.row_operation(request).await })
            .await
    }

    async fn rows_operation(&self, _: RowsOperation) -> ServiceResult<bool> {
        unused()
    }

    async fn sample_row_keys(&self, _: &TableName, _: RowRange) -> ServiceResult<Vec<RowSample>> {
        unused()
    }

    fn place_of(&self, _: &TableName, _: &[u8]) -> ServiceResult<TabletPlace> {
        unused()
    }

    fn places(&self, _: &TableName) -> ServiceResult<Vec<TabletPlace>> {
        unused()
    }

    async fn tablets(&self, _: &TableName) -> ServiceResult<Vec<TabletInfo>> {
        unused()
    }
}
