//! Increments and appends: the new cells of the columns that rules change.

use super::columns::{family_of, newest_within, of_cell, versions};
use bytes::{BufMut as _, Bytes, BytesMut};
use stele_client::{RmwOperation, RmwRule, ServiceError, ServiceResult, Step};
use stele_types::{Cell, ErrorKind, FamilyId, Mutation, TableSchema, Timestamp, lifetime, limits};

/// The cells that rules write.
pub(super) struct Modified(Vec<ModifiedColumn>);

struct ModifiedColumn {
    cell: Cell,
    /// The number of the column's last rule among the steps.
    place: usize,
}

impl Modified {
    /// The mutation of the step with this number: it is of the last rule of each column.
    pub(super) fn put_at(&self, place: usize, rule: RmwRule) -> Option<Mutation> {
        let column = column_of(&rule);
        let found = self.0.binary_search_by(|modified| of_cell(&modified.cell).cmp(&column));
        let modified = self.0.get(found.ok()?)?;
        if modified.place != place {
            return None;
        }
        let (family, qualifier) = (rule.family, rule.qualifier);
        let (timestamp, value) = (modified.cell.timestamp, &modified.cell.value);
        Some(match rule.lifetime_ms {
            Some(lifetime_ms) => Mutation::ExpiringPut {
                family,
                qualifier,
                timestamp,
                stored: lifetime::stored(lifetime_ms, value),
            },
            None => Mutation::Put {
                family,
                qualifier,
                timestamp,
                value: value.clone(),
            },
        })
    }

    /// One cell per column, ascending by family and qualifier.
    pub(super) fn into_cells(self) -> Vec<Cell> {
        self.0.into_iter().map(|modified| modified.cell).collect()
    }
}

/// A rule and its number among the steps.
type Placed<'s> = (usize, &'s RmwRule);

/// Applies the rules among the steps to the cells of a row. Rules of one column apply in their order. Rules that write more
/// than `bytes_max` are refused before anything is copied.
pub(super) fn modify(
    schema: &TableSchema,
    cells: &[Cell],
    steps: &[Step],
    now: Timestamp,
    bytes_max: usize,
) -> ServiceResult<Modified> {
    let mut rules: Vec<Placed<'_>> = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        if let Step::Modify(rule) = step {
            rules.push((place, rule));
        }
    }
    // Stable, so that the rules of a column stay in their order.
    rules.sort_by(|(_, a), (_, b)| column_of(a).cmp(&column_of(b)));
    let columns = rules.chunk_by(|(_, a), (_, b)| column_of(a) == column_of(b));
    let columns = columns.filter_map(|rules| Some(Column::of(schema, cells, rules.first()?.1, rules)));
    let columns: Vec<Column<'_>> = columns.collect::<ServiceResult<_>>()?;
    let bytes: usize = columns.iter().map(|column| column.value_bytes).sum();
    if bytes > bytes_max {
        let message = format!(
            "The rules write {bytes} bytes, this server spares {bytes_max} for one read-modify-write: write less at once, \
             or give it more memory"
        );
        return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
    }
    let modified = columns.iter().map(|column| column.modified(now, schema.granularity));
    let modified: Vec<ModifiedColumn> = modified.collect::<ServiceResult<_>>()?;
    debug_assert!(
        modified.is_sorted_by(|a, b| of_cell(&a.cell) < of_cell(&b.cell)),
        "each column is written once, in the order of a row"
    );
    Ok(Modified(modified))
}

fn column_of(rule: &RmwRule) -> (FamilyId, &[u8]) {
    (rule.family, &rule.qualifier)
}

/// A column that rules change.
struct Column<'s> {
    family: FamilyId,
    family_name: &'s str,
    qualifier: &'s Bytes,
    rules: &'s [Placed<'s>],
    /// Of the cell that the written one must not be older than.
    before: Option<Timestamp>,
    /// The value that the first rule changes.
    operand: Option<&'s Bytes>,
    /// Bytes of the largest value that the rules may make.
    value_bytes: usize,
}

impl<'s> Column<'s> {
    fn of(
        schema: &'s TableSchema,
        cells: &'s [Cell],
        first: &'s RmwRule,
        rules: &'s [Placed<'s>],
    ) -> ServiceResult<Self> {
        let family_name = &family_of(schema, first.family)?.name;
        let versions = versions(cells, first.family, &first.qualifier);
        let operand = newest_within(versions, first.times);
        // HBase does not look at the cells outside of the times: the new cell may lie behind them.
        let before = if first.is_new_version {
            operand
        } else {
            versions.first()
        };
        let before = before.map(|cell| cell.timestamp);
        let operand = operand.map(|cell| &cell.value);
        let mut value_bytes = operand.map_or(0, Bytes::len);
        for (_, rule) in rules {
            match &rule.operation {
                RmwOperation::Append(suffix) => value_bytes += suffix.len(),
                RmwOperation::Increment(_) => value_bytes = value_bytes.max(size_of::<i64>()),
            }
            if value_bytes > limits::VALUE_BYTES_MAX {
                return Err(ServiceError::invalid(format!(
                    "appending to {family_name}:{} makes a value of more than {} bytes",
                    first.qualifier.escape_ascii(),
                    limits::VALUE_BYTES_MAX
                )));
            }
        }
        Ok(Column {
            family: first.family,
            family_name,
            qualifier: &first.qualifier,
            rules,
            before,
            operand,
            value_bytes,
        })
    }

    /// The cell that the rules write. Unless a rule gives its timestamp it is never older than the newest cell of the column, or
    /// it would not be the newest. A new version is later than its operand, and no more.
    fn modified(&self, now: Timestamp, granularity: i64) -> ServiceResult<ModifiedColumn> {
        let mut bytes = BytesMut::with_capacity(self.value_bytes);
        bytes.extend_from_slice(self.operand.map_or(&[][..], |operand| operand));
        let mut value = Value {
            bytes,
            is_there: self.operand.is_some(),
        };
        let is_new_version = self.rules.iter().any(|(_, rule)| rule.is_new_version);
        // A new version is at the next time that the table can have: the Bigtable API refuses others, and HBase shows milliseconds.
        let granularity = granularity.max(1);
        let next = |time: i64| {
            time.div_euclid(granularity)
                .saturating_add(1)
                .saturating_mul(granularity)
        };
        let least = |before: Timestamp| match is_new_version {
            true => Timestamp(next(before.0)),
            false => before,
        };
        let mut newest = self.before.map_or(now, |before| now.max(least(before)));
        let (mut timestamp, mut place) = (newest, 0);
        for (number, rule) in self.rules {
            let continues = rule.is_new_version && value.is_there;
            operate(&rule.operation, &mut value, self.family_name, self.qualifier)?;
            timestamp = rule.timestamp.filter(|_| !continues).unwrap_or(newest);
            newest = newest.max(timestamp);
            place = *number;
        }
        assert!(
            value.bytes.len() <= self.value_bytes,
            "rules write at most the bytes that were checked before anything was copied"
        );
        assert!(
            self.rules.iter().any(|(_, rule)| rule.timestamp.is_some())
                || self.before.is_none_or(|before| timestamp >= before),
            "a written cell is at least as new as the one that it follows, unless its timestamp was given"
        );
        Ok(ModifiedColumn {
            cell: Cell::put(self.family, self.qualifier.clone(), timestamp, value.bytes.freeze()),
            place,
        })
    }
}

/// The next value of a column.
struct Value {
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
