//! Parts that several targets share.
//!
//! These are a table, files in memory, valid checksums for damaged content, and the promises of filters.

pub mod trees;

use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_commitlog::format::RECORD_HEADER_BYTES;
use stele_filter::CompiledFilter;
use stele_storage::memory::MemoryStorage;
use stele_storage::{ReadFile, Storage};
use stele_types::{
    AggregateKind, Cell, Deletes, Family, FamilyId, GroupId, TableId, TableName, TableSchema, TimeUnit, ValueType,
};

/// A table with the families `a`, `b` and `c` of bytes and `sum`, an aggregate, numbered from 1.
pub fn schema(time_unit: TimeUnit, granularity: i64) -> TableSchema {
    let family = |name: &str, value_type| Family {
        name: name.to_owned(),
        gc_rule: None,
        value_type,
        group: GroupId(0),
        deletes: Deletes::default(),
        front_end_data: Vec::new(),
    };
    let sum = ValueType::Aggregate(AggregateKind::Sum);
    let families = ["a", "b", "c"].map(|name| family(name, ValueType::Bytes));
    TableSchema {
        time_unit,
        granularity,
        families: (1..)
            .map(FamilyId)
            .zip(families.into_iter().chain([family("sum", sum)]))
            .collect::<BTreeMap<_, _>>(),
        next_family: FamilyId(5),
        ..TableSchema::new(TableId(1), TableName::new("i", "t"))
    }
}

/// A storage with these files.
pub fn storage<'a>(files: impl IntoIterator<Item = (&'a str, Bytes)>) -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    for (path, content) in files {
        block_on(storage.put_if_absent(path, content)).expect("each path once");
    }
    storage
}

/// A file whose bytes must be awaited, as on a slow device.
pub struct Slow(pub Arc<dyn ReadFile>);

#[async_trait]
impl ReadFile for Slow {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        self.0.read_at(offset, len).await
    }

    fn try_read_at(&self, _: u64, _: usize) -> Option<stele_storage::Result<Bytes>> {
        None
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn path(&self) -> &str {
        self.0.path()
    }
}

/// CRC-32 of several parts, in the order they are covered.
pub fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Puts right checksums on the records of a log, one after another; a length beyond the end becomes the rest of the bytes.
pub fn seal_records(mut bytes: &mut [u8]) {
    while let Some((header, rest)) = bytes.split_first_chunk_mut::<RECORD_HEADER_BYTES>() {
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (payload, behind) = rest.split_at_mut(len.min(rest.len()));
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&crc(&[payload]).to_le_bytes());
        let checksum = crc(&[&header[..RECORD_HEADER_BYTES - 4]]);
        header[RECORD_HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes = behind;
    }
}

/// The order of cells in a row.
pub fn sort(cells: &mut [Cell]) {
    cells.sort_by(|a, b| {
        let column = (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier));
        column.then_with(|| b.timestamp.cmp(&a.timestamp))
    });
}

/// Applies a filter to a row and checks the filter's promises about every row.
pub fn check_filter(filter: &CompiledFilter, row: &[u8], cells: &[Cell], chance: f64) {
    let pushdown = filter.pushdown();
    let Ok(answer) = filter.apply(row, cells.to_vec(), &mut || chance) else {
        return;
    };
    let mut sorted = answer.clone();
    sort(&mut sorted);
    assert_eq!(sorted, answer, "cells out of order");
    if filter.passes_all() {
        assert_eq!(answer, cells);
    }
    if pushdown.no_cells || !row.starts_with(&pushdown.row_prefix) {
        assert!(answer.is_empty(), "cells of a row that has none");
        return;
    }
    let reduced = pushdown.reduce(cells.to_vec());
    let spared = filter.apply(row, reduced, &mut || chance);
    assert_eq!(
        spared.expect("fewer cells are not too many"),
        answer,
        "the answer depends on cells that the scan was spared"
    );
}
