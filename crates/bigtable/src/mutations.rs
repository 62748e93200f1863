//! Checks the mutations of requests and resolves them against a schema.
//!
//! A row's mutations are checked as a whole before any is applied, so a bad one leaves nothing behind. "Server time" is
//! one instant per request.

use crate::limits::FAMILY_DELETE_COST;
use crate::pb::v2;
use crate::pb::v2::mutation::{AddToCell, DeleteFromColumn, MergeToCell, Mutation as Kind, SetCell};
use crate::pb::v2::value::Kind as ValueKind;
use crate::status::{family_not_found, invalid};
use crate::times::{SERVER_TIME, TableTime};
use crate::wire::{Mutation as WireMutation, TimestampOrigin};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::HashMap;
use stele_client::Step;
use stele_types::limits::{
    BIGTABLE_QUALIFIER_BYTES_MAX, BIGTABLE_ROW_KEY_BYTES_MAX, MUTATIONS_PER_REQUEST_MAX, VALUE_BYTES_MAX,
};
use stele_types::{
    DeleteRule, FamilyId, KeepDeleted, Mutation, RowMutation, ServerTime, TableSchema, Timestamp, ValueType,
};
use tonic::Status;

/// Families up to which a scan of the schema finds one faster than a map would be built.
const SCANNED_FAMILIES_MAX: usize = 16;

/// Resolves mutations against a schema and the time of the request.
pub(crate) struct Resolver<'s> {
    schema: &'s TableSchema,
    /// Present when the schema has many families, so that a request with many mutations does not scan them each time.
    families: Option<HashMap<&'s str, (FamilyId, ValueType)>>,
    time: TableTime,
    now: Timestamp,
    /// Whether mutations have it because they were given no time, and whether one was given just this time.
    uses_now: Cell<bool>,
    is_given_now: Cell<bool>,
}

impl<'s> Resolver<'s> {
    pub fn new(schema: &'s TableSchema, wall_micros: i64) -> Self {
        let time = TableTime::of(schema);
        let families = (schema.families.len() > SCANNED_FAMILIES_MAX).then(|| {
            schema
                .families
                .iter()
                .map(|(id, f)| (f.name.as_str(), (*id, f.value_type)))
                .collect()
        });
        Resolver {
            schema,
            families,
            time,
            now: time.now(wall_micros),
            uses_now: Cell::new(false),
            is_given_now: Cell::new(false),
        }
    }

    /// The time of this server in the mutations so far, for the server that has the rows. `None` if it cannot be told from a time that
    /// the client has given.
    pub fn server_time(&self) -> Option<ServerTime> {
        (self.uses_now.get() && !self.is_given_now.get()).then_some(ServerTime {
            at: self.now,
            is_foreign: false,
        })
    }

    fn now(&self) -> Timestamp {
        self.uses_now.set(true);
        self.now
    }

    /// Notes a time that the client has given.
    fn given(&self, time: Timestamp) -> Timestamp {
        if time == self.now {
            self.is_given_now.set(true);
        }
        time
    }

    /// All changes of one row, in the data model's terms.
    pub fn row(&self, row: Bytes, mutations: Vec<WireMutation>) -> Result<RowMutation, Status> {
        check_row_key(&row)?;
        if mutations.is_empty() {
            return Err(no_mutations());
        }
        let mutations = self.mutations(mutations)?;
        Ok(RowMutation { row, mutations })
    }

    /// The changes of one outcome of a conditional write; there may be none.
    pub fn steps(&self, mutations: Vec<WireMutation>) -> Result<Vec<Step>, Status> {
        let mut steps = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            match &mutation.mutation {
                Some(Kind::SetCell(set)) if set.timestamp_micros == SERVER_TIME => {
                    steps.push(Step::MutateNow(self.mutation(mutation)?));
                }
                Some(Kind::DeleteFromRow(_)) if self.deletes_rows_by_family() => {
                    steps.extend(self.families_of_row().map(|delete| match &delete {
                        Mutation::DeleteFamily { up_to, .. } if *up_to != Timestamp::MAX => Step::MutateNow(delete),
                        _ => Step::Mutate(delete),
                    }));
                }
                kind => {
                    let is_endless = match kind {
                        Some(Kind::DeleteFromFamily(_)) => true,
                        Some(Kind::DeleteFromColumn(delete)) => {
                            delete.time_range.is_none_or(|range| range.end_timestamp_micros == 0)
                        }
                        _ => false,
                    };
                    let changed = self.mutation(mutation)?;
                    // The end is the server's time, which counts under the latch: the condition may see cells written since.
                    steps.push(match &changed {
                        Mutation::DeleteFamily { up_to: end, .. } | Mutation::DeleteColumn { to: end, .. }
                            if is_endless && *end != Timestamp::MAX =>
                        {
                            Step::MutateNow(changed)
                        }
                        _ => Step::Mutate(changed),
                    });
                }
            }
        }
        Ok(steps)
    }

    fn mutations(&self, mutations: Vec<WireMutation>) -> Result<Vec<Mutation>, Status> {
        let mut all = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            match mutation.mutation {
                Some(Kind::DeleteFromRow(_)) if self.deletes_rows_by_family() => all.extend(self.families_of_row()),
                _ => all.push(self.mutation(mutation)?),
            }
        }
        Ok(all)
    }

    /// The additional memory where deletes of rows become those of all families. A delete has two bytes on the wire, and a
    /// table may have thousands of families.
    pub fn expansion_bytes(&self, mutations: &[WireMutation]) -> usize {
        if !self.deletes_rows_by_family() {
            return 0;
        }
        let deletes_row = |mutation: &&WireMutation| matches!(mutation.mutation, Some(Kind::DeleteFromRow(_)));
        let deletes = mutations.iter().filter(deletes_row).count();
        deletes
            .saturating_mul(self.schema.families.len())
            .saturating_mul(FAMILY_DELETE_COST)
    }

    /// Whether a delete of a row is one of each family.
    pub fn deletes_rows_by_family(&self) -> bool {
        self.schema.deletes_rows_by_family()
    }

    /// A delete of each family. By timestamp it goes up to now, or it would hide later writes.
    fn families_of_row(&self) -> impl Iterator<Item = Mutation> {
        self.schema.families.keys().map(|family| Mutation::DeleteFamily {
            family: *family,
            up_to: self.deletes_up_to(*family),
        })
    }

    /// The latest timestamp that a delete of all cells of a family or of a column hides. Where it would also hide later
    /// writes, or is kept for reads of the past, that is now.
    pub fn deletes_up_to(&self, family: FamilyId) -> Timestamp {
        let keeps = self.schema.families.get(&family);
        let keeps = keeps.is_some_and(|family| family.deletes.keep != KeepDeleted::No);
        match self.schema.delete_rule_of(family) {
            DeleteRule::BySequence if !keeps => Timestamp::MAX,
            _ => self.now(),
        }
    }

    fn mutation(&self, mutation: WireMutation) -> Result<Mutation, Status> {
        let origin = mutation.timestamp_origin();
        match mutation.mutation {
            Some(Kind::SetCell(set)) => self.set_cell(set, origin),
            Some(Kind::AddToCell(add)) => self.add_to_cell(add, origin),
            Some(Kind::MergeToCell(merge)) => self.merge_to_cell(merge, origin),
            Some(Kind::DeleteFromColumn(delete)) => self.delete_from_column(delete),
            Some(Kind::DeleteFromFamily(delete)) => {
                let (family, _) = self.family(&delete.family_name)?;
                let up_to = self.deletes_up_to(family);
                Ok(Mutation::DeleteFamily { family, up_to })
            }
            Some(Kind::DeleteFromRow(_)) => Ok(Mutation::DeleteRow { up_to: Timestamp::MAX }),
            None => Err(invalid(
                "The mutation is not set, or is of a type that this version does not support",
            )),
        }
    }

    fn set_cell(&self, set: SetCell, origin: TimestampOrigin) -> Result<Mutation, Status> {
        let (family, value_type) = self.family(&set.family_name)?;
        if value_type != ValueType::Bytes {
            return Err(invalid(format!(
                "SetCell is not supported by family {:?}, which has an aggregate type",
                set.family_name
            )));
        }
        check_qualifier(&set.column_qualifier)?;
        check_value(&set.value)?;
        let timestamp = self.cell_timestamp(set.timestamp_micros, origin)?;
        Ok(Mutation::Put {
            family,
            qualifier: set.column_qualifier,
            timestamp,
            value: set.value,
        })
    }

    fn add_to_cell(&self, add: AddToCell, origin: TimestampOrigin) -> Result<Mutation, Status> {
        let operand = match add.input.and_then(|value| value.kind) {
            Some(ValueKind::IntValue(input)) => Bytes::copy_from_slice(&input.to_be_bytes()),
            _ => {
                return Err(invalid(
                    "AddToCell : input must be an int_value, the input type of the family",
                ));
            }
        };
        self.merge(
            "AddToCell",
            &add.family_name,
            add.column_qualifier,
            add.timestamp,
            origin,
            operand,
        )
    }

    fn merge_to_cell(&self, merge: MergeToCell, origin: TimestampOrigin) -> Result<Mutation, Status> {
        let operand = match merge.input.and_then(|value| value.kind) {
            Some(ValueKind::RawValue(state) | ValueKind::BytesValue(state)) if state.len() == 8 => state,
            _ => {
                return Err(invalid(
                    "MergeToCell : input must be a raw_value of 8 bytes, the state type of the family",
                ));
            }
        };
        self.merge(
            "MergeToCell",
            &merge.family_name,
            merge.column_qualifier,
            merge.timestamp,
            origin,
            operand,
        )
    }

    fn merge(
        &self,
        what: &str,
        family_name: &str,
        qualifier: Option<v2::Value>,
        timestamp: Option<v2::Value>,
        origin: TimestampOrigin,
        operand: Bytes,
    ) -> Result<Mutation, Status> {
        let (family, value_type) = self.family(family_name)?;
        if value_type == ValueType::Bytes {
            return Err(invalid(format!(
                "{what} needs a family with an aggregate type, which {family_name:?} is not"
            )));
        }
        let qualifier = match qualifier.and_then(|value| value.kind) {
            Some(ValueKind::RawValue(bytes) | ValueKind::BytesValue(bytes)) => bytes,
            _ => {
                return Err(invalid(format!("{what} : column_qualifier must be a raw_value")));
            }
        };
        check_qualifier(&qualifier)?;
        let timestamp = match timestamp.and_then(|value| value.kind) {
            Some(ValueKind::RawTimestampMicros(micros)) => self.given(self.timestamp(micros, origin)?),
            _ => {
                return Err(invalid(format!("{what} : timestamp must be a raw_timestamp_micros")));
            }
        };
        Ok(Mutation::Merge {
            family,
            qualifier,
            timestamp,
            operand,
        })
    }

    fn delete_from_column(&self, delete: DeleteFromColumn) -> Result<Mutation, Status> {
        let (family, _) = self.family(&delete.family_name)?;
        check_qualifier(&delete.column_qualifier)?;
        let range = delete.time_range;
        let range = range.map(|r| (r.start_timestamp_micros, r.end_timestamp_micros));
        let (from, to) = self.deleted_range(family, range)?;
        Ok(Mutation::DeleteColumn {
            family,
            qualifier: delete.column_qualifier,
            from,
            to,
        })
    }

    /// The range of a delete, with an end where it gives none.
    pub fn deleted_range(&self, family: FamilyId, range: Option<(i64, i64)>) -> Result<(Timestamp, Timestamp), Status> {
        match self.time_range(range)? {
            (from, Timestamp::MAX) => Ok((from, self.deletes_up_to(family).max(self.given(from)))),
            range => Ok(range),
        }
    }

    /// `[start, end)` in microseconds as inclusive bounds. A start of 0 includes lower timestamps, which other front
    /// ends may have stored.
    pub fn time_range(&self, range: Option<(i64, i64)>) -> Result<(Timestamp, Timestamp), Status> {
        let Some((start, end)) = range else {
            return Ok((Timestamp::MIN, Timestamp::MAX));
        };
        let from = match self.time.stored(start)? {
            Timestamp(0) => Timestamp::MIN,
            from => from,
        };
        if end == 0 {
            return Ok((from, Timestamp::MAX));
        }
        let below = self.time.stored(end)?;
        if start >= end {
            return Err(invalid(format!("inverted or invalid timestamp range [{start}, {end}]")));
        }
        let to = self.given(Timestamp(below.0 - 1));
        if to == from && from > self.now {
            // It is like a range without an end that begins later than now.
            self.is_given_now.set(true);
        }
        Ok((from, to))
    }

    /// The timestamp of a cell that is set.
    pub fn cell_timestamp(&self, micros: i64, origin: TimestampOrigin) -> Result<Timestamp, Status> {
        match micros {
            SERVER_TIME => Ok(self.now()),
            micros => self.timestamp(micros, origin).map(|time| self.given(time)),
        }
    }

    fn timestamp(&self, micros: i64, origin: TimestampOrigin) -> Result<Timestamp, Status> {
        match origin {
            TimestampOrigin::ClientAutoGenerated => self.time.stored_truncated(micros),
            TimestampOrigin::Unspecified | TimestampOrigin::UserSpecified => self.time.stored(micros),
        }
    }

    /// The family of this name and the type of its values.
    pub fn family(&self, name: &str) -> Result<(FamilyId, ValueType), Status> {
        let found = match &self.families {
            Some(families) => families.get(name).copied(),
            None => self
                .schema
                .family_named(name)
                .map(|(id, family)| (id, family.value_type)),
        };
        found.ok_or_else(|| family_not_found(name))
    }
}

/// The error for a write that writes nothing.
pub(crate) fn no_mutations() -> Status {
    invalid("No mutations provided")
}

/// Checks the number of mutations of a request, over all its rows.
pub(crate) fn check_mutation_count(count: usize) -> Result<(), Status> {
    if count <= MUTATIONS_PER_REQUEST_MAX {
        return Ok(());
    }
    Err(invalid(format!(
        "The request has {count} mutations, the limit is {MUTATIONS_PER_REQUEST_MAX}"
    )))
}

/// Checks the row key of a write.
pub(crate) fn check_row_key(row: &[u8]) -> Result<(), Status> {
    if row.is_empty() {
        return Err(invalid("Row keys must be non-empty"));
    }
    check_bytes("A row key", row, BIGTABLE_ROW_KEY_BYTES_MAX)
}

/// Checks a qualifier of a write.
pub(crate) fn check_qualifier(qualifier: &[u8]) -> Result<(), Status> {
    check_bytes("A column qualifier", qualifier, BIGTABLE_QUALIFIER_BYTES_MAX)
}

/// Checks a value of a write.
pub(crate) fn check_value(value: &[u8]) -> Result<(), Status> {
    check_bytes("A cell value", value, VALUE_BYTES_MAX)
}

fn check_bytes(what: &str, bytes: &[u8], max: usize) -> Result<(), Status> {
    if bytes.len() <= max {
        return Ok(());
    }
    Err(invalid(format!("{what} has {} bytes, the limit is {max}", bytes.len())))
}

#[cfg(test)]
mod tests;
