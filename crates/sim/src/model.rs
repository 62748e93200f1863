//! The results of a tablet, computed from the data model alone.
//!
//! Per row the model keeps the list of all writes and answers a read by going through all of it. It does not sort by
//! key or merge, and has no state that could be stale. It shares only the data types with the engine, so the two do not
//! make the same mistakes (`docs/data-model.md` is the specification of both).
//!
//! Where several results are correct, the model accepts exactly these:
//!
//! * A compaction may have dropped, for good, a version that its family's rule has once called garbage. When the
//!   versions that made it garbage are deleted later, it may come back or not. With a rule of both count and age this
//!   may happen at a time when no reader would see it. The reason is that a compaction applies the rule, at its own
//!   time, to a prefix of the history (files that lack the newest deletes). So for each version the model records its
//!   position among the versions of its column after every write to the row. It treats the version as droppable up to
//!   that write once the rule says so for that position and today's date.
//! * A version is dropped as a whole: an overwritten value never comes back, and of an aggregate all operands up to
//!   then are gone.
//!
//! Under the by-timestamp rule the time at which tombstones are dropped matters, so the model must be told of major
//! compactions.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use stele_types::{
    Cell, DeleteRule, FamilyId, GcView, GroupId, Mutation, RowMutation, RowRange, TableSchema, Timestamp, ValueType,
};

/// A cell as tests write it: family, qualifier, timestamp, value.
pub type PlainCell = (u32, Vec<u8>, i64, Vec<u8>);

/// All writes to one tablet or table.
#[derive(Clone, Debug)]
pub struct Model {
    schema: TableSchema,
    rows: BTreeMap<Bytes, Row>,
    /// Number of the newest write. A write is one mutation; numbers are the model's own.
    newest: u64,
}

#[derive(Clone, Debug, Default)]
struct Row {
    writes: Vec<Write>,
    tombstones: Vec<Tombstone>,
    /// For every version, its position after writes to the row, as (number of the write, position).
    positions: BTreeMap<VersionName, Vec<(u64, u64)>>,
}

/// Family, qualifier, timestamp.
type VersionName = (FamilyId, Bytes, Timestamp);

#[derive(Clone, Debug)]
struct Write {
    number: u64,
    /// The locality group of the family at the time of the write.
    group: GroupId,
    version: VersionName,
    value: Bytes,
    adds: bool,
}

#[derive(Clone, Debug)]
struct Tombstone {
    number: u64,
    /// A tombstone of a row is kept once per locality group, because a group drops it on its own.
    group: GroupId,
    family: Option<FamilyId>,
    qualifier: Option<Bytes>,
    from: Timestamp,
    to: Timestamp,
}

impl Model {
    /// An empty table.
    pub fn new(schema: TableSchema) -> Model {
        Model {
            schema,
            rows: BTreeMap::new(),
            newest: 0,
        }
    }

    /// The table's schema.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Replaces the schema. Writes to families that it lacks stay, invisible.
    pub fn set_schema(&mut self, schema: TableSchema) {
        self.schema = schema;
    }

    /// Number of the newest write, for [`Model::compact_major`].
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The rows with any write, in order.
    pub fn rows(&self) -> Vec<Bytes> {
        self.rows.keys().cloned().collect()
    }

    /// Applies the batch: all its mutations, in order, atomically.
    pub fn apply(&mut self, batch: &[RowMutation]) {
        for change in batch {
            for mutation in &change.mutations {
                self.newest += 1;
                let row = self.rows.entry(change.row.clone()).or_default();
                row.write(&self.schema, self.newest, mutation);
            }
        }
        let rows: BTreeSet<&Bytes> = batch.iter().map(|change| &change.row).collect();
        for row in rows {
            if let Some(row) = self.rows.get_mut(row) {
                row.note_positions(&self.schema, self.newest);
            }
        }
    }

    /// Removes all rows of the range as if never written.
    pub fn drop_rows(&mut self, range: &RowRange) {
        self.rows.retain(|row, _| !range.contains(row));
    }

    /// Records a major compaction of a locality group of one tablet, which has rewritten everything up to write
    /// `through`. Hidden cells are gone and so is their tombstone, so that under the by-timestamp rule it hides no
    /// later write.
    pub fn compact_major(&mut self, tablet: &RowRange, group: GroupId, through: u64) {
        // A tombstone that hides only older cells has nothing left to hide, and its absence is invisible.
        if self.schema.deletes_only(DeleteRule::BySequence) {
            return;
        }
        let (schema, newest) = (&self.schema, self.newest);
        for (_, row) in self.rows.iter_mut().filter(|(row, _)| tablet.contains(row)) {
            let tombstones: Vec<Tombstone> = row
                .tombstones
                .iter()
                .filter(|m| m.group == group && m.number <= through)
                .cloned()
                .collect();
            row.writes.retain(|write| {
                write.group != group
                    || write.number > through
                    || !tombstones
                        .iter()
                        .any(|tombstone| tombstone.hides(write, schema.delete_rule_of(write.version.0)))
            });
            row.tombstones.retain(|m| m.group != group || m.number > through);
            // A version that comes back takes its place among the versions.
            row.note_positions(schema, newest);
        }
    }

    /// Whether `cells` is a correct result of a read of `row` at wall-clock time `now_micros`, and if not, why not.
    pub fn check_row(&self, row: &[u8], cells: &[Cell], now_micros: i64) -> Result<(), String> {
        let mut answer: BTreeMap<(FamilyId, Bytes), BTreeMap<Timestamp, Bytes>> = BTreeMap::new();
        let mut previous: Option<(FamilyId, &Bytes, std::cmp::Reverse<Timestamp>)> = None;
        for cell in cells {
            let place = (cell.family, &cell.qualifier, std::cmp::Reverse(cell.timestamp));
            if previous.is_some_and(|previous| previous >= place) {
                return Err(format!("cells are out of order or twice there: {}", show(cells)));
            }
            previous = Some(place);
            let column = answer.entry((cell.family, cell.qualifier.clone())).or_default();
            column.insert(cell.timestamp, cell.value.clone());
        }
        let empty = Row::default();
        let model = self.rows.get(row).unwrap_or(&empty);
        let mut columns: BTreeSet<(FamilyId, Bytes)> = model.columns();
        columns.extend(answer.keys().cloned());
        for column in columns {
            let given = answer.remove(&column).unwrap_or_default();
            self.check_column(model, &column, given, now_micros).map_err(|why| {
                format!(
                    "row {} column {}:{}: {why}\nanswer {}\nwrites {:?}\nmarkers {:?}",
                    row.escape_ascii(),
                    column.0,
                    column.1.escape_ascii(),
                    show(cells),
                    model.writes,
                    model.tombstones
                )
            })?;
        }
        Ok(())
    }

    /// Walks the versions from the newest to the oldest; the rule sees each at its position among the accepted ones.
    fn check_column(
        &self,
        row: &Row,
        column: &(FamilyId, Bytes),
        mut given: BTreeMap<Timestamp, Bytes>,
        now_micros: i64,
    ) -> Result<(), String> {
        let mut position = 0;
        for timestamp in row.timestamps(column).into_iter().rev() {
            let version = (column.0, column.1.clone(), timestamp);
            let garbage = self.is_garbage(&version, position, now_micros);
            let possible = self.possible(row, &version, now_micros);
            match given.remove(&timestamp) {
                Some(_) if garbage => {
                    return Err(format!("version {timestamp} has expired, yet is there"));
                }
                Some(value) if !possible.contains(&Some(value.clone())) => {
                    let value = value.escape_ascii();
                    return Err(format!("version {timestamp} is {value}, which is none of {possible:?}"));
                }
                Some(_) => position += 1,
                None if !garbage && !possible.contains(&None) => {
                    return Err(format!("version {timestamp} is missing; it may be any of {possible:?}"));
                }
                None => {}
            }
        }
        match given.keys().next() {
            Some(timestamp) => Err(format!("version {timestamp} was never written")),
            None => Ok(()),
        }
    }

    /// The possible values of a version: after all writes, or after the writes since a compaction may have dropped it.
    fn possible(&self, row: &Row, version: &VersionName, now_micros: i64) -> Vec<Option<Bytes>> {
        if !self.schema.families.contains_key(&version.0) {
            return vec![None];
        }
        let dropped = row.positions.get(version).into_iter().flatten();
        let dropped = dropped.filter(|(_, position)| self.is_garbage(version, *position, now_micros));
        let mut since: Vec<u64> = dropped.map(|(number, _)| *number).collect();
        since.push(0);
        let mut possible: Vec<_> = since
            .iter()
            .map(|since| row.value(&self.schema, version, *since))
            .collect();
        possible.sort();
        possible.dedup();
        possible
    }

    fn is_garbage(&self, version: &VersionName, position: u64, now_micros: i64) -> bool {
        let view = GcView {
            version_index: position,
            timestamp: version.2,
            unit: self.schema.time_unit,
            now_micros,
        };
        let family = self.schema.families.get(&version.0);
        family
            .and_then(|f| f.gc_rule.as_ref())
            .is_some_and(|rule| rule.is_garbage(&view))
    }

    /// The cells of a row when no compaction has dropped anything early, for tests that write no rules.
    pub fn cells(&self, row: &[u8], now_micros: i64) -> Vec<PlainCell> {
        let Some(model) = self.rows.get(row) else {
            return Vec::new();
        };
        let mut cells = Vec::new();
        for column in model
            .columns()
            .into_iter()
            .filter(|c| self.schema.families.contains_key(&c.0))
        {
            let mut position = 0;
            for timestamp in model.timestamps(&column).into_iter().rev() {
                let version = (column.0, column.1.clone(), timestamp);
                let Some(value) = model.value(&self.schema, &version, 0) else {
                    continue;
                };
                if !self.is_garbage(&version, position, now_micros) {
                    cells.push((column.0.0, column.1.to_vec(), timestamp.0, value.to_vec()));
                }
                position += 1;
            }
        }
        cells
    }

    /// Whether `cell`, from a raw read, can have been stored: a tombstone, or a value that was written or folded from
    /// operands.
    pub fn was_written(&self, row: &[u8], cell: &Cell) -> bool {
        let Some(model) = self.rows.get(row) else {
            return false;
        };
        let version = (cell.family, cell.qualifier.clone(), cell.timestamp);
        // Operands are folded. Of a dropped family it is no longer known whether it had any.
        let folded = aggregate(&self.schema, cell.family).is_some() || !self.schema.families.contains_key(&cell.family);
        cell.kind.is_delete()
            || model
                .writes
                .iter()
                .any(|w| w.version == version && (folded || w.value == cell.value))
    }
}

impl Row {
    fn write(&mut self, schema: &TableSchema, number: u64, mutation: &Mutation) {
        let mut mark = |family: Option<FamilyId>, qualifier: Option<&Bytes>, from, to| {
            let groups: Vec<GroupId> = match family {
                Some(family) => vec![schema.group_of(family)],
                None => schema.groups.iter().map(|group| group.id).collect(),
            };
            let qualifier = qualifier.cloned();
            let tombstones = groups.into_iter().map(|group| (group, qualifier.clone()));
            self.tombstones.extend(tombstones.map(|(group, qualifier)| Tombstone {
                number,
                group,
                family,
                qualifier,
                from,
                to,
            }));
        };
        match mutation {
            Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            } => {
                let version = (*family, qualifier.clone(), *timestamp);
                self.writes.push(Write {
                    number,
                    group: schema.group_of(*family),
                    version,
                    value: value.clone(),
                    adds: false,
                });
            }
            // The model has no clock: histories give such cells a lifetime that never ends.
            Mutation::ExpiringPut {
                family,
                qualifier,
                timestamp,
                stored,
            } => {
                let version = (*family, qualifier.clone(), *timestamp);
                self.writes.push(Write {
                    number,
                    group: schema.group_of(*family),
                    version,
                    value: stele_types::lifetime::split(stored).map_or(Bytes::new(), |(_, value)| value),
                    adds: false,
                });
            }
            Mutation::Merge {
                family,
                qualifier,
                timestamp,
                operand,
            } => {
                let version = (*family, qualifier.clone(), *timestamp);
                self.writes.push(Write {
                    number,
                    group: schema.group_of(*family),
                    version,
                    value: operand.clone(),
                    adds: true,
                });
            }
            Mutation::DeleteRow { up_to } => mark(None, None, Timestamp::MIN, *up_to),
            Mutation::DeleteFamily { family, up_to } => mark(Some(*family), None, Timestamp::MIN, *up_to),
            Mutation::DeleteFamilyVersion { family, timestamp } => mark(Some(*family), None, *timestamp, *timestamp),
            Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to,
            } => mark(Some(*family), Some(qualifier), *from, *to),
            Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            } => {
                mark(Some(*family), Some(qualifier), *timestamp, *timestamp);
            }
        }
    }

    fn columns(&self) -> BTreeSet<(FamilyId, Bytes)> {
        self.writes.iter().map(|w| (w.version.0, w.version.1.clone())).collect()
    }

    fn timestamps(&self, column: &(FamilyId, Bytes)) -> BTreeSet<Timestamp> {
        let of_column = self
            .writes
            .iter()
            .filter(|w| w.version.0 == column.0 && w.version.1 == column.1);
        of_column.map(|w| w.version.2).collect()
    }

    /// The value of a version after its writes since write `since`.
    fn value(&self, schema: &TableSchema, version: &VersionName, since: u64) -> Option<Bytes> {
        let mut value: Option<Bytes> = None;
        for write in self.writes.iter().filter(|w| w.version == *version && w.number > since) {
            if self
                .tombstones
                .iter()
                .any(|tombstone| tombstone.hides(write, schema.delete_rule_of(write.version.0)))
            {
                continue;
            }
            value = Some(match (value, aggregate(schema, version.0)) {
                (Some(older), Some(kind)) if write.adds => match kind.combine(&older, &write.value) {
                    Some(combined) => Bytes::copy_from_slice(&combined),
                    None => write.value.clone(),
                },
                _ => write.value.clone(),
            });
        }
        value
    }

    fn note_positions(&mut self, schema: &TableSchema, number: u64) {
        for column in self.columns() {
            let mut position = 0;
            for timestamp in self.timestamps(&column).into_iter().rev() {
                let version = (column.0, column.1.clone(), timestamp);
                if self.value(schema, &version, 0).is_some() {
                    self.positions.entry(version).or_default().push((number, position));
                    position += 1;
                }
            }
        }
    }
}

impl Tombstone {
    fn hides(&self, write: &Write, rule: DeleteRule) -> bool {
        let (family, qualifier, timestamp) = &write.version;
        // Without an end a tombstone hides by sequence under every rule.
        let is_endless = self.to == Timestamp::MAX && self.from < self.to;
        let by_sequence = is_endless || rule == DeleteRule::BySequence;
        // Each group drops tombstones at its own time, which matters where they hide later writes.
        (by_sequence || self.group == write.group)
            && self.family.is_none_or(|f| f == *family)
            && self.qualifier.as_ref().is_none_or(|q| q == qualifier)
            && self.from <= *timestamp
            && *timestamp <= self.to
            && (!by_sequence || write.number < self.number)
    }
}

fn aggregate(schema: &TableSchema, family: FamilyId) -> Option<stele_types::AggregateKind> {
    match schema.families.get(&family)?.value_type {
        ValueType::Aggregate(kind) => Some(kind),
        ValueType::Bytes => None,
    }
}

fn show(cells: &[Cell]) -> String {
    let cell = |c: &Cell| {
        format!(
            "{}:{}@{}={}",
            c.family,
            c.qualifier.escape_ascii(),
            c.timestamp,
            c.value.escape_ascii()
        )
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
