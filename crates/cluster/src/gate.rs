//! Writes that come over a hop: the caller may know a newer schema than the tablet.
//!
//! Every server learns of a schema in its own time. A write to a family that the tablet does not know would lose its cells at
//! the next flush, so it is refused as if the tablet had moved: the caller repeats it, and by then the tablet knows.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_client::{
    RowOutcome, RowStream, ServiceError, ServiceResult, Step, TabletRead, TabletRowOperation, TabletSample,
    TabletService,
};
use stele_filter::Filter;
use stele_tabletserver::TabletServer;
use stele_types::{Durability, ErrorKind, FamilyId, RowBatch, RowWrites, TabletId};

/// The tablets of this server for callers with a catalog of their own.
pub(crate) struct Gate {
    pub(crate) tablets: Arc<dyn TabletService>,
    pub(crate) server: Arc<TabletServer>,
}

impl Gate {
    fn check(&self, tablet: TabletId, families: &BTreeSet<FamilyId>) -> ServiceResult<()> {
        let schema = self.server.served(tablet)?.tablet.schema();
        match families.iter().find(|family| !schema.families.contains_key(family)) {
            None => Ok(()),
            Some(family) => {
                let message = format!("the tablet does not know family {family} yet, or not any more");
                Err(ServiceError::new(ErrorKind::Unavailable, message))
            }
        }
    }
}

fn families_of(rows: &RowWrites) -> BTreeSet<FamilyId> {
    let mut families = BTreeSet::new();
    for row in rows.iter() {
        row.for_each(|mutation| {
            families.extend(mutation.family());
        });
    }
    families
}

fn families_of_steps(request: &TabletRowOperation) -> BTreeSet<FamilyId> {
    let steps = request.steps.iter().chain(&request.otherwise);
    let family = |step: &Step| match step {
        Step::Mutate(mutation) | Step::MutateNow(mutation) => mutation.family(),
        Step::DeleteNewest { family, .. } => Some(*family),
        Step::Modify(rule) => Some(rule.family),
    };
    steps.filter_map(family).collect()
}

#[async_trait]
impl TabletService for Gate {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        self.tablets.read(tablet, request).await
    }

    fn try_read_row(
        &self,
        tablet: TabletId,
        row: &Bytes,
        filter: Option<&Arc<Filter>>,
    ) -> ServiceResult<Option<RowBatch>> {
        self.tablets.try_read_row(tablet, row, filter)
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        self.check(tablet, &families_of(&rows))?;
        self.tablets.mutate(tablet, rows, durability).await
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        self.check(tablet, &families_of_steps(&request))?;
        self.tablets.row_operation(tablet, request).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.tablets.sample(tablet, every).await
    }
}
