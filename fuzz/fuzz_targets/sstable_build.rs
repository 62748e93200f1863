//! Sstables of any cells, written under any options, read back like a sorted map.
//!
//! The cells agree from both ends and from every searched position.
#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use stele_fuzz::{Slow, storage};
use stele_sstable::{Cache, Cursor, CursorOptions, Sstable, SstableWriter, Step, WriteOptions};
use stele_storage::{ReadFile, Storage};
use stele_types::key::row_prefix;
use stele_types::{CellKey, CellKind, Compression, FamilyId, FileId, SeqNo, Timestamp};

const PATH: &str = "sst/f.sst";
const FILE: FileId = FileId(7);

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    options: Options,
    cells: Vec<Cell<'a>>,
    sought: Vec<Cell<'a>>,
    raw_sought: &'a [u8],
}

#[derive(Arbitrary, Debug)]
struct Options {
    compression: u8,
    dictionary_kib: u8,
    block_kib: u8,
    filter_bits: u8,
    slow: bool,
    readahead_kib: u8,
}

#[derive(Arbitrary, Debug)]
struct Cell<'a> {
    row: &'a [u8],
    family: u8,
    qualifier: &'a [u8],
    timestamp: i32,
    seq: u16,
    kind: u8,
    value: &'a [u8],
    /// How often the value is repeated: few bytes of input, several blocks.
    repeated: u8,
}

impl Cell<'_> {
    fn key(&self) -> Vec<u8> {
        let kind = CellKind::from_byte(self.kind % 9 + 1).unwrap_or(CellKind::Put);
        let is_row = kind == CellKind::DeleteRow;
        let key = CellKey {
            row: self.row.into(),
            family: FamilyId(if is_row { 0 } else { u32::from(self.family) + 1 }),
            qualifier: if kind.has_qualifier() { self.qualifier } else { &[] }.into(),
            timestamp: Timestamp(i64::from(self.timestamp)),
            seq: SeqNo(u64::from(self.seq)),
            kind,
        };
        key.encode()
    }
}

type Cells = BTreeMap<Vec<u8>, Bytes>;

fuzz_target!(|input: Input<'_>| {
    let value = |cell: &Cell<'_>| Bytes::from(cell.value.repeat(usize::from(cell.repeated)));
    let cells: Cells = input.cells.iter().map(|cell| (cell.key(), value(cell))).collect();
    if cells.is_empty() {
        return;
    }
    let (cursor, rows) = open(&cells, &input.options);
    for row in rows {
        assert!(cursor.table().may_contain_row(&row), "the filter has lost a row");
    }
    let mut cursor = cursor;
    walk(&mut cursor, &cells);
    let sought = input.sought.iter().map(Cell::key);
    let sought = sought
        .chain([input.raw_sought.to_vec()])
        .chain(cells.keys().step_by(3).take(20).cloned());
    for key in sought {
        seek(&mut cursor, &cells, &key);
    }
});

fn open(cells: &Cells, options: &Options) -> (Cursor, Vec<Vec<u8>>) {
    let storage = storage([]);
    let mut write = WriteOptions::new(FILE);
    write.compression = [
        Compression::None,
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd,
    ][usize::from(options.compression % 4)];
    write.dictionary_bytes = usize::from(options.dictionary_kib % 4) << 10;
    write.block_bytes = usize::from(options.block_kib) << 10;
    write.filter_bits_per_row = u32::from(options.filter_bits % 17);
    let file = block_on(storage.create(PATH)).expect("memory takes it");
    let mut writer = SstableWriter::new(file, write);
    let mut rows = Vec::new();
    for (key, value) in cells {
        writer.add(key, value).expect("keys ascend and are small");
        let row = CellKey::decode(key).expect("a key").row;
        rows.push(row_prefix(&row));
    }
    let meta = block_on(writer.finish()).expect("memory takes it");
    assert_eq!(meta.properties.cells, cells.len() as u64);
    let mut file: Arc<dyn ReadFile> = block_on(storage.open(PATH)).expect("just made");
    if options.slow {
        file = Arc::new(Slow(file));
    }
    let table = block_on(Sstable::open(file, FILE, Arc::new(Cache::new(1 << 20)))).expect("just made");
    assert_eq!(*table.properties(), meta.properties);
    block_on(table.verify()).expect("just made");
    let options = CursorOptions {
        fill_cache: !options.slow,
        readahead_bytes: usize::from(options.readahead_kib) << 10,
        single_row: false,
    };
    (Cursor::new(table, options), rows)
}

fn walk(cursor: &mut Cursor, cells: &Cells) {
    let mut expected = cells.iter();
    let mut step = cursor.seek_first();
    while finish(cursor, step) {
        assert_eq!(
            Some((cursor.key(), cursor.value())),
            expected.next().map(|(k, v)| (&k[..], &v[..]))
        );
        step = cursor.advance();
    }
    assert!(expected.next().is_none(), "forward it ends early");
    let mut expected = cells.iter().rev();
    let mut step = cursor.seek_last();
    while finish(cursor, step) {
        assert_eq!(
            Some((cursor.key(), cursor.value())),
            expected.next().map(|(k, v)| (&k[..], &v[..]))
        );
        step = cursor.retreat();
    }
    assert!(expected.next().is_none(), "backward it ends early");
}

/// Searches a key from both sides, and goes one step each way from there.
fn seek(cursor: &mut Cursor, cells: &Cells, key: &[u8]) {
    let at_or_above = |key: &[u8]| {
        cells
            .range::<[u8], _>((Bound::Included(key), Bound::Unbounded))
            .map(|(k, _)| k)
    };
    let below = |key: &[u8]| {
        cells
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)))
            .map(|(k, _)| k)
    };
    let step = cursor.seek(key);
    check(cursor, step, at_or_above(key).next());
    if let Some(found) = at_or_above(key).next() {
        let step = cursor.retreat();
        check(cursor, step, below(found).next_back());
    }
    let step = cursor.seek_before(key);
    check(cursor, step, below(key).next_back());
    if below(key).next_back().is_some() {
        let step = cursor.advance();
        check(cursor, step, at_or_above(key).next());
    }
}

fn check(cursor: &mut Cursor, step: stele_sstable::Result<Step>, expected: Option<&Vec<u8>>) {
    let found = finish(cursor, step).then(|| cursor.key().to_vec());
    assert_eq!(found.as_ref(), expected);
}

fn finish(cursor: &mut Cursor, step: stele_sstable::Result<Step>) -> bool {
    let step = match step.expect("a sound file") {
        Step::Pending => block_on(cursor.load()).expect("a sound file"),
        step => step,
    };
    step == Step::Ready
}
