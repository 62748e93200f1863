//! Row operations read and write one row under its latch. They are conditional writes, increments, appends, and combinations
//! of these. An operation on several rows does the same under all their latches (`together`).
//!
//! An operation has two reads. The first is of the cells that its condition checks, the second of the columns that its steps
//! change. Both see the row before the operation, because the latch is exclusive.
//!
//! A row that is not small is read in partial rows, and only the cells that the operation must know are kept. For a condition
//! that is all that its test decides over, or one cell without its value where any cell does. For steps it is the newest
//! cell of each column. The bytes that rules write are checked against the memory for such rows before any of them is made.
//!
//! Invariant: a writer that holds a row's latch, or has passed a tablet's gate, never waits for anything that a plain write may
//! hold while it waits for the latch or the gate. So the reservation for its batch and its turn as a large write are taken
//! first, for the bytes that are known then. The bytes that a rule's cell has already are not known; the memory reserved for
//! the row covers them until they are written.
//!
//! How much memory a row takes shows when it is read. Under the latch only free memory is reserved, never the overdraft, which a
//! large plain write has from its arrival. Where free memory is too little, latch, gate and reservations are released, the
//! write waits, and the row is latched and read again with the memory reserved.
//!
//! An operation with a token that has taken effect before is not applied again (`repeated`). Its record is looked up under the
//! latch, so a repetition waits for an attempt that is under way.

mod columns;
mod condition;
mod modify;
mod repeated;
mod steps;
mod together;

use crate::commit::{Held, Reserved};
use crate::error::not_here;
use crate::read_for_write::{Begun, NeedsReservation, RowCells};
use crate::write::{Extent, Turn, WritePath, check_families};
use bytes::Bytes;
use condition::Tested;
use std::sync::Arc;
use stele_client::request::server_timestamp;
use stele_client::{Condition, RowOutcome, ServiceResult, Step, TabletRowOperation};
use stele_env::trace;
use stele_tablet::{Answer, BatchBuilder, TokenRecord, WriteSize};
use stele_types::{Durability, RequestToken, RowMutation, RowWrites, TableSchema, TabletId};
use steps::Times;

/// The least size of such a write for admission: the bytes that it writes may not be known yet.
const WRITE_BYTES: usize = 256;

/// Row operations of a server.
pub(crate) struct RowOperations {
    /// They latch and commit like all writes.
    write: Arc<WritePath>,
}

/// The state of a row before an operation, as far as the operation must know it.
struct Found {
    /// The result of the condition; one that holds if there is none.
    tested: Tested,
    schema: Arc<TableSchema>,
    /// Cells of the columns that the steps change; absent if they change none.
    columns: Option<RowCells>,
}

impl RowOperations {
    /// Commits through a write path.
    pub(crate) fn new(write: Arc<WritePath>) -> Self {
        RowOperations { write }
    }

    /// Applies an operation; returns when it is as durable as asked.
    pub(crate) async fn apply(&self, tablet: TabletId, operation: TabletRowOperation) -> ServiceResult<RowOutcome> {
        let TabletRowOperation {
            row,
            condition,
            steps,
            otherwise,
            durability,
            token,
        } = operation;
        let sizes = [&steps, &otherwise].map(|steps| steps::least_size(&row, steps));
        let mut begun = Begun::default();
        let (held, reserved, found, repeats) = loop {
            let (held, reserved) = self.own_rows(tablet, &[&row[..]], &sizes).await?;
            let repeats = match self.answer(&held, token.as_ref(), &row)? {
                Some(Answer {
                    matched,
                    written: Some(written),
                }) => return Ok(RowOutcome { matched, written }),
                answer => answer.map(|answer| answer.matched),
            };
            // Of a repetition the branch is known.
            let (condition, branches) = match repeats {
                None => (condition.as_ref(), [&steps[..], &otherwise[..]]),
                Some(true) => (None, [&steps[..], &[]]),
                Some(false) => (None, [&otherwise[..], &[]]),
            };
            let reading = trace::stage("read for write");
            let read = self.read(&held, &row, condition, branches, begun).await?;
            drop(reading);
            match read {
                Ok(found) => break (held, reserved, found, repeats),
                Err(lacks) => {
                    drop((held, reserved));
                    begun = lacks.wait(&self.write.admission.rows).await?;
                }
            }
        };
        let Found {
            tested: Tested { holds: matched, first },
            schema,
            columns,
        } = found;
        let matched = repeats.unwrap_or(matched);
        let steps = if matched { steps } else { otherwise };
        // Under the latch: a time from before it could be before that of a write which this operation has seen.
        let wall_micros = self.write.env.wall_micros();
        held.latched.note_given(wall_micros);
        let now = server_timestamp(schema.time_unit, schema.granularity, wall_micros);
        let puts = first.map_or(now, |first| first.max(now));
        let times = Times { now, puts };
        let cells = columns.as_ref().map_or(&[][..], |columns| &columns.cells);
        if repeats.is_some() {
            return Ok(repeated::outcome(matched, cells, &steps));
        }
        let (mutations, written) = steps::resolve(&schema, cells, steps, times, self.write.admission.rows.all_bytes())?;
        if !mutations.is_empty() {
            let record = token.map(|token| TokenRecord::new(&token, &row, wall_micros, matched, &written));
            let rows = vec![RowMutation { row, mutations }].into();
            let reserved = Reserved {
                rows: columns.map(RowCells::without_cells).into_iter().collect(),
                ..reserved
            };
            self.commit_rows((rows, record), durability, held, reserved).await?;
        }
        Ok(RowOutcome { matched, written })
    }

    /// The answer of an earlier attempt at an operation with a token. The latch of the row is held.
    fn answer(&self, held: &Held, token: Option<&RequestToken>, row: &Bytes) -> ServiceResult<Option<Answer>> {
        let Some(token) = token else {
            return Ok(None);
        };
        let answer = repeated::answer(&held.entered.tablet, token, row, self.write.env.wall_micros())?;
        if answer.is_some() {
            self.write.repeated.inc();
        }
        Ok(answer)
    }

    /// Tests the condition, and reads the columns that the steps of its branch change: the first branch if it holds.
    async fn read(
        &self,
        held: &Held,
        row: &Bytes,
        condition: Option<&Condition>,
        [steps, otherwise]: [&[Step]; 2],
        begun: Begun,
    ) -> ServiceResult<Result<Found, NeedsReservation>> {
        let tablet = &held.entered.tablet;
        let (schema, memory) = (tablet.schema(), &self.write.admission.rows);
        let (tested, begun) = match condition {
            None => {
                let (holds, first) = (true, None);
                (Tested { holds, first }, begun)
            }
            Some(condition) => match condition::test(tablet, &schema, row, condition, memory, begun).await? {
                Ok(tested) => tested,
                Err(lacks) => return Ok(Err(lacks)),
            },
        };
        let steps = if tested.holds { steps } else { otherwise };
        let columns = columns::read(tablet, &schema, row, steps, memory, begun).await?;
        Ok(columns.map(|columns| Found {
            tested,
            schema,
            columns,
        }))
    }

    /// Logs and applies the result of such a write.
    async fn commit_rows(
        &self,
        (rows, record): (RowWrites, Option<TokenRecord>),
        durability: Option<Durability>,
        mut held: Held,
        mut reserved: Reserved,
    ) -> ServiceResult<()> {
        let size = WriteSize::of(&rows);
        check_families(&held.entered, &size)?;
        let extent = self.write.extent_of(held.entered.tablet.id(), &size)?;
        let excess = extent.applied.saturating_sub(reserved.applied);
        assert!(
            reserved.excess.is_none(),
            "a write is counted beyond its reservation once"
        );
        reserved.excess = self
            .write
            .admission
            .is_large(excess)
            .then(|| self.write.admission.count_in(excess));
        held.keep(reserved);
        let mut builder = BatchBuilder::default();
        builder.push_rows_within(&rows, size.batch());
        self.write.commit(builder.finish_with(record), durability, held).await
    }

    /// Latches rows for a write, with reservations for the largest of these sizes.
    async fn own_rows(&self, tablet: TabletId, rows: &[&[u8]], sizes: &[WriteSize]) -> ServiceResult<(Held, Reserved)> {
        let mut most = Extent {
            copied: 0,
            applied: WRITE_BYTES,
        };
        for size in sizes {
            let extent = self.write.extent_of(tablet, size)?;
            most.copied = most.copied.max(extent.copied);
            most.applied = most.applied.max(extent.applied);
        }
        let served = self.write.admit(tablet, most.applied).await?;
        let (entered, turn) = match self.write.is_small(most) {
            true => (self.write.enter(served).await?, Turn::default()),
            false => self.write.enter_in_turn(served, most).await?,
        };
        if rows.iter().any(|row| !entered.tablet.range().contains(row)) {
            return Err(not_here(tablet));
        }
        let latching = trace::lengthy("wait: latch");
        let latched = self.write.latches.own_all(rows.iter().copied()).await;
        drop(latching);
        let cached = self.write.row_cache.keys(tablet, rows.iter().copied());
        let held = Held::new(entered, latched, cached);
        Ok((held, turn.reserve(most.applied)))
    }
}

#[cfg(test)]
mod tests;
