//! Refuses writes over a hop to families that the tablet does not know.
//!
//! Every server learns of a schema in its own time, so the caller may know a newer one. A write to a family that the tablet does
//! not know would lose its cells at the next flush. It is refused as if the tablet had moved: the caller repeats it later.
//!
//! Tests of conditions are decoded here, by the front end in whose language they came.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_client::{
    Condition, ConditionTest, RowOutcome, RowStream, ServiceError, ServiceResult, Step, TabletFigures, TabletRead,
    TabletRowOperation, TabletRowsOperation, TabletSample, TabletService, TestDecoder,
};
use stele_filter::Filter;
use stele_tabletserver::TabletServer;
use stele_types::{Durability, ErrorKind, FamilyId, RowBatch, RowWrites, TabletId};

/// The tablets of this server for callers with a catalog of their own.
pub(crate) struct Gate {
    pub(crate) tablets: Arc<dyn TabletService>,
    pub(crate) server: Arc<TabletServer>,
    pub(crate) tests: Arc<dyn TestDecoder>,
}

impl Gate {
    fn decode(&self, tablet: TabletId, condition: &mut Condition) -> ServiceResult<()> {
        if let ConditionTest::Encoded(encoded) = &condition.test {
            let schema = self.server.served(tablet)?.tablet.schema();
            condition.test = ConditionTest::Cells(self.tests.decode(&schema, encoded)?);
        }
        Ok(())
    }

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

fn families_of_steps<'a>(steps: impl Iterator<Item = &'a Step>) -> BTreeSet<FamilyId> {
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

    async fn row_operation(&self, tablet: TabletId, mut request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        let steps = request.steps.iter().chain(&request.otherwise);
        self.check(tablet, &families_of_steps(steps))?;
        if let Some(condition) = &mut request.condition {
            self.decode(tablet, condition)?;
        }
        self.tablets.row_operation(tablet, request).await
    }

    async fn rows_operation(&self, tablet: TabletId, mut request: TabletRowsOperation) -> ServiceResult<bool> {
        let steps = request.rows.iter().flat_map(|(_, steps)| steps);
        self.check(tablet, &families_of_steps(steps))?;
        for (_, condition) in &mut request.conditions {
            self.decode(tablet, condition)?;
        }
        self.tablets.rows_operation(tablet, request).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.tablets.sample(tablet, every).await
    }

    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        self.tablets.figures(tablet).await
    }
}
