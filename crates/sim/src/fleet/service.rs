//! The way from the router to the server of a tablet.

use super::Fleet;
use super::member::Member;
use async_trait::async_trait;
use std::sync::Arc;
use stele_client::{
    RowOutcome, RowStream, ServiceError, ServiceResult, TabletRead, TabletRowOperation, TabletSample, TabletService,
};
use stele_tabletserver::TabletServer;
use stele_types::{Durability, ErrorKind, RowWrites, TabletId};

/// Calls the servers of tablets.
pub(super) struct Dispatch {
    fleet: Arc<Fleet>,
}

impl Dispatch {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Dispatch { fleet }
    }

    fn member(&self, tablet: TabletId) -> ServiceResult<Arc<Member>> {
        let table = self.fleet.table.lock();
        let server = table.places.get(&tablet).map(|place| place.server);
        let of = |server| table.members.get(&server).or_else(|| table.leaving.get(&server));
        let member = server.and_then(of).cloned();
        let message = || format!("tablet {tablet} has no server");
        member.ok_or_else(|| ServiceError::new(ErrorKind::Unavailable, message()))
    }

    async fn call<T, F>(&self, tablet: TabletId, call: impl FnOnce(Arc<TabletServer>) -> F) -> ServiceResult<T>
    where
        T: Send + 'static,
        F: Future<Output = ServiceResult<T>> + Send + 'static,
    {
        let member = self.member(tablet)?;
        member.call(&self.fleet.env, call(member.server.clone())).await?
    }
}

#[async_trait]
impl TabletService for Dispatch {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        let member = self.member(tablet)?;
        let server = member.server.clone();
        member
            .stream(&self.fleet.env, async move {
                TabletService::read(&*server, tablet, request).await
            })
            .await
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        let write = |server: Arc<TabletServer>| async move { server.mutate(tablet, rows, durability).await };
        self.call(tablet, write).await
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        let apply = |server: Arc<TabletServer>| async move { server.row_operation(tablet, request).await };
        self.call(tablet, apply).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        let sample = |server: Arc<TabletServer>| async move { server.sample(tablet, every).await };
        self.call(tablet, sample).await
    }
}
