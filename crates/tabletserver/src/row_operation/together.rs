//! Operations on several rows of a tablet, which are latched, read and written as one.
//!
//! The rows are few, and their mutations are one batch: one record of the log, which becomes visible as a whole. Reads follow the
//! rules of operations on one row. A read that finds too little free memory gives up all latches and all memory. The operation is
//! begun again with the memory that it then knows to need for all its rows, which it takes in one piece. So no operation has memory
//! and waits for more. Random choices of filters are made again, so conditions should make none.

use super::steps::{self, Times};
use super::{RowOperations, columns, condition};
use crate::commit::{Held, Reserved};
use crate::read_for_write::{Begun, NeedsReservation, RowCells};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use stele_client::request::server_timestamp;
use stele_client::{Condition, ServiceError, ServiceResult, Step, TabletRowsOperation};
use stele_tablet::WriteSize;
use stele_types::{ErrorKind, RowMutation, TabletId};

/// Attempts that an operation has. Each that is given up has found a row that takes more memory than was known.
const ATTEMPTS_MAX: usize = 64;

/// The memory with which the next read of a row begins.
type Reserve = BTreeMap<Bytes, Begun>;

/// The rows before the operation.
struct Found {
    /// Cells of the columns that the steps change, by row.
    columns: Vec<Option<RowCells>>,
}

/// The end of an attempt to read the rows.
enum Reading {
    /// All conditions hold.
    Holds(Found),
    /// One does not.
    Fails,
    /// The read of this row needs memory.
    Lacks(Bytes, NeedsReservation),
}

impl RowOperations {
    /// Applies an operation; returns when it is as durable as asked. Whether its conditions held.
    pub(crate) async fn apply_together(&self, tablet: TabletId, operation: TabletRowsOperation) -> ServiceResult<bool> {
        let TabletRowsOperation {
            conditions,
            rows,
            durability,
        } = operation;
        let mut steps: BTreeMap<Bytes, Vec<Step>> = BTreeMap::new();
        for (row, of_row) in rows {
            steps.entry(row).or_default().extend(of_row);
        }
        let of_conditions = conditions.iter().map(|(row, _)| &row[..]);
        let all: BTreeSet<&[u8]> = of_conditions.chain(steps.keys().map(|row| &row[..])).collect();
        let all: Vec<&[u8]> = all.into_iter().collect();
        assert!(
            all.len() <= conditions.len() + steps.len(),
            "each row is latched once, however many conditions and steps it has"
        );
        let size = WriteSize::sum(steps.iter().map(|(row, steps)| steps::least_size(row, steps)));
        let mut needs: BTreeMap<Bytes, usize> = BTreeMap::new();
        for _ in 0..ATTEMPTS_MAX {
            let reserve = self.reserve_rows(&needs).await?;
            let (held, reserved) = self.own_rows(tablet, &all, &[size]).await?;
            match self.read_together(&held, &conditions, &steps, reserve).await? {
                Reading::Fails => return Ok(false),
                Reading::Lacks(row, lacks) => {
                    let known = needs.entry(row).or_default();
                    *known = lacks.bytes().max(*known);
                }
                Reading::Holds(found) => {
                    let rows = self.resolve_together(&held, steps, &found)?;
                    if !rows.is_empty() {
                        let columns = found.columns.into_iter().flatten();
                        let reserved = Reserved {
                            rows: columns.map(RowCells::without_cells).collect(),
                            ..reserved
                        };
                        self.commit_rows((rows.into(), None), durability, held, reserved)
                            .await?;
                    }
                    return Ok(true);
                }
            }
        }
        let message = "the rows of the operation take more memory than is free: retry later";
        Err(ServiceError::new(ErrorKind::Busy, message))
    }

    /// Waits for the memory that rows are known to need. Nothing is held.
    async fn reserve_rows(&self, needs: &BTreeMap<Bytes, usize>) -> ServiceResult<Reserve> {
        let memory = &self.write.admission.rows;
        let bytes = needs.values().fold(0usize, |sum, bytes| sum.saturating_add(*bytes));
        if bytes == 0 {
            return Ok(Reserve::new());
        }
        if needs.len() > 1 && bytes > memory.all_bytes() {
            let message = format!(
                "the rows of the operation take {bytes} bytes to be read, and there are {} for all writes",
                memory.all_bytes()
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let all = memory.take(bytes).await?;
        let mut reserve = Reserve::new();
        let mut rows = needs.iter().peekable();
        while let Some((row, bytes)) = rows.next() {
            if rows.peek().is_none() {
                reserve.insert(row.clone(), Begun::from(all));
                break;
            }
            reserve.insert(row.clone(), Begun::from(all.split(*bytes)));
        }
        assert_eq!(
            reserve.len(),
            needs.len(),
            "each row that is known to need memory begins with it"
        );
        Ok(reserve)
    }

    /// Tests the conditions, and reads the columns that the steps change. The latches of all rows are held.
    async fn read_together(
        &self,
        held: &Held,
        conditions: &[(Bytes, Condition)],
        steps: &BTreeMap<Bytes, Vec<Step>>,
        mut reserve: Reserve,
    ) -> ServiceResult<Reading> {
        let tablet = &held.entered.tablet;
        let (schema, memory) = (tablet.schema(), &self.write.admission.rows);
        for (row, condition) in conditions {
            let begun = reserve.remove(row).unwrap_or_default();
            match condition::test(tablet, &schema, row, condition, memory, begun).await? {
                Err(lacks) => return Ok(Reading::Lacks(row.clone(), lacks)),
                Ok((tested, _)) if !tested.holds => return Ok(Reading::Fails),
                Ok((_, begun)) => {
                    reserve.insert(row.clone(), begun);
                }
            }
        }
        let mut columns = Vec::with_capacity(steps.len());
        for (row, steps) in steps {
            let begun = reserve.remove(row).unwrap_or_default();
            match columns::read(tablet, &schema, row, steps, memory, begun).await? {
                Err(lacks) => return Ok(Reading::Lacks(row.clone(), lacks)),
                Ok(read) => columns.push(read),
            }
        }
        Ok(Reading::Holds(Found { columns }))
    }

    /// The mutations of the steps.
    fn resolve_together(
        &self,
        held: &Held,
        steps: BTreeMap<Bytes, Vec<Step>>,
        found: &Found,
    ) -> ServiceResult<Vec<RowMutation>> {
        assert_eq!(steps.len(), found.columns.len(), "the columns of each row were read");
        let schema = held.entered.tablet.schema();
        let wall_micros = self.write.env.wall_micros();
        held.latched.note_given(wall_micros);
        let now = server_timestamp(schema.time_unit, schema.granularity, wall_micros);
        // A condition on one row says nothing about the times of others.
        let times = Times { now, puts: now };
        let mut bytes_left = self.write.admission.rows.all_bytes();
        let mut rows = Vec::with_capacity(steps.len());
        for ((row, steps), columns) in steps.into_iter().zip(&found.columns) {
            let cells = columns.as_ref().map_or(&[][..], |columns| &columns.cells);
            let (mutations, written) = steps::resolve(&schema, cells, steps, times, bytes_left)?;
            let bytes: usize = written.iter().map(|cell| cell.value.len()).sum();
            bytes_left = bytes_left.saturating_sub(bytes);
            if !mutations.is_empty() {
                rows.push(RowMutation { row, mutations });
            }
        }
        debug_assert!(
            rows.is_sorted_by(|a, b| a.row < b.row),
            "each row is written once, in the order of rows"
        );
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
