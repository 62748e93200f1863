//! The requests of each operation. Pure.

use crate::target::{Columns, Put, Scan, TableSpec};
use bytes::{Bytes, BytesMut};
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    CheckAndMutateRowRequest, ColumnRange, MutateRowRequest, Mutation, ReadModifyWriteRowRequest, ReadModifyWriteRule,
    ReadRowsRequest, RowFilter, RowRange, RowSet, ValueRange, column_range, mutate_rows_request, mutation,
    read_modify_write_rule,
    row_filter::{self, Filter},
    row_range, value_range,
};
use std::sync::Arc;

/// Timestamp that stands for the server's time.
const SERVER_TIME: i64 = -1;

/// A table and the application profile through which it is used.
pub(super) struct Place {
    /// Full name.
    pub table: String,
    /// Empty for the default one.
    pub app_profile: String,
}

/// Reads one row.
pub(super) fn read_row(place: &Place, key: Bytes, columns: &Columns) -> ReadRowsRequest {
    let rows = RowSet {
        row_keys: vec![key],
        row_ranges: Vec::new(),
    };
    read(place, rows, columns, 1)
}

/// Reads the rest of a range behind `after`, or all of it if that is empty. `limit` zero stands for no limit.
pub(super) fn read_range(place: &Place, scan: &Scan, after: &Bytes, limit: i64) -> ReadRowsRequest {
    let start = if after.is_empty() {
        row_range::StartKey::StartKeyClosed(scan.start.clone())
    } else {
        row_range::StartKey::StartKeyOpen(after.clone())
    };
    let end = (!scan.end.is_empty()).then(|| row_range::EndKey::EndKeyOpen(scan.end.clone()));
    let range = RowRange {
        start_key: Some(start),
        end_key: end,
    };
    let rows = RowSet {
        row_keys: Vec::new(),
        row_ranges: vec![range],
    };
    read(place, rows, &scan.columns, limit)
}

fn read(place: &Place, rows: RowSet, columns: &Columns, rows_limit: i64) -> ReadRowsRequest {
    ReadRowsRequest {
        table_name: place.table.clone(),
        app_profile_id: place.app_profile.clone(),
        rows: Some(rows),
        filter: Some(columns_filter(columns)),
        rows_limit,
        ..ReadRowsRequest::default()
    }
}

/// Writes one row.
pub(super) fn mutate_row(place: &Place, put: Put) -> MutateRowRequest {
    MutateRowRequest {
        table_name: place.table.clone(),
        app_profile_id: place.app_profile.clone(),
        row_key: put.key,
        mutations: set_cells(put.cells),
        ..MutateRowRequest::default()
    }
}

/// Writes one row among many.
pub(super) fn entry(put: Put) -> mutate_rows_request::Entry {
    mutate_rows_request::Entry {
        row_key: put.key,
        mutations: set_cells(put.cells),
        idempotency: None,
    }
}

/// Deletes columns, a family, or the row.
pub(super) fn delete(place: &Place, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> MutateRowRequest {
    let one = |mutation| Mutation {
        mutation: Some(mutation),
    };
    let mutations = match family {
        None => vec![one(mutation::Mutation::DeleteFromRow(mutation::DeleteFromRow {}))],
        Some(family) if qualifiers.is_empty() => {
            let family_name = family.to_owned();
            vec![one(mutation::Mutation::DeleteFromFamily(mutation::DeleteFromFamily {
                family_name,
            }))]
        }
        Some(family) => {
            let column = |qualifier: &Bytes| {
                one(mutation::Mutation::DeleteFromColumn(mutation::DeleteFromColumn {
                    family_name: family.to_owned(),
                    column_qualifier: qualifier.clone(),
                    time_range: None,
                }))
            };
            qualifiers.iter().map(column).collect()
        }
    };
    MutateRowRequest {
        table_name: place.table.clone(),
        app_profile_id: place.app_profile.clone(),
        row_key: key,
        mutations,
        ..MutateRowRequest::default()
    }
}

/// Adds to a counter.
pub(super) fn increment(
    place: &Place,
    key: Bytes,
    family: &str,
    qualifier: Bytes,
    by: i64,
) -> ReadModifyWriteRowRequest {
    let rule = ReadModifyWriteRule {
        family_name: family.to_owned(),
        column_qualifier: qualifier,
        rule: Some(read_modify_write_rule::Rule::IncrementAmount(by)),
    };
    ReadModifyWriteRowRequest {
        table_name: place.table.clone(),
        app_profile_id: place.app_profile.clone(),
        row_key: key,
        rules: vec![rule],
        ..ReadModifyWriteRowRequest::default()
    }
}

/// Writes `put` if the newest version of a column equals `expected`: the mutations are on the side of a match. With
/// `None` the predicate tests for any value, and they are on the other side.
pub(super) fn check_and_put(
    place: &Place,
    family: &str,
    qualifier: &Bytes,
    expected: Option<&Bytes>,
    put: Put,
) -> CheckAndMutateRowRequest {
    let mut filters = vec![column(family, qualifier), filter(Filter::CellsPerColumnLimitFilter(1))];
    filters.extend(expected.map(value));
    let mutations = set_cells(put.cells);
    let (true_mutations, false_mutations) = match expected {
        Some(_) => (mutations, Vec::new()),
        None => (Vec::new(), mutations),
    };
    CheckAndMutateRowRequest {
        table_name: place.table.clone(),
        app_profile_id: place.app_profile.clone(),
        row_key: put.key,
        predicate_filter: Some(chain(filters)),
        true_mutations,
        false_mutations,
        ..CheckAndMutateRowRequest::default()
    }
}

/// Creates a table.
pub(super) fn create_table(parent: String, spec: &TableSpec) -> admin::CreateTableRequest {
    let versions = i32::try_from(spec.max_versions.max(1)).unwrap_or(i32::MAX);
    let family = admin::ColumnFamily {
        gc_rule: Some(admin::GcRule {
            rule: Some(admin::gc_rule::Rule::MaxNumVersions(versions)),
        }),
        ..admin::ColumnFamily::default()
    };
    let families = spec.families.iter().map(|name| (name.clone(), family.clone()));
    let table = admin::Table {
        column_families: families.collect(),
        ..admin::Table::default()
    };
    let split = |key: &Vec<u8>| admin::create_table_request::Split {
        key: Bytes::copy_from_slice(key),
    };
    admin::CreateTableRequest {
        parent,
        table_id: spec.name.clone(),
        table: Some(table),
        initial_splits: spec.splits.iter().map(split).collect(),
    }
}

fn set_cells(cells: Vec<(Arc<str>, Bytes, Bytes)>) -> Vec<Mutation> {
    let set = |(family, qualifier, value): (Arc<str>, Bytes, Bytes)| Mutation {
        mutation: Some(mutation::Mutation::SetCell(mutation::SetCell {
            family_name: (*family).to_owned(),
            column_qualifier: qualifier,
            timestamp_micros: SERVER_TIME,
            value,
        })),
    };
    cells.into_iter().map(set).collect()
}

/// The filter of a read, as Google's clients build it from families, qualifiers and a number of versions.
fn columns_filter(columns: &Columns) -> RowFilter {
    let versions = i32::try_from(columns.versions.max(1)).unwrap_or(i32::MAX);
    let mut filters = Vec::with_capacity(3);
    match (&columns.families[..], &columns.qualifiers[..]) {
        ([family], [qualifier]) => filters.push(column(family, qualifier)),
        (families, qualifiers) => {
            if !families.is_empty() {
                let regex = alternatives(families.iter().map(|family| family.as_bytes()));
                let regex = String::from_utf8_lossy(&regex).into_owned();
                filters.push(filter(Filter::FamilyNameRegexFilter(regex)));
            }
            if !qualifiers.is_empty() {
                let regex = alternatives(qualifiers.iter().map(|qualifier| &qualifier[..]));
                filters.push(filter(Filter::ColumnQualifierRegexFilter(regex)));
            }
        }
    }
    filters.push(filter(Filter::CellsPerColumnLimitFilter(versions)));
    chain(filters)
}

fn filter(filter: Filter) -> RowFilter {
    RowFilter { filter: Some(filter) }
}

/// A chain has at least two members.
fn chain(mut filters: Vec<RowFilter>) -> RowFilter {
    match filters.len() {
        1 => filters.swap_remove(0),
        _ => filter(Filter::Chain(row_filter::Chain { filters })),
    }
}

/// One column, as a range, so that nothing has to be escaped.
fn column(family: &str, qualifier: &Bytes) -> RowFilter {
    use column_range::{EndQualifier, StartQualifier};
    let end = if qualifier.is_empty() {
        // Some servers take an empty end for no end. No string lies between the empty string and a zero byte.
        EndQualifier::EndQualifierOpen(Bytes::from_static(&[0]))
    } else {
        EndQualifier::EndQualifierClosed(qualifier.clone())
    };
    filter(Filter::ColumnRangeFilter(ColumnRange {
        family_name: family.to_owned(),
        start_qualifier: Some(StartQualifier::StartQualifierClosed(qualifier.clone())),
        end_qualifier: Some(end),
    }))
}

/// One value, as a range: see [`column`].
fn value(value: &Bytes) -> RowFilter {
    use value_range::{EndValue, StartValue};
    let end = if value.is_empty() {
        EndValue::EndValueOpen(Bytes::from_static(&[0]))
    } else {
        EndValue::EndValueClosed(value.clone())
    };
    filter(Filter::ValueRangeFilter(ValueRange {
        start_value: Some(StartValue::StartValueClosed(value.clone())),
        end_value: Some(end),
    }))
}

/// A regular expression (RE2 over bytes, anchored by the server) that matches only these strings. The group does not
/// capture, because a colon must not occur in an expression for families.
fn alternatives<'s>(strings: impl Iterator<Item = &'s [u8]>) -> Bytes {
    let mut regex = BytesMut::from("(");
    for (i, string) in strings.enumerate() {
        if i > 0 {
            regex.extend_from_slice(b"|");
        }
        for &byte in string {
            match byte {
                0 => regex.extend_from_slice(b"\\x00"),
                _ if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 => regex.extend_from_slice(&[byte]),
                _ => regex.extend_from_slice(&[b'\\', byte]),
            }
        }
    }
    regex.extend_from_slice(b")");
    regex.freeze()
}

#[cfg(test)]
mod tests;
