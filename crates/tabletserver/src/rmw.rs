//! Conditional writes, increments and appends: a read and a write of one row under its latch.

use crate::error::not_here;
use crate::read::{compile, read_row};
use crate::server::TabletServer;
use crate::write::Held;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use stele_client::request::server_timestamp;
use stele_client::{RmwOperation, RmwRule, ServiceError, ServiceResult, TabletCheckAndMutate};
use stele_tablet::{Batch, BatchBuilder};
use stele_types::{Cell, Durability, FamilyId, Mutation, RowMutation, TableSchema, TabletId, Timestamp, limits};

/// What admission takes such a write for, before it is known: small.
const WRITE_BYTES: usize = 256;

impl TabletServer {
    /// Whether the predicate matched; the mutation of that case has been applied.
    pub(crate) async fn check_and_mutate_row(
        &self,
        tablet: TabletId,
        request: TabletCheckAndMutate,
    ) -> ServiceResult<bool> {
        let held = self.own_row(tablet, &request.row).await?;
        let tablet = &held.entered.tablet;
        let filter = compile(request.predicate.as_ref(), &tablet.schema())?;
        let read = read_row(tablet, &request.row, filter, &self.admission.rows).await?;
        let matched = !read.cells.is_empty();
        drop(read);
        let mutation = if matched { request.on_match } else { request.otherwise };
        if let Some(mutation) = mutation {
            self.commit(batch_of(&mutation), request.durability, held).await?;
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
        let held = self.own_row(tablet, &row).await?;
        let tablet = &held.entered.tablet;
        let schema = tablet.schema();
        let mut read = read_row(tablet, &row, None, &self.admission.rows).await?;
        let newest = newest_cells(std::mem::take(&mut read.cells));
        let now = server_timestamp(schema.time_unit, schema.granularity, self.env.wall_micros());
        let written = apply_rules(&schema, newest, &rules, now)?;
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
        self.commit(batch_of(&mutation), durability, held).await?;
        Ok(written)
    }

    async fn own_row(&self, tablet: TabletId, row: &Bytes) -> ServiceResult<Held> {
        let entered = self.enter(self.admit(tablet, WRITE_BYTES).await?).await?;
        if !entered.tablet.range().contains(row) {
            return Err(not_here(tablet));
        }
        Ok(Held {
            _latched: self.latches.own(row).await,
            cached: self.row_cache.keys(tablet, [&row[..]].into_iter()),
            entered,
        })
    }
}

fn batch_of(row: &RowMutation) -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push_row(row);
    builder.finish()
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

/// Applies the rules in order; later ones see what earlier ones wrote. A written cell is never older than the one it
/// replaces, or it would not be the newest.
fn apply_rules(
    schema: &TableSchema,
    mut columns: Columns,
    rules: &[RmwRule],
    now: Timestamp,
) -> ServiceResult<Vec<Cell>> {
    let mut written = BTreeMap::new();
    for rule in rules {
        let Some(family) = schema.families.get(&rule.family) else {
            return Err(ServiceError::not_found("Requested column family not found."));
        };
        let column = (rule.family, rule.qualifier.clone());
        let current = columns.get(&column);
        let value = operate(
            &rule.operation,
            current.map(|(_, value)| value),
            &family.name,
            &rule.qualifier,
        )?;
        let timestamp = current.map_or(now, |(timestamp, _)| now.max(*timestamp));
        written.insert(column.clone(), (timestamp, value.clone()));
        columns.insert(column, (timestamp, value));
    }
    let cell = |((family, qualifier), (timestamp, value))| Cell::put(family, qualifier, timestamp, value);
    Ok(written.into_iter().map(cell).collect())
}

fn operate(operation: &RmwOperation, current: Option<&Bytes>, family: &str, qualifier: &Bytes) -> ServiceResult<Bytes> {
    match operation {
        RmwOperation::Append(suffix) => {
            let current = current.map_or(&[][..], |c| &c[..]);
            if current.len() + suffix.len() > limits::VALUE_BYTES_MAX {
                return Err(ServiceError::invalid(format!(
                    "appending to {family}:{} makes a value of more than {} bytes",
                    qualifier.escape_ascii(),
                    limits::VALUE_BYTES_MAX
                )));
            }
            let mut value = BytesMut::with_capacity(current.len() + suffix.len());
            value.extend_from_slice(current);
            value.extend_from_slice(suffix);
            Ok(value.freeze())
        }
        RmwOperation::Increment(amount) => {
            let current = match current {
                None => 0,
                Some(bytes) => i64::from_be_bytes(bytes[..].try_into().map_err(|_| {
                    ServiceError::invalid(format!(
                        "increment of {family}:{}, whose value has {} bytes and not 8",
                        qualifier.escape_ascii(),
                        bytes.len()
                    ))
                })?),
            };
            Ok(Bytes::copy_from_slice(&current.wrapping_add(*amount).to_be_bytes()))
        }
    }
}

#[cfg(test)]
mod tests;
