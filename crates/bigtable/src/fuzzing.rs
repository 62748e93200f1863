//! Entry points for fuzzers decode a message into the request for the layers below. No service runs.
//!
//! Refusals are `None` or nothing. A fuzzer checks that they are reached without a panic, and that accepted requests
//! are fit for the layers below.

use crate::features::Client;
use crate::instance_data::{self, DEFAULT_APP_PROFILE, InstanceData, cluster_proto};
use crate::mutations::{Resolver, check_mutation_count};
use crate::names::InstanceName;
use crate::pb::{admin, own, v2};
use crate::size_estimate::decoded::check_bound;
use crate::times::TableTime;
use crate::wire::{CheckAndMutateRowRequest, MutateRowRequest, MutateRowsRequest, ReadRowsRequest, RowFilter};
use crate::{filters, reads, rmw, zero_copy};
use bytes::Bytes;
use prost::Message as _;
use stele_client::GroupChange;
use stele_filter::CompiledFilter;
use stele_types::{RowMutation, RowSet, RowWrite, TableSchema};

/// The instant of every request: 2023-11-14T22:13:20Z.
const NOW_MICROS: i64 = 1_700_000_000_000_000;

/// A serialized `RowFilter`, ready for use on rows of a table.
pub fn row_filter(bytes: &[u8], schema: &TableSchema) -> Option<CompiledFilter> {
    let filter = RowFilter::decode(bytes).ok()?;
    let filter = filters::filter(Some(filter), TableTime::of(schema)).ok()??;
    filter.compile(schema).ok()
}

/// The rows that a serialized `ReadRowsRequest` asks for.
pub fn read_rows(bytes: &[u8], schema: &TableSchema) -> Option<RowSet> {
    let request = ReadRowsRequest::decode(bytes).ok()?;
    let read = reads::read(schema.name.clone(), schema, request, Client::default());
    read.ok().map(|(read, _)| read.rows)
}

/// The rows that a serialized `MutateRowsRequest` changes; refused entries are left out.
///
/// # Panics If the zero-copy decoder and prost disagree about a request.
pub fn mutate_rows(bytes: &[u8], schema: &TableSchema) -> Vec<RowMutation> {
    let resolver = Resolver::new(schema, NOW_MICROS);
    let general = MutateRowsRequest::decode(bytes).ok().and_then(|request| {
        let count = request.entries.iter().map(|e| e.mutations.len()).sum();
        check_mutation_count(count).ok()?;
        let rows = request.entries.into_iter();
        let rows = rows.map(|entry| resolver.row(entry.row_key, entry.mutations).ok());
        Some((
            request.table_name,
            request.authorized_view_name,
            rows.collect::<Vec<_>>(),
        ))
    });
    let bytes = Bytes::copy_from_slice(bytes);
    if let Some(head) = zero_copy::mutate_rows_head(&bytes)
        && let Some(writes) = zero_copy::mutate_rows(&bytes, &resolver)
    {
        let rows = writes.iter().map(|row| Some(row.to_owned())).collect();
        let flat = (head.table_name.to_owned(), String::new(), rows);
        assert_eq!(Some(&flat), general.as_ref(), "laid flat, and by the general way");
    }
    general.into_iter().flat_map(|(.., rows)| rows).flatten().collect()
}

/// The row that a serialized `MutateRowRequest` changes.
///
/// # Panics If the zero-copy decoder and prost disagree about a request.
pub fn mutate_row(bytes: &[u8], schema: &TableSchema) -> Option<RowMutation> {
    let resolver = Resolver::new(schema, NOW_MICROS);
    let general = MutateRowRequest::decode(bytes).ok().and_then(|request| {
        check_mutation_count(request.mutations.len()).ok()?;
        let row = resolver.row(request.row_key, request.mutations).ok()?;
        Some((request.table_name, request.authorized_view_name, row))
    });
    let bytes = Bytes::copy_from_slice(bytes);
    if let Some(head) = zero_copy::mutate_row_head(&bytes)
        && let Some(writes) = zero_copy::mutate_row(&bytes, &resolver)
    {
        let rows: Vec<_> = writes.iter().map(RowWrite::to_owned).collect();
        assert_eq!(rows.len(), 1);
        let flat = rows
            .into_iter()
            .next()
            .map(|row| (head.table_name.to_owned(), String::new(), row));
        assert_eq!(flat, general, "laid flat, and by the general way");
    }
    general.map(|(.., row)| row)
}

/// Counts the parts of all kinds of requests.
///
/// # Panics
/// If the decoder makes more of the same bytes than was counted.
pub fn census(bytes: &[u8]) {
    check_bound::<ReadRowsRequest>(bytes);
    check_bound::<MutateRowRequest>(bytes);
    check_bound::<MutateRowsRequest>(bytes);
    check_bound::<CheckAndMutateRowRequest>(bytes);
    check_bound::<v2::ReadModifyWriteRowRequest>(bytes);
    check_bound::<admin::CreateTableRequest>(bytes);
    check_bound::<admin::UpdateTableRequest>(bytes);
    check_bound::<admin::ModifyColumnFamiliesRequest>(bytes);
    check_bound::<own::ModifyLocalityGroupsRequest>(bytes);
}

/// Whether a serialized `ReadModifyWriteRowRequest` is accepted.
pub fn read_modify_write(bytes: &[u8], schema: &TableSchema) -> bool {
    let Ok(request) = v2::ReadModifyWriteRowRequest::decode(bytes) else {
        return false;
    };
    let resolver = Resolver::new(schema, NOW_MICROS);
    rmw::steps(&resolver, &request.row_key, request.rules).is_ok()
}

/// The changes that a serialized `ModifyLocalityGroupsRequest` asks for.
pub fn modify_groups(bytes: &[u8]) -> Option<Vec<GroupChange>> {
    let request = own::ModifyLocalityGroupsRequest::decode(bytes).ok()?;
    let changes = request.modifications.into_iter().map(crate::groups::change);
    changes.collect::<Result<_, _>>().ok()
}

/// Decodes the stored record of an instance, and converts it to the API's messages.
///
/// # Panics If encoding the record again changes it, or if it lacks a field that every instance has.
pub fn instance_data(bytes: &[u8]) {
    let Ok(data) = instance_data::decode("i", bytes) else {
        return;
    };
    assert_eq!(InstanceData::decode(&data.encode_to_vec()[..]).as_ref(), Ok(&data));
    let name = InstanceName {
        project: "p".to_owned(),
        instance: "i".to_owned(),
    };
    let instance = data.instance(&name);
    assert_eq!(instance.name, name.to_string());
    assert!(!instance.display_name.is_empty() && instance.r#type != 0 && instance.state != 0);
    let clusters = data.clusters();
    assert!(!clusters.is_empty());
    for cluster in clusters {
        let shown = cluster_proto(&name, cluster.clone());
        assert_eq!(shown.name, name.cluster(&cluster.name));
        assert!(!shown.location.is_empty());
    }
    let profiles = data.app_profiles();
    assert!(profiles.iter().any(|profile| profile.name == DEFAULT_APP_PROFILE));
    assert!(data.app_profiles.iter().all(|profile| profiles.contains(profile)));
}
