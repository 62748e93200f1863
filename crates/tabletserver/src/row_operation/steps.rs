//! The steps of a row operation, and the mutations that they come to.

use super::columns::versions;
use super::modify::modify;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use stele_client::{RmwOperation, ServiceResult, Step};
use stele_tablet::WriteSize;
use stele_types::{Cell, FamilyId, Mutation, TableSchema, Timestamp};

/// The times of an operation.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The server's time under the latch.
    pub(super) now: Timestamp,
    /// That of puts: not before a cell that the condition has tested, which would hide them. A delete at that time would hide
    /// writes that come later, so deletes are at the server's time, as in HBase.
    pub(super) puts: Timestamp,
}

/// The least that steps write: the bytes that columns have already are not known.
pub(super) fn least_size(row: &[u8], steps: &[Step]) -> WriteSize {
    match steps {
        [] => WriteSize::default(),
        steps => WriteSize::of_row(row, steps.iter().map(least)),
    }
}

fn least(step: &Step) -> Mutation<&[u8]> {
    match step {
        Step::Mutate(mutation) | Step::MutateNow(mutation) => mutation.map(|bytes| &bytes[..]),
        Step::DeleteNewest { family, qualifier } => Mutation::DeleteVersion {
            family: *family,
            qualifier,
            timestamp: Timestamp(0),
        },
        Step::Modify(rule) => Mutation::Put {
            family: rule.family,
            qualifier: &rule.qualifier,
            timestamp: Timestamp(0),
            value: match &rule.operation {
                RmwOperation::Append(suffix) => suffix,
                RmwOperation::Increment(_) => &[0; size_of::<i64>()],
            },
        },
    }
}

/// The mutations of steps, in their order, on a row that has these cells in their columns; and the cells that rules write, one
/// per column. The server's time is the least timestamp that a rule gives on its own. Rules that write more than `bytes_max`
/// are refused.
pub(super) fn resolve(
    schema: &TableSchema,
    cells: &[Cell],
    steps: Vec<Step>,
    Times { now, puts }: Times,
    bytes_max: usize,
) -> ServiceResult<(Vec<Mutation>, Vec<Cell>)> {
    debug_assert!(
        cells.is_sorted_by_key(|cell| (cell.family, &cell.qualifier[..], std::cmp::Reverse(cell.timestamp))),
        "cells are in the order of a row"
    );
    let modified = modify(schema, cells, &steps, now, bytes_max)?;
    let mut mutations = Vec::with_capacity(steps.len());
    let mut deleted: BTreeMap<(FamilyId, Bytes), usize> = BTreeMap::new();
    let mut absent = BTreeSet::new();
    for (place, step) in steps.into_iter().enumerate() {
        match step {
            Step::Mutate(mutation) => mutations.push(mutation),
            Step::MutateNow(mutation) => {
                let is_put = matches!(mutation, Mutation::Put { .. } | Mutation::ExpiringPut { .. });
                mutations.push(mutation.at(if is_put { puts } else { now }));
            }
            Step::DeleteNewest { family, qualifier } => {
                let before = deleted.entry((family, qualifier.clone())).or_default();
                let version = versions(cells, family, &qualifier).get(*before);
                *before += 1;
                if version.is_none() {
                    absent.insert(mutations.len());
                }
                mutations.push(Mutation::DeleteVersion {
                    family,
                    qualifier,
                    timestamp: version.map_or(now, |version| version.timestamp),
                });
            }
            Step::Modify(rule) => mutations.extend(modified.put_at(place, rule)),
        }
    }
    keep_deletes_of_own(&mut mutations, &absent, now);
    let written = modified.into_cells();
    assert!(
        written.len() <= mutations.len(),
        "each cell that rules write is put by the last rule of its column"
    );
    Ok((mutations, written))
}

/// Drops the deletes of a newest version that is not there, which have these places, unless they hide a cell of their own operation. In
/// HBase they are deletes of a version at the server's time, so they hide the cell that the operation writes at that time.
fn keep_deletes_of_own(mutations: &mut Vec<Mutation>, absent: &BTreeSet<usize>, now: Timestamp) {
    if absent.is_empty() {
        return;
    }
    let is_delete_now = |mutation: &Mutation| match mutation {
        Mutation::DeleteVersion { timestamp, .. } => *timestamp == now,
        _ => false,
    };
    assert!(
        absent
            .iter()
            .all(|place| mutations.get(*place).is_some_and(is_delete_now)),
        "a version that is not there is deleted at the server's time"
    );
    let put_now = |mutation: &Mutation| match mutation {
        Mutation::Put {
            family,
            qualifier,
            timestamp,
            ..
        }
        | Mutation::ExpiringPut {
            family,
            qualifier,
            timestamp,
            ..
        } if *timestamp == now => Some((*family, qualifier.clone())),
        _ => None,
    };
    let written: BTreeSet<(FamilyId, Bytes)> = mutations.iter().filter_map(put_now).collect();
    let mut places = 0..;
    mutations.retain(|mutation| {
        let is_absent = places.next().is_some_and(|place| absent.contains(&place));
        match mutation {
            Mutation::DeleteVersion { family, qualifier, .. } if is_absent => {
                written.contains(&(*family, qualifier.clone()))
            }
            _ => true,
        }
    });
    assert!(
        written.is_empty() || !mutations.is_empty(),
        "deletes are dropped, and no writes"
    );
}

#[cfg(test)]
mod tests;
