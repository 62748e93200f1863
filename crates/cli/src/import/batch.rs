//! Groups rows into the batches that are sent as one MutateRows request.
//!
//! Invariants:
//! * Batches cover the records of the input in order and without gaps, so that finished batches move the prefix.
//! * A key occurs once per batch: the server may apply entries in any order, but the mutations of one entry apply in
//!   theirs. So later records of the same key win, as they would if written one by one.
//! * A batch holds at most [`BATCH_BYTES_MAX`] and `rows_max` rows, except for a single row that is larger; a row over
//!   [`PARTIAL_ROW_BYTES_MAX`] is spread over several batches.

use super::bad::BadRecord;
use crate::records::{CellValue, RowCells};
use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use v2::mutate_rows_request::Entry;
use v2::mutation::{self, SetCell};

/// Bytes of keys and values per batch. With the default of eight in flight this is 16 MiB of memory and enough to
/// amortise a round trip. It is below the 4 MiB that gRPC servers accept by default.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Mutations per batch; the API refuses requests of more than 100,000.
const BATCH_MUTATIONS_MAX: usize = 50_000;
/// A row is written atomically up to this size.
const PARTIAL_ROW_BYTES_MAX: usize = 128 << 20;
/// Records per batch, counting those without cells and bad ones.
const BATCH_RECORDS_MAX: u64 = 100_000;
/// Approximate size of a mutation without its bytes: tags, lengths and the timestamp.
const MUTATION_OVERHEAD_BYTES: usize = 24;

/// One request's worth of work.
#[derive(Debug, Default)]
pub struct Batch {
    /// Numbers of the records that are finished when this batch (and all before it) is.
    pub records: Range<u64>,
    /// The rows.
    pub entries: Vec<Entry>,
    /// For each entry its records, in their order; at least one.
    pub origins: Vec<Vec<Origin>>,
    /// Families that occur.
    pub families: BTreeSet<String>,
    /// Bad records among `records`.
    pub bad: Vec<(u64, BadRecord)>,
    /// Cells in `entries`.
    pub cells: u64,
    /// Records that became rows; more than `entries` if keys repeat.
    pub rows: u64,
    /// Records that have no cells to write.
    pub without_cells: u64,
}

/// A record within an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its number.
    pub record: u64,
    /// Its line.
    pub line: u64,
    /// Mutations of the entry that are before its own.
    pub first_mutation: usize,
}

impl Batch {
    /// Hashes of the keys. They tell which batches touch the same row.
    pub fn key_hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries
            .iter()
            .map(|entry| xxhash_rust::xxh3::xxh3_64(&entry.row_key))
    }
}

/// Gathers records into batches.
#[derive(Debug)]
pub struct BatchBuilder {
    rows_max: usize,
    batch: Batch,
    /// Key to index in `batch.entries`.
    index: HashMap<Bytes, usize>,
    bytes: usize,
    mutations: usize,
}

impl BatchBuilder {
    /// A builder whose first record has this number.
    pub fn new(first_record: u64, rows_max: usize) -> Self {
        let batch = Batch {
            records: first_record..first_record,
            ..Batch::default()
        };
        let rows_max = rows_max.max(1);
        BatchBuilder {
            rows_max,
            batch,
            index: HashMap::new(),
            bytes: 0,
            mutations: 0,
        }
    }

    /// Number of the record that is expected next.
    pub fn next_record(&self) -> u64 {
        self.batch.records.end
    }

    /// Adds the next record, bad.
    pub fn add_bad(&mut self, bad: BadRecord) -> Option<Batch> {
        self.batch.bad.push((self.next_record(), bad));
        self.batch.records.end += 1;
        self.take_if_full()
    }

    /// Adds the next record; `emit` receives the batches that become full, and returns whether to go on.
    pub fn add_row(&mut self, line: u64, row: RowCells, emit: &mut dyn FnMut(Batch) -> bool) -> bool {
        let record = self.next_record();
        if row.cells.is_empty() {
            self.batch.without_cells += 1;
            self.batch.records.end += 1;
            return self.take_if_full().is_none_or(emit);
        }
        let bytes: usize = row.cells.iter().map(cell_bytes).sum();
        let overflows = self.bytes + bytes > BATCH_BYTES_MAX || self.mutations + row.cells.len() > BATCH_MUTATIONS_MAX;
        if overflows && !self.batch.entries.is_empty() && !emit(self.take()) {
            return false;
        }
        let mut piece_bytes = 0;
        for cell in row.cells {
            piece_bytes += cell_bytes(&cell);
            let is_full = piece_bytes > PARTIAL_ROW_BYTES_MAX || self.mutations >= BATCH_MUTATIONS_MAX;
            if is_full && self.mutations > 0 {
                piece_bytes = cell_bytes(&cell);
                if !emit(self.take()) {
                    return false;
                }
            }
            self.add_cell(&row.key, cell, (record, line));
        }
        self.batch.rows += 1;
        self.batch.records.end += 1;
        self.take_if_full().is_none_or(emit)
    }

    fn add_cell(&mut self, key: &Bytes, cell: CellValue, origin: (u64, u64)) {
        self.bytes += cell_bytes(&cell);
        self.mutations += 1;
        self.batch.cells += 1;
        if !self.batch.families.contains(&cell.family) {
            self.batch.families.insert(cell.family.clone());
        }
        let at = match self.index.get(key) {
            Some(at) => *at,
            None => {
                let at = self.batch.entries.len();
                self.index.insert(key.clone(), at);
                self.batch.entries.push(Entry {
                    row_key: key.clone(),
                    ..Entry::default()
                });
                self.batch.origins.push(Vec::new());
                self.bytes += key.len();
                at
            }
        };
        let set_cell = mutation::Mutation::SetCell(SetCell {
            family_name: cell.family,
            column_qualifier: cell.qualifier,
            timestamp_micros: cell.timestamp,
            value: cell.value,
        });
        if let (Some(entry), Some(origins)) = (self.batch.entries.get_mut(at), self.batch.origins.get_mut(at)) {
            let (record, line) = origin;
            if origins.last().is_none_or(|last| last.record != record) {
                origins.push(Origin {
                    record,
                    line,
                    first_mutation: entry.mutations.len(),
                });
            }
            entry.mutations.push(v2::Mutation {
                mutation: Some(set_cell),
            });
        }
    }

    fn take_if_full(&mut self) -> Option<Batch> {
        let records = self.batch.records.end - self.batch.records.start;
        let is_full = self.batch.entries.len() >= self.rows_max
            || self.bytes >= BATCH_BYTES_MAX
            || self.batch.bad.len() >= self.rows_max
            || records >= BATCH_RECORDS_MAX;
        is_full.then(|| self.take())
    }

    fn take(&mut self) -> Batch {
        self.index.clear();
        (self.bytes, self.mutations) = (0, 0);
        let next = self.next_record();
        std::mem::replace(
            &mut self.batch,
            Batch {
                records: next..next,
                ..Batch::default()
            },
        )
    }

    /// The last batch, at the end of the input.
    pub fn finish(mut self) -> Option<Batch> {
        (!self.batch.records.is_empty()).then(|| self.take())
    }
}

fn cell_bytes(cell: &CellValue) -> usize {
    cell.family.len() + cell.qualifier.len() + cell.value.len() + MUTATION_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, values: &[usize]) -> RowCells {
        let cell = |length: &usize| CellValue {
            family: "f".to_owned(),
            qualifier: Bytes::from_static(b"q"),
            timestamp: 0,
            value: vec![b'v'; *length].into(),
        };
        RowCells {
            key: key.to_owned().into(),
            cells: values.iter().map(cell).collect(),
        }
    }

    fn batches(rows_max: usize, rows: Vec<RowCells>) -> Vec<Batch> {
        let mut builder = BatchBuilder::new(10, rows_max);
        let mut all = Vec::new();
        for (at, row) in rows.into_iter().enumerate() {
            assert!(builder.add_row(at as u64 + 2, row, &mut |batch| {
                all.push(batch);
                true
            }));
        }
        all.extend(builder.finish());
        let mut next = 10;
        for batch in &all {
            assert_eq!(batch.records.start, next, "batches cover the input without gaps");
            next = batch.records.end;
        }
        all
    }

    fn shape(batches: &[Batch]) -> Vec<(Range<u64>, usize, u64)> {
        let shape = |batch: &Batch| (batch.records.clone(), batch.entries.len(), batch.cells);
        batches.iter().map(shape).collect()
    }

    #[test]
    fn full_batches_are_emitted() {
        let all = batches(2, ["a", "b", "c"].map(|key| row(key, &[1])).to_vec());
        assert_eq!(shape(&all), [(10..12, 2, 2), (12..13, 1, 1)]);
        let origin = Origin {
            record: 12,
            line: 4,
            first_mutation: 0,
        };
        assert_eq!(all[1].origins, [[origin]]);
        let big = batches(100, ["a", "b", "c"].map(|key| row(key, &[1 << 20])).to_vec());
        assert_eq!(shape(&big), [(10..11, 1, 1), (11..12, 1, 1), (12..13, 1, 1)]);
    }

    #[test]
    fn a_repeated_key_stays_one_entry_in_order() {
        let all = batches(100, vec![row("a", &[1]), row("b", &[2]), row("a", &[3])]);
        assert_eq!(shape(&all), [(10..13, 2, 3)]);
        let origins = all[0].origins[0].iter();
        let origins = origins.map(|origin| (origin.record, origin.line, origin.first_mutation));
        assert_eq!(origins.collect::<Vec<_>>(), [(10, 2, 0), (12, 4, 1)]);
        assert_eq!((all[0].rows, all[0].key_hashes().count()), (3, 2));
        let lengths = all[0].entries[0]
            .mutations
            .iter()
            .map(|mutation| match &mutation.mutation {
                Some(mutation::Mutation::SetCell(cell)) => cell.value.len(),
                _ => 0,
            });
        assert_eq!(lengths.collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_wide_row_is_spread() {
        let all = batches(100, vec![row("a", &[1]), row("b", &vec![0; 120_000]), row("c", &[1])]);
        let expected = [
            (10..11, 1, 1),
            (11..11, 1, 50_000),
            (11..11, 1, 50_000),
            (11..13, 2, 20_001),
        ];
        assert_eq!(shape(&all), expected);
    }

    #[test]
    fn bad_and_empty_records_count() {
        let mut builder = BatchBuilder::new(0, 2);
        let bad = |line| BadRecord {
            line,
            reason: String::new(),
            raw: Vec::new(),
        };
        assert!(builder.add_row(1, row("a", &[]), &mut |_| false));
        assert!(builder.add_bad(bad(2)).is_none());
        let batch = builder.add_bad(bad(3)).unwrap();
        assert_eq!((batch.records.clone(), batch.without_cells), (0..3, 1));
        assert_eq!(batch.bad.iter().map(|(record, _)| *record).collect::<Vec<_>>(), [1, 2]);
        assert!(builder.finish().is_none());
    }
}
