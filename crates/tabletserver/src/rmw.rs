//! Conditional writes, increments and appends read and write one row under its latch.
//!
//! A row that is not small is read in partial rows, and only the cells that the write must know are kept. For a predicate that
//! is whether any cell passes, without its value where the predicate does not test it; for rules it is the newest cell of
//! each column. The bytes that rules write are checked against the memory for such rows before any of them is made.
//!
//! Invariant: a writer that holds a row's latch, or has passed a tablet's gate, never waits for anything that a plain write may
//! hold while it waits for the latch or the gate. So the reservation for its batch and its turn as a large write are taken
//! first, for the bytes that are known then. The bytes that a rule's cell has already are not known; the memory reserved for
//! the row covers them until they are written.
//!
//! How much memory a row takes shows when it is read. Under the latch only free memory is reserved, never the overdraft, which a
//! large plain write has from its arrival. Where free memory is too little, latch, gate and reservations are released, the
//! write waits, and the row is latched and read again with the memory reserved.

use crate::commit::{Held, Reserved};
use crate::error::not_here;
use crate::memory::WriteMemory;
use crate::read_for_write::{Begun, NeedsReservation, RowCells, Wanted, compile, read_row, read_small_row};
use crate::write::WritePath;
use bytes::{BufMut as _, Bytes, BytesMut};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use stele_client::request::server_timestamp;
use stele_client::{RmwOperation, RmwRule, ServiceError, ServiceResult, TabletCheckAndMutate};
use stele_filter::{CompiledFilter, Filter};
use stele_tablet::{BatchBuilder, WriteSize};
use stele_types::{
    Cell, Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowWrites, TableSchema, TabletId, Timestamp, limits,
};

/// The least size of such a write for admission: the bytes that it writes may not be known yet.
const WRITE_BYTES: usize = 256;

/// Columns of rules for which a filter spares the read all others. Beyond that many it passes over them one by one.
const COLUMNS_FILTERED_MAX: usize = 32;

/// Conditional writes and read-modify-writes of a server.
pub(crate) struct ReadModifyWrite {
    /// They latch and commit like all writes.
    write: Arc<WritePath>,
}

impl ReadModifyWrite {
    /// Commits through a write path.
    pub(crate) fn new(write: Arc<WritePath>) -> Self {
        ReadModifyWrite { write }
    }

    /// Whether the predicate matched; the mutation of that case has been applied.
    pub(crate) async fn check_and_mutate_row(
        &self,
        tablet: TabletId,
        request: TabletCheckAndMutate,
    ) -> ServiceResult<bool> {
        let writes = |mutation: RowMutation| RowWrites::from(vec![mutation]);
        let (on_match, otherwise) = (request.on_match.map(writes), request.otherwise.map(writes));
        let sizes = [&on_match, &otherwise].map(|rows| rows.as_ref().map(WriteSize::of).unwrap_or_default());
        let mut begun = Begun::default();
        let (held, reserved, read) = loop {
            let (held, reserved) = self.own_row(tablet, &request.row, &sizes).await?;
            let predicate = request.predicate.as_ref();
            match self.read_matching(&held, &request.row, predicate, begun).await? {
                Ok(read) => break (held, reserved, read),
                Err(lacks) => {
                    drop((held, reserved));
                    begun = lacks.wait(&self.write.admission.rows).await?;
                }
            }
        };
        let matched = !read.cells.is_empty();
        drop(read);
        let rows = if matched { on_match } else { otherwise };
        if let Some(rows) = rows {
            self.commit_row(rows, request.durability, held, reserved).await?;
        }
        Ok(matched)
    }

    /// The cells written, one per column, in key order.
    pub(crate) async fn read_modify_write_row(
        &self,
        tablet: TabletId,
        row: Bytes,
        rules: Vec<RmwRule>,
        durability: Option<Durability>,
    ) -> ServiceResult<Vec<Cell>> {
        let size = size_of_rules(&row, &rules);
        let mut begun = Begun::default();
        let (held, reserved, schema, mut read) = loop {
            let (held, reserved) = self.own_row(tablet, &row, &[size]).await?;
            let schema = held.entered.tablet.schema();
            match self.read_columns(&held, &schema, &row, &rules, begun).await? {
                Ok(read) => break (held, reserved, schema, read),
                Err(lacks) => {
                    drop((held, reserved));
                    begun = lacks.wait(&self.write.admission.rows).await?;
                }
            }
        };
        let newest = newest_cells(std::mem::take(&mut read.cells));
        let now = server_timestamp(schema.time_unit, schema.granularity, self.write.env.wall_micros());
        let written = apply_rules(&schema, newest, &rules, now, self.write.admission.rows.all_bytes())?;
        let mutations = written.iter().map(|cell| Mutation::Put {
            family: cell.family,
            qualifier: cell.qualifier.clone(),
            timestamp: cell.timestamp,
            value: cell.value.clone(),
        });
        let mutation = RowMutation {
            row,
            mutations: mutations.collect(),
        };
        let reserved = Reserved {
            row: Some(read),
            ..reserved
        };
        self.commit_row(vec![mutation].into(), durability, held, reserved)
            .await?;
        Ok(written)
    }

    /// The cells of a row that pass a predicate; of a row that is not small, one of them.
    async fn read_matching(
        &self,
        held: &Held,
        row: &Bytes,
        predicate: Option<&Arc<Filter>>,
        begun: Begun,
    ) -> ServiceResult<Result<RowCells, NeedsReservation>> {
        let tablet = &held.entered.tablet;
        let schema = tablet.schema();
        let filter = compile(predicate, &schema)?;
        if let Some(read) = read_small_row(tablet, row, filter.as_ref())? {
            return Ok(Ok(read));
        }
        let wanted = Wanted {
            filter: without_values(predicate.map(|predicate| &**predicate), &schema).or(filter),
            keeps: &|_, last| last.is_none(),
            any: true,
        };
        read_row(tablet, row, &wanted, &self.write.admission.rows, begun).await
    }

    /// A row, or of one that is not small the newest cells of the columns that rules change.
    async fn read_columns(
        &self,
        held: &Held,
        schema: &Arc<TableSchema>,
        row: &Bytes,
        rules: &[RmwRule],
        begun: Begun,
    ) -> ServiceResult<Result<RowCells, NeedsReservation>> {
        if let Some(read) = read_small_row(&held.entered.tablet, row, None)? {
            return Ok(Ok(read));
        }
        let columns: BTreeSet<(FamilyId, &[u8])> = rules.iter().map(|r| (r.family, &r.qualifier[..])).collect();
        let of = |cell: &Cell| (cell.family, cell.qualifier.clone());
        let keeps = |cell: &Cell, last: Option<&Cell>| {
            columns.contains(&(cell.family, &cell.qualifier[..])) && last.is_none_or(|last| of(last) != of(cell))
        };
        let wanted = Wanted {
            filter: filter_of(&columns, schema),
            keeps: &keeps,
            any: false,
        };
        read_row(&held.entered.tablet, row, &wanted, &self.write.admission.rows, begun).await
    }

    /// Logs and applies the result of such a write.
    async fn commit_row(
        &self,
        rows: RowWrites,
        durability: Option<Durability>,
        mut held: Held,
        mut reserved: Reserved,
    ) -> ServiceResult<()> {
        let size = WriteSize::of(&rows);
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
        self.write.commit(builder.finish(), durability, held).await
    }

    /// Latches a row for a write, with reservations for the largest of these sizes.
    async fn own_row(&self, tablet: TabletId, row: &Bytes, sizes: &[WriteSize]) -> ServiceResult<(Held, Reserved)> {
        let (mut copied, mut applied) = (0, WRITE_BYTES);
        for size in sizes {
            let extent = self.write.extent_of(tablet, size)?;
            copied = copied.max(extent.copied);
            applied = applied.max(extent.applied);
        }
        let reservation = match WriteMemory::is_needed(copied) {
            true => Some(self.write.reserve_batch(copied).await?),
            false => None,
        };
        let served = self.write.admit(tablet, applied).await?;
        let coming = match self.write.admission.is_large(applied) {
            true => Some(self.write.let_in(applied).await?),
            false => None,
        };
        let entered = self.write.enter(served).await?;
        if !entered.tablet.range().contains(row) {
            return Err(not_here(tablet));
        }
        let latched = self.write.latches.own(row).await;
        let held = Held::new(
            entered,
            latched,
            self.write.row_cache.keys(tablet, [&row[..]].into_iter()),
        );
        let reserved = Reserved {
            reservation,
            coming,
            applied,
            excess: None,
            row: None,
        };
        Ok((held, reserved))
    }
}

/// The least that rules write: the bytes that their columns have already are not known.
fn size_of_rules(row: &Bytes, rules: &[RmwRule]) -> WriteSize {
    let put = |rule: &RmwRule| Mutation::Put {
        family: rule.family,
        qualifier: rule.qualifier.clone(),
        timestamp: Timestamp(0),
        value: match &rule.operation {
            RmwOperation::Append(suffix) => suffix.clone(),
            RmwOperation::Increment(_) => Bytes::from_static(&[0; size_of::<i64>()]),
        },
    };
    let mutation = RowMutation {
        row: row.clone(),
        mutations: rules.iter().map(put).collect(),
    };
    WriteSize::of(&vec![mutation].into())
}

/// The predicate, with which no value is fetched that it does not look at. `None` where that would be too much of a
/// filter.
fn without_values(predicate: Option<&Filter>, schema: &Arc<TableSchema>) -> Option<Arc<CompiledFilter>> {
    let filter = match predicate {
        None | Some(Filter::PassAll) => Filter::StripValue,
        Some(predicate) => Filter::Chain(vec![predicate.clone(), Filter::StripValue]),
    };
    Arc::new(filter).compile_shared(schema).ok()
}

/// The newest cells of these columns. `None` where there are too many, or none is of the table.
fn filter_of(columns: &BTreeSet<(FamilyId, &[u8])>, schema: &Arc<TableSchema>) -> Option<Arc<CompiledFilter>> {
    if columns.len() > COLUMNS_FILTERED_MAX {
        return None;
    }
    let column = |(family, qualifier): &(FamilyId, &[u8])| {
        let qualifier = Bound::Included(Bytes::copy_from_slice(qualifier));
        let range = Filter::ColumnRange {
            family: schema.families.get(family)?.name.to_string(),
            start: qualifier.clone(),
            end: qualifier,
        };
        Some(Filter::Chain(vec![range, Filter::CellsPerColumn(1)]))
    };
    let mut columns: Vec<Filter> = columns.iter().filter_map(column).collect();
    let filter = match columns.len() {
        0 => return None,
        1 => columns.pop()?,
        _ => Filter::Interleave(columns),
    };
    Arc::new(filter).compile_shared(schema).ok()
}

type Columns = BTreeMap<(FamilyId, Bytes), (Timestamp, Bytes)>;

/// The newest cell of every column.
fn newest_cells(cells: Vec<Cell>) -> Columns {
    let mut newest = Columns::new();
    for cell in cells {
        newest
            .entry((cell.family, cell.qualifier))
            .or_insert((cell.timestamp, cell.value));
    }
    newest
}

/// Applies the rules in order; later ones see the cells of earlier ones. A written cell is never older than the one
/// it replaces, or it would not be the newest. Rules that write more than `bytes_max` are refused before anything is
/// copied.
fn apply_rules(
    schema: &TableSchema,
    columns: Columns,
    rules: &[RmwRule],
    now: Timestamp,
    bytes_max: usize,
) -> ServiceResult<Vec<Cell>> {
    let mut lens: BTreeMap<(FamilyId, &[u8]), usize> = BTreeMap::new();
    for rule in rules {
        let Some(family) = schema.families.get(&rule.family) else {
            return Err(ServiceError::not_found("Requested column family not found."));
        };
        let current = || columns.get(&(rule.family, rule.qualifier.clone()));
        let len = lens
            .entry((rule.family, &rule.qualifier))
            .or_insert_with(|| current().map_or(0, |(_, value)| value.len()));
        match &rule.operation {
            RmwOperation::Append(suffix) => *len += suffix.len(),
            RmwOperation::Increment(_) => *len = (*len).max(size_of::<i64>()),
        }
        if *len > limits::VALUE_BYTES_MAX {
            return Err(ServiceError::invalid(format!(
                "appending to {}:{} makes a value of more than {} bytes",
                family.name,
                rule.qualifier.escape_ascii(),
                limits::VALUE_BYTES_MAX
            )));
        }
    }
    let bytes: usize = lens.values().sum();
    if bytes > bytes_max {
        let message = format!(
            "The rules write {bytes} bytes, this server spares {bytes_max} for one read-modify-write: write less at once, \
             or give it more memory"
        );
        return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
    }
    let mut written: BTreeMap<(FamilyId, Bytes), Value> = BTreeMap::new();
    for rule in rules {
        let column = (rule.family, rule.qualifier.clone());
        let value = match written.entry(column) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                let len = lens[&(rule.family, &rule.qualifier[..])];
                let mut bytes = BytesMut::with_capacity(len);
                let current = columns.get(place.key());
                bytes.extend_from_slice(current.map_or(&[][..], |(_, current)| current));
                place.insert(Value {
                    timestamp: current.map_or(now, |(timestamp, _)| now.max(*timestamp)),
                    bytes,
                    is_there: current.is_some(),
                })
            }
        };
        let family = &schema.families[&rule.family].name;
        operate(&rule.operation, value, family, &rule.qualifier)?;
    }
    let is_within = |((family, qualifier), value): (&(FamilyId, Bytes), &Value)| {
        value.bytes.len() <= lens[&(*family, &qualifier[..])]
    };
    assert!(
        written.iter().all(is_within),
        "rules write at most the bytes that were checked before anything was copied"
    );
    assert!(
        written
            .iter()
            .all(|(column, value)| columns.get(column).is_none_or(|(old, _)| value.timestamp >= *old)),
        "a written cell is at least as new as the one that it replaces"
    );
    let cell =
        |((family, qualifier), value): (_, Value)| Cell::put(family, qualifier, value.timestamp, value.bytes.freeze());
    Ok(written.into_iter().map(cell).collect())
}

/// The next value of a column.
struct Value {
    timestamp: Timestamp,
    bytes: BytesMut,
    /// It holds something now, or a rule has written it: an empty value is not the same as none.
    is_there: bool,
}

/// Applies a rule to the value of a column.
fn operate(operation: &RmwOperation, value: &mut Value, family: &str, qualifier: &Bytes) -> ServiceResult<()> {
    let is_there = std::mem::replace(&mut value.is_there, true);
    match operation {
        RmwOperation::Append(suffix) => value.bytes.extend_from_slice(suffix),
        RmwOperation::Increment(amount) => {
            let current = match is_there {
                false => 0,
                true => i64::from_be_bytes(value.bytes[..].try_into().map_err(|_| {
                    ServiceError::invalid(format!(
                        "increment of {family}:{}, whose value has {} bytes and not 8",
                        qualifier.escape_ascii(),
                        value.bytes.len()
                    ))
                })?),
            };
            value.bytes.clear();
            value.bytes.put_i64(current.wrapping_add(*amount));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
