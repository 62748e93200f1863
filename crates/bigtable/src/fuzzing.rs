//! Ways in for fuzzers: from the bytes of a message to what the services below would be asked, without a service.
//!
//! Refusals are `None` or nothing; a fuzzer cares only that they are reached without a panic, and that what is accepted
//! is fit for the layers below.

use crate::features::Client;
use crate::mutations::{Resolver, check_mutation_count};
use crate::pb::v2;
use crate::times::TableTime;
use crate::wire::{MutateRowsRequest, ReadRowsRequest, RowFilter};
use crate::{filters, reads, rmw};
use prost::Message as _;
use stele_filter::CompiledFilter;
use stele_types::{RowMutation, RowSet, TableSchema};

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

/// The rows that a serialized `MutateRowsRequest` changes; entries that are refused are left out.
pub fn mutate_rows(bytes: &[u8], schema: &TableSchema) -> Vec<RowMutation> {
    let Ok(request) = MutateRowsRequest::decode(bytes) else {
        return Vec::new();
    };
    let count = request.entries.iter().map(|e| e.mutations.len()).sum();
    if check_mutation_count(count).is_err() {
        return Vec::new();
    }
    let resolver = Resolver::new(schema, NOW_MICROS);
    let rows = request.entries.into_iter();
    rows.filter_map(|entry| resolver.row(entry.row_key, entry.mutations).ok())
        .collect()
}

/// Whether a serialized `ReadModifyWriteRowRequest` is accepted.
pub fn read_modify_write(bytes: &[u8], schema: &TableSchema) -> bool {
    let Ok(request) = v2::ReadModifyWriteRowRequest::decode(bytes) else {
        return false;
    };
    let resolver = Resolver::new(schema, NOW_MICROS);
    rmw::rules(&resolver, &request.row_key, request.rules).is_ok()
}
