//! From a mutation of the protocol to steps of a row operation.
//!
//! The cells of a mutation are in its message or in the request's cell block. Both become the same steps.

use crate::failure::{Failure, Outcome};
use crate::pace::{CELL_UNITS, Pace};
use crate::selection::{FamilySearch, times as times_of};
use crate::times;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use stele_client::{RmwOperation, RmwRule, Step};
use stele_memory::Reservation;
use stele_types::{
    DeleteRule, Durability, FamilyId, Mutation, RequestToken, TableSchema, Timestamp, ValueType, lifetime, limits,
};
use stele_wire::cell::{Cell, CellReader, CellType, LATEST, ROW_BYTES_MAX};
use stele_wire::messages::{self, DeleteType, MutationProto, MutationType, NameBytesPair};

/// Attribute of an increment or append: whether its result is returned.
const RETURN_RESULTS: &str = "_rr_";
/// Attribute: the time after which the cells of the mutation expire.
const CELL_TTL: &str = "_ttl";
/// Attributes that protect single cells, and their names in the Java API. There are no such rights here.
const CELL_RIGHTS: [(&str, &str); 2] = [("acl", "setACL"), ("VISIBILITY", "setCellVisibility")];

/// One mutation of one row.
pub(crate) struct RowChange {
    pub row: Bytes,
    pub kind: MutationType,
    pub steps: Vec<Step>,
    /// Whether the client wants the cells that were written.
    pub returns: bool,
    pub durability: Option<Durability>,
    /// From its nonce.
    pub token: Option<RequestToken>,
}

/// Converts mutations for one table.
pub(crate) struct Converter<'a> {
    pub schema: &'a TableSchema,
    /// Names the client, for the nonces of its mutations.
    pub nonce_group: Option<u64>,
    /// The server's time for cells without one of their own. One call has one time, unless it is a row operation: that has the
    /// time at which it holds the row's latch.
    pub now: Timestamp,
    /// Takes the memory of deletes of rows; `None` where there are none.
    pub memory: Option<&'a Reservation>,
}

/// Memory of a cell of a cell block while its request is served: lists of parts, then of steps, and each may have just doubled.
pub(crate) const CELL_BYTES: usize = 2 * (size_of::<Part>() + size_of::<Step>());

/// Memory of one of the deletes of families that a delete of a row becomes. Their list may be copied once.
const FAMILY_DELETE_BYTES: usize = 2 * size_of::<Step>();

/// A cell of a mutation, wherever it was.
struct Part {
    family: FamilyId,
    qualifier: Bytes,
    /// `None` for the server's time, or the newest version.
    timestamp: Option<Timestamp>,
    kind: CellType,
    value: Bytes,
}

/// Whether a mutation with these attributes returns its result.
fn returns_results(attributes: &[NameBytesPair]) -> bool {
    let given = attributes.iter().find(|pair| pair.name == RETURN_RESULTS);
    given.is_none_or(|pair| pair.value.as_deref() != Some(&[0]))
}

/// Refuses a mutation that asks for rights on its cells: everybody who may read the family could read them. A delete of cells with
/// one visibility would delete others, too.
fn check_rights(attributes: &[NameBytesPair]) -> Outcome<()> {
    let is_given = |(name, _): &(&str, &str)| attributes.iter().any(|pair| pair.name == *name);
    let Some((name, method)) = CELL_RIGHTS.into_iter().find(is_given) else {
        return Ok(());
    };
    let message = format!(
        "Rights on cells are not supported: the attribute {name} ({method}) of a mutation would have no effect. Access rules \
         are for tables, families and prefixes of rows"
    );
    Err(Failure::do_not_retry(message))
}

/// The milliseconds after which cells of a mutation with these attributes expire; `None` for never.
fn lifetime_ms(attributes: &[NameBytesPair]) -> Outcome<Option<i64>> {
    let Some(pair) = attributes.iter().find(|pair| pair.name == CELL_TTL) else {
        return Ok(None);
    };
    let bytes = pair.value.as_deref().and_then(|value| <[u8; 8]>::try_from(value).ok());
    let bytes = bytes.ok_or_else(|| Failure::do_not_retry("the TTL of a mutation is a number of eight bytes"))?;
    Ok(Some(i64::from_be_bytes(bytes)).filter(|ms| *ms != i64::MAX))
}

fn durability(given: Option<i32>) -> Option<Durability> {
    let given = given.and_then(|number| messages::Durability::try_from(number).ok());
    match given.unwrap_or(messages::Durability::UseDefault) {
        messages::Durability::UseDefault => None,
        messages::Durability::SkipWal => Some(Durability::None),
        messages::Durability::AsyncWal | messages::Durability::SyncWal => Some(Durability::Flush),
        messages::Durability::FsyncWal => Some(Durability::Sync),
    }
}

impl Converter<'_> {
    /// Converts a mutation. Its cells are taken from `cells` if it says that they are there. Mutations of one table share a search.
    pub async fn convert(
        &self,
        proto: MutationProto,
        cells: &mut CellReader,
        search: &mut FamilySearch,
        pace: &mut Pace<'_>,
    ) -> Outcome<RowChange> {
        let parts = self.parts(&proto, cells, search, pace).await?;
        let kind = proto.mutate_type.and_then(|number| MutationType::try_from(number).ok());
        let kind = kind.ok_or_else(|| Failure::do_not_retry("a mutation without a type"))?;
        let row = proto.row.clone().unwrap_or_default();
        if row.is_empty() || row.len() > ROW_BYTES_MAX {
            return Err(Failure::do_not_retry(format!("a row key of {} bytes", row.len())));
        }
        check_rights(&proto.attribute)?;
        let lifetime_ms = lifetime_ms(&proto.attribute)?;
        check_lengths(&parts, lifetime_ms)?;
        self.check_families(&parts)?;
        let steps = match kind {
            MutationType::Put => self.puts(parts, lifetime_ms),
            MutationType::Delete => self.deletes(&proto, parts)?,
            MutationType::Increment | MutationType::Append => {
                last_rules(self.rules(&proto, kind, parts, lifetime_ms)?)
            }
        };
        // An increment or append without columns does nothing, in HBase, too.
        if steps.is_empty() && matches!(kind, MutationType::Put | MutationType::Delete) {
            return Err(Failure::do_not_retry("No columns to insert"));
        }
        Ok(RowChange {
            row,
            kind,
            steps,
            returns: returns_results(&proto.attribute),
            durability: durability(proto.durability),
            token: self.token(proto.nonce),
        })
    }

    /// Converts a cell of a log: row and mutation. It has its own time, which is not the server's, and may have a lifetime.
    pub fn logged(
        &self,
        cell: Cell,
        lifetime_ms: Option<i64>,
        search: &mut FamilySearch,
    ) -> Outcome<(Bytes, Mutation)> {
        let timestamp = self.time(Some(cell.timestamp), None)?;
        let family = search.find(self.schema, &cell.family, self.memory)?;
        self.timed((family, cell), timestamp, lifetime_ms)
    }

    /// The same of a cell of a file. The largest timestamp is a time as any other there.
    pub fn loaded(
        &self,
        cell: Cell,
        lifetime_ms: Option<i64>,
        search: &mut FamilySearch,
    ) -> Outcome<(Bytes, Mutation)> {
        let timestamp = times::stored(self.schema, cell.timestamp)?;
        let family = search.find(self.schema, &cell.family, self.memory)?;
        let (row, mutation) = self.timed((family, cell), Some(timestamp), lifetime_ms)?;
        let mutation = match mutation {
            // A load takes no deletes of a range of times.
            Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                ..
            } if from != Timestamp::MIN => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp: from,
            },
            mutation => mutation,
        };
        Ok((row, mutation))
    }

    fn timed(
        &self,
        (family, cell): (FamilyId, Cell),
        timestamp: Option<Timestamp>,
        lifetime_ms: Option<i64>,
    ) -> Outcome<(Bytes, Mutation)> {
        if cell.row.is_empty() || cell.row.len() > ROW_BYTES_MAX {
            return Err(Failure::do_not_retry(format!("a row key of {} bytes", cell.row.len())));
        }
        let part = Part {
            family,
            timestamp,
            qualifier: cell.qualifier,
            kind: cell.kind,
            value: cell.value,
        };
        check_lengths(std::slice::from_ref(&part), lifetime_ms)?;
        self.check_families(std::slice::from_ref(&part))?;
        match self.write(part, lifetime_ms) {
            Step::Mutate(mutation) => Ok((cell.row, mutation)),
            _ => Err(Failure::do_not_retry("a delete in a log without a time")),
        }
    }

    /// The token of a mutation with this nonce; 0 is none.
    fn token(&self, nonce: Option<u64>) -> Option<RequestToken> {
        let nonce = nonce.filter(|nonce| *nonce != 0)?;
        let group = self.nonce_group.unwrap_or(0);
        Some(RequestToken::Nonce { group, nonce })
    }

    async fn parts(
        &self,
        proto: &MutationProto,
        cells: &mut CellReader,
        search: &mut FamilySearch,
        pace: &mut Pace<'_>,
    ) -> Outcome<Vec<Part>> {
        let mut parts = self.parts_of_block(proto, cells, search, pace).await?;
        let is_delete = proto.mutate_type == Some(MutationType::Delete as i32);
        for column in &proto.column_value {
            let family = search.find(self.schema, &column.family, self.memory)?;
            for value in &column.qualifier_value {
                if value.tags.as_ref().is_some_and(|tags| !tags.is_empty()) {
                    return Err(tagged());
                }
                parts.push(Part {
                    family,
                    qualifier: value.qualifier.clone().unwrap_or_default(),
                    timestamp: self.time(value.timestamp.map(|t| t as i64), proto.timestamp.map(|t| t as i64))?,
                    kind: kind_of(value.delete_type, is_delete),
                    value: value.value.clone().unwrap_or_default(),
                });
                pace.spend(CELL_UNITS).await;
            }
        }
        Ok(parts)
    }

    /// The mutation's cells of the block. All of them leave it, also after one that is refused, so that the next mutation finds its own.
    async fn parts_of_block(
        &self,
        proto: &MutationProto,
        cells: &mut CellReader,
        search: &mut FamilySearch,
        pace: &mut Pace<'_>,
    ) -> Outcome<Vec<Part>> {
        let mut parts = Ok(Vec::new());
        for _ in 0..proto.associated_cell_count.unwrap_or(0) {
            match &mut parts {
                Ok(so_far) => match self.part_of_block(proto, cells, search) {
                    Ok(part) => so_far.push(part),
                    Err(failure) => parts = Err(failure),
                },
                // The count may be far above that of the cells.
                Err(_) if cells.pass_over().is_err() => break,
                Err(_) => {}
            }
            pace.spend(CELL_UNITS).await;
        }
        parts
    }

    /// Refuses values for families of aggregates, which have sums of the Bigtable API and no others. They can be deleted.
    fn check_families(&self, parts: &[Part]) -> Outcome<()> {
        let is_plain = |part: &Part| {
            let family = self.schema.families.get(&part.family);
            part.kind != CellType::Put || family.is_none_or(|family| family.value_type == ValueType::Bytes)
        };
        match parts.iter().all(is_plain) {
            true => Ok(()),
            false => Err(Failure::do_not_retry(
                "a column family of aggregates takes no other values",
            )),
        }
    }

    fn part_of_block(&self, proto: &MutationProto, cells: &mut CellReader, search: &mut FamilySearch) -> Outcome<Part> {
        let (cell, tags) = cells.read_with_tags()?;
        if !tags.is_empty() {
            return Err(tagged());
        }
        if proto.row.as_ref().is_some_and(|row| *row != cell.row) {
            return Err(Failure::do_not_retry("a cell of another row than its mutation"));
        }
        Ok(Part {
            family: search.find(self.schema, &cell.family, self.memory)?,
            timestamp: self.time(Some(cell.timestamp), None)?,
            qualifier: cell.qualifier,
            kind: cell.kind,
            value: cell.value,
        })
    }

    /// The timestamp of a cell: its own, or its mutation's.
    fn time(&self, own: Option<i64>, of_mutation: Option<i64>) -> Outcome<Option<Timestamp>> {
        match own.or(of_mutation) {
            None | Some(LATEST) => Ok(None),
            Some(given) => times::stored(self.schema, given).map(Some),
        }
    }

    fn puts(&self, parts: Vec<Part>, lifetime_ms: Option<i64>) -> Vec<Step> {
        parts.into_iter().map(|part| self.write(part, lifetime_ms)).collect()
    }

    /// A put, or the tombstone that the part is: HBase lets a put carry some.
    fn write(&self, part: Part, lifetime_ms: Option<i64>) -> Step {
        let Part {
            family,
            qualifier,
            timestamp,
            kind,
            value,
        } = part;
        let at = timestamp.unwrap_or(self.now);
        // A delete hides all cells that clients see at its time.
        let last = timestamp.map_or(self.now, |given| times::last_shown_as(self.schema, given));
        let mutation = match kind {
            CellType::Put => match lifetime_ms {
                None => Mutation::Put {
                    family,
                    qualifier,
                    timestamp: at,
                    value,
                },
                Some(lifetime_ms) => Mutation::ExpiringPut {
                    family,
                    qualifier,
                    timestamp: at,
                    stored: lifetime::stored(lifetime_ms, &value),
                },
            },
            CellType::Delete => match timestamp {
                None => return Step::DeleteNewest { family, qualifier },
                Some(timestamp) if timestamp == last => Mutation::DeleteVersion {
                    family,
                    qualifier,
                    timestamp,
                },
                Some(from) => Mutation::DeleteColumn {
                    family,
                    qualifier,
                    from,
                    to: last,
                },
            },
            CellType::DeleteColumn => Mutation::DeleteColumn {
                family,
                qualifier,
                from: Timestamp::MIN,
                to: last,
            },
            CellType::DeleteFamily => Mutation::DeleteFamily { family, up_to: last },
            CellType::DeleteFamilyVersion => Mutation::DeleteFamilyVersion { family, timestamp: at },
        };
        match timestamp {
            None => Step::MutateNow(mutation),
            Some(_) => Step::Mutate(mutation),
        }
    }

    fn deletes(&self, proto: &MutationProto, parts: Vec<Part>) -> Outcome<Vec<Step>> {
        if !parts.is_empty() {
            return Ok(parts.into_iter().map(|part| self.write(part, None)).collect());
        }
        // A delete of the row is one of each family: HBase has no tombstones of rows.
        let given = self.time(None, proto.timestamp.map(|t| t as i64))?;
        // It has some bytes in the request, and a table may have thousands of families.
        let bytes = self.schema.families.len().saturating_mul(FAMILY_DELETE_BYTES);
        if self.memory.is_some_and(|memory| memory.try_grow(bytes).is_err()) {
            return Err(Failure::overloaded(
                "the deletes of all families take too much memory; send fewer at once, or retry later",
            ));
        }
        let up_to = given.map_or(self.now, |given| times::last_shown_as(self.schema, given));
        let delete = |family: &FamilyId| {
            let family = *family;
            let delete = Mutation::DeleteFamily { family, up_to };
            match given {
                None => Step::MutateNow(delete),
                Some(_) => Step::Mutate(delete),
            }
        };
        Ok(self.schema.families.keys().map(delete).collect())
    }

    fn rules(
        &self,
        proto: &MutationProto,
        kind: MutationType,
        parts: Vec<Part>,
        lifetime_ms: Option<i64>,
    ) -> Outcome<Vec<Step>> {
        let range = proto.time_range.as_ref().and_then(|range| times_of(self.schema, range));
        let rule = |part: Part| {
            let operation = match kind {
                MutationType::Append => RmwOperation::Append(part.value),
                _ => RmwOperation::Increment(amount(&part.value)?),
            };
            Ok(Step::Modify(RmwRule {
                family: part.family,
                qualifier: part.qualifier,
                operation,
                times: range.map(|(from, to)| (from, to.unwrap_or(i64::MAX))),
                timestamp: part.timestamp,
                is_new_version: true,
                lifetime_ms,
            }))
        };
        parts.into_iter().map(rule).collect()
    }
}

fn tagged() -> Failure {
    Failure::not_served("a cell with tags")
}

/// Refuses parts that are longer than a cell may have: one mutation of a batch, and not the others of its tablet.
fn check_lengths(parts: &[Part], lifetime_ms: Option<i64>) -> Outcome<()> {
    let of_lifetime = lifetime_ms.map_or(0, |_| lifetime::LIFETIME_BYTES);
    for part in parts {
        let (qualifier, value) = (part.qualifier.len(), part.value.len() + of_lifetime);
        if qualifier > limits::QUALIFIER_BYTES_MAX || value > limits::VALUE_BYTES_MAX {
            return Err(Failure::do_not_retry(format!(
                "a cell with a qualifier of {qualifier} bytes and a value of {value} bytes exceeds the limits, which are {} and {}",
                limits::QUALIFIER_BYTES_MAX,
                limits::VALUE_BYTES_MAX
            )));
        }
    }
    Ok(())
}

/// The steps of mutations that make one atomic change of a row. Each sees the row as it was before: where several delete the newest
/// version of a column, that is the same version. One that deletes it twice deletes two.
pub(crate) fn atomic(schema: &TableSchema, mutations: impl IntoIterator<Item = Vec<Step>>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut deleted: HashMap<(FamilyId, Bytes), usize> = HashMap::new();
    for mutation in mutations {
        let mut of_mutation: HashMap<(FamilyId, Bytes), usize> = HashMap::new();
        steps.extend(mutation.into_iter().filter(|step| {
            let Step::DeleteNewest { family, qualifier } = step else {
                return true;
            };
            let column = (*family, qualifier.clone());
            let own = of_mutation.entry(column.clone()).or_default();
            *own += 1;
            let deleted = deleted.entry(column).or_default();
            let is_new = *own > *deleted;
            *deleted = (*own).max(*deleted);
            is_new
        }));
    }
    // Stable: otherwise the order of the mutations counts.
    steps.sort_by_key(|step| hides_its_change(schema, step));
    last_rules(steps)
}

/// Whether a step is a delete that also hides the writes of its own change, in any order. In HBase all of them have one
/// sequence number, so that is so in families whose deletes act by sequence. A table of the Bigtable API keeps the order.
fn hides_its_change(schema: &TableSchema, step: &Step) -> bool {
    let family = match step {
        Step::Mutate(mutation) | Step::MutateNow(mutation) => match mutation {
            Mutation::Put { .. } | Mutation::ExpiringPut { .. } | Mutation::Merge { .. } => None,
            delete => delete.family(),
        },
        Step::DeleteNewest { family, .. } => Some(*family),
        Step::Modify(_) => None,
    };
    let family = family.and_then(|family| schema.families.get(&family));
    family.is_some_and(|family| family.deletes.rule == Some(DeleteRule::BySequence))
}

/// The steps of one atomic change, as HBase applies them: each increment or append of a column sees the column as it was before, so
/// the last of them counts.
fn last_rules(mut steps: Vec<Step>) -> Vec<Step> {
    let is_rule = |step: &Step| matches!(step, Step::Modify(_));
    if steps.iter().filter(|step| is_rule(step)).nth(1).is_none() {
        return steps;
    }
    let mut seen: HashSet<(FamilyId, Bytes)> = HashSet::new();
    let mut last: Vec<bool> = steps
        .iter()
        .rev()
        .map(|step| match step {
            Step::Modify(rule) => seen.insert((rule.family, rule.qualifier.clone())),
            _ => true,
        })
        .collect();
    // The flags are of the steps from behind.
    steps.retain(|_| last.pop().unwrap_or(true));
    steps
}

/// The kind of a cell in a message: only deletes say more than that they are puts.
fn kind_of(delete_type: Option<i32>, is_delete: bool) -> CellType {
    match delete_type.and_then(|number| DeleteType::try_from(number).ok()) {
        Some(DeleteType::OneVersion) => CellType::Delete,
        Some(DeleteType::MultipleVersions) => CellType::DeleteColumn,
        Some(DeleteType::Family) => CellType::DeleteFamily,
        Some(DeleteType::FamilyVersion) => CellType::DeleteFamilyVersion,
        None if is_delete => CellType::Delete,
        None => CellType::Put,
    }
}

/// The amount of an increment.
fn amount(value: &[u8]) -> Outcome<i64> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| Failure::do_not_retry(format!("Field is not a long, it's {} bytes wide", value.len())))?;
    Ok(i64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests;
