//! The columns that steps read: those of rules, and those whose newest version is deleted.
//!
//! A rule needs the newest cell within its times, which is its operand. It also needs the newest cell of its column, whose
//! timestamp bounds that of the new cell unless that is a new version; a repeated operation may answer with it. Later rules of the column continue with the cell of the
//! first, so they need none. Several deletes of a column need as many versions of it.

use crate::memory::RowMemory;
use crate::read_for_write::{Begun, NeedsReservation, RowCells, Wanted, read_row, read_small_row};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult, Step};
use stele_filter::{CompiledFilter, Filter};
use stele_tablet::Tablet;
use stele_types::{Cell, Family, FamilyId, TableSchema, Timestamp};

/// Columns for which a filter spares the read all others. Beyond that many it passes over them one by one.
const COLUMNS_FILTERED_MAX: usize = 32;

/// A range of timestamps; the end is not in it.
type Times = (i64, i64);

/// The cells of a row that steps must know, or more of them; `None` if the steps read nothing.
pub(super) async fn read(
    tablet: &Arc<Tablet>,
    schema: &Arc<TableSchema>,
    row: &Bytes,
    steps: &[Step],
    memory: &RowMemory,
    begun: Begun,
) -> ServiceResult<Result<Option<RowCells>, NeedsReservation>> {
    let mut reads_any = false;
    for step in steps {
        if let Some((family, _)) = column_of(step) {
            family_of(schema, family)?;
            reads_any = true;
        }
    }
    if !reads_any {
        return Ok(Ok(None));
    }
    if let Some(read) = read_small_row(tablet, row, None)? {
        return Ok(Ok(Some(read)));
    }
    let columns = Columns::of(steps);
    let wanted = Wanted {
        filter: columns.filter(schema),
        keeps: &|cell, last| columns.keeps(cell, last),
        any: false,
    };
    Ok(match read_row(tablet, row, &wanted, memory, begun).await? {
        Ok(read) => Ok(Some(read)),
        // The condition is tested again before these columns are. This read has drawn nothing about the row for it.
        Err(lacks) => Err(lacks.without_samples()),
    })
}

/// The versions of a column, newest first, among cells in the order of a row.
pub(super) fn versions<'c>(cells: &'c [Cell], family: FamilyId, qualifier: &[u8]) -> &'c [Cell] {
    let column = (family, qualifier);
    let start = cells.partition_point(|cell| of_cell(cell) < column);
    let rest = cells.get(start..).unwrap_or_default();
    let len = rest.partition_point(|cell| of_cell(cell) == column);
    let versions = rest.get(..len).unwrap_or_default();
    debug_assert!(
        versions.is_sorted_by(|a, b| a.timestamp >= b.timestamp),
        "the versions of a column are read newest first"
    );
    versions
}

/// The newest of a column's versions within a range of timestamps; `None` is all timestamps.
pub(super) fn newest_within(versions: &[Cell], times: Option<Times>) -> Option<&Cell> {
    let later = times.map_or(0, |(_, end)| versions.partition_point(|cell| cell.timestamp.0 >= end));
    let newest = versions.get(later)?;
    is_within(newest.timestamp, times).then_some(newest)
}

/// A family that a step reads.
pub(super) fn family_of(schema: &TableSchema, family: FamilyId) -> ServiceResult<&Family> {
    let found = schema.families.get(&family);
    found.ok_or_else(|| ServiceError::not_found("Requested column family not found."))
}

fn is_within(timestamp: Timestamp, times: Option<Times>) -> bool {
    times.is_none_or(|(start, end)| (start..end).contains(&timestamp.0))
}

/// The column of a cell.
pub(super) fn of_cell(cell: &Cell) -> (FamilyId, &[u8]) {
    (cell.family, &cell.qualifier)
}

/// The column that a step reads.
fn column_of(step: &Step) -> Option<(FamilyId, &[u8])> {
    match step {
        Step::Mutate(_) | Step::MutateNow(_) => None,
        Step::DeleteNewest { family, qualifier } => Some((*family, qualifier)),
        Step::Modify(rule) => Some((rule.family, &rule.qualifier)),
    }
}

/// The columns that steps read of a row that is not small.
struct Columns<'s>(BTreeMap<(FamilyId, &'s [u8]), Needed>);

/// The cells of a column that are read.
#[derive(Clone, Copy)]
struct Needed {
    operand: Operand,
    /// How many deletes there are of a newest version.
    deletes: i32,
}

/// The cell of a column whose value is read.
#[derive(Clone, Copy)]
enum Operand {
    /// None: versions are deleted only.
    Nothing,
    /// The newest cell within these timestamps.
    Newest(Option<Times>),
}

impl<'s> Columns<'s> {
    fn of(steps: &'s [Step]) -> Self {
        let mut columns = BTreeMap::new();
        for step in steps {
            let Some(column) = column_of(step) else {
                continue;
            };
            let needed: &mut Needed = columns.entry(column).or_insert(Needed {
                operand: Operand::Nothing,
                deletes: 0,
            });
            match (needed.operand, step) {
                (Operand::Nothing, Step::Modify(first)) => needed.operand = Operand::Newest(first.times),
                (_, Step::DeleteNewest { .. }) => needed.deletes = needed.deletes.saturating_add(1),
                _ => {}
            }
        }
        Columns(columns)
    }

    /// Whether a cell is needed, behind the one that was kept last. The cells of a column come newest first. So no cell within
    /// the operand's times was kept unless the last one is within them.
    fn keeps(&self, cell: &Cell, last: Option<&Cell>) -> bool {
        let Some(needed) = self.0.get(&of_cell(cell)) else {
            return false;
        };
        let last = last.filter(|last| of_cell(last) == of_cell(cell));
        if needed.deletes > 1 {
            // The filter lets no more through than are deleted, unless there are too many columns for one. It may let the operand
            // through twice.
            return last.is_none_or(|last| last.timestamp != cell.timestamp);
        }
        match (&needed.operand, last) {
            (_, None) => true,
            (Operand::Nothing, Some(_)) => false,
            (Operand::Newest(times), Some(last)) => {
                is_within(cell.timestamp, *times) && !is_within(last.timestamp, *times)
            }
        }
    }

    /// Lets these cells through. `None` where there are too many columns, or none is of the table.
    fn filter(&self, schema: &Arc<TableSchema>) -> Option<Arc<CompiledFilter>> {
        if self.0.len() > COLUMNS_FILTERED_MAX {
            return None;
        }
        let mut members = Vec::new();
        for (&(family, qualifier), needed) in &self.0 {
            let qualifier = Bound::Included(Bytes::copy_from_slice(qualifier));
            let column = Filter::ColumnRange {
                family: schema.families.get(&family)?.name.to_string(),
                start: qualifier.clone(),
                end: qualifier,
            };
            let newest = Filter::CellsPerColumn(needed.deletes.max(1));
            match needed.operand {
                Operand::Nothing => members.push(Filter::Chain(vec![column, newest, Filter::StripValue])),
                Operand::Newest(None) => members.push(Filter::Chain(vec![column, newest])),
                // Both with their values: they may be the same cell, and then either of them is kept.
                Operand::Newest(Some((start, end))) => {
                    members.push(Filter::Chain(vec![column.clone(), newest.clone()]));
                    let end = Some(end.max(start));
                    let within = Filter::TimestampRange { start, end };
                    members.push(Filter::Chain(vec![column, within, newest]));
                }
            }
        }
        let filter = match members.len() {
            0 | 1 => members.pop()?,
            _ => Filter::Interleave(members),
        };
        Arc::new(filter).compile_shared(schema).ok()
    }
}
