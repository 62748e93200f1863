//! Measures building, scanning and seeking, in memory, one thread.
//!
//! `cargo run --release -p stele-sstable --example measure [cells] [value bytes]`
//!
//! Prints, per codec: file size per cell, build rate, and scan rates in both directions (blocks decoded every time, and
//! all cached). Then random seeks (all cached), and the cost of probing the filter for absent rows.
#![allow(clippy::disallowed_methods, reason = "a measurement needs the real clock")]
#![allow(clippy::unwrap_used, reason = "a tool over memory")]

use futures::executor::block_on;
use std::sync::Arc;
use std::time::Instant;
use stele_sstable::{Cache, Cursor, CursorOptions, Sstable, SstableWriter, Step, WriteOptions};
use stele_storage::memory::MemoryStorage;
use stele_storage::{ReadFile, Storage};
use stele_types::key::row_prefix;
use stele_types::schema::Compression;
use stele_types::{CellKind, Epoch, FamilyId, FileId, KeyBuf, SeqNo, Timestamp};

const PATH: &str = "measure.sst";

/// A linear congruential generator (Knuth's MMIX constants), reproducible and free.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }
}

fn row_name(n: u64) -> String {
    format!("user{:016}", n * 7)
}

fn set_key(key: &mut KeyBuf, n: u64) {
    let seq = SeqNo::new(Epoch(1), 1 + n * 2_654_435_761 % 1_000_003);
    let timestamp = Timestamp(1_700_000_000_000_000 + (n * 7_919 % 1_000_000) as i64 * 1_000);
    key.set(
        row_name(n).as_bytes(),
        FamilyId(1),
        b"field0",
        timestamp,
        seq,
        CellKind::Put,
    );
}

fn build(compression: Compression, cells: u64, value_bytes: usize) -> Arc<dyn ReadFile> {
    let storage = MemoryStorage::new();
    let file = block_on(storage.create(PATH)).unwrap();
    let options = WriteOptions {
        compression,
        ..WriteOptions::new(FileId(1))
    };
    let mut random = Random(1);
    // Values that compress to about half, as serialized records tend to.
    let pool: Vec<u8> = (0..1 << 20)
        .map(|i| if i & 8 == 0 { random.next() as u8 } else { b'a' })
        .collect();
    let mut writer = SstableWriter::new(file, options);
    let mut key = KeyBuf::new();
    let mut key_bytes = 0;
    let start = Instant::now();
    for n in 0..cells {
        set_key(&mut key, n);
        let at = random.next() as usize % (pool.len() - value_bytes);
        key_bytes += key.as_slice().len();
        writer.add(key.as_slice(), &pool[at..at + value_bytes]).unwrap();
        if writer.wants_flush() {
            block_on(writer.flush()).unwrap();
        }
    }
    block_on(writer.finish()).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let raw = key_bytes as f64 + cells as f64 * value_bytes as f64;
    let file = block_on(storage.open(PATH)).unwrap();
    println!(
        "  file {:6.1} B/cell of {:.0}   build {:6.2} M cells/s, {:.0} MB/s",
        file.len() as f64 / cells as f64,
        raw / cells as f64,
        cells as f64 / seconds / 1e6,
        raw / seconds / 1e6
    );
    file
}

fn scan(table: &Arc<Sstable>, forward: bool, fill_cache: bool) -> f64 {
    let options = CursorOptions {
        fill_cache,
        readahead_bytes: 0,
        single_row: false,
    };
    let mut cursor = Cursor::new(Arc::clone(table), options);
    let start = Instant::now();
    let (mut seen, mut sum) = (0u64, 0usize);
    let mut step = if forward {
        cursor.seek_first()
    } else {
        cursor.seek_last()
    }
    .unwrap();
    while step == Step::Ready {
        seen += 1;
        sum += cursor.value().len() + cursor.key().len();
        step = if forward { cursor.advance() } else { cursor.retreat() }.unwrap();
    }
    assert!(seen == table.properties().cells && sum > 0);
    seen as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn seeks(table: &Arc<Sstable>, cells: u64, stride: Option<u64>) -> f64 {
    let mut cursor = Cursor::new(Arc::clone(table), CursorOptions::default());
    let mut random = Random(7);
    let count = 300_000.min(cells);
    let targets: Vec<_> = (0..count)
        .map(|i| stride.map_or_else(|| random.next() % cells, |s| i * s % cells))
        .map(|n| row_prefix(row_name(n).as_bytes()))
        .collect();
    let start = Instant::now();
    for target in &targets {
        assert_eq!(cursor.seek(target).unwrap(), Step::Ready);
        assert!(cursor.key().starts_with(target));
    }
    count as f64 / start.elapsed().as_secs_f64() / 1e3
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap());
    let cells = arguments.next().unwrap_or(2_000_000);
    let value_bytes = arguments.next().unwrap_or(100) as usize;
    println!("{cells} cells of {value_bytes} B, one per row");
    for compression in [
        Compression::None,
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd,
    ] {
        println!("{compression:?}");
        let file = build(compression, cells, value_bytes);
        let open = |cache_bytes: usize| {
            let cache = Arc::new(Cache::new(cache_bytes));
            block_on(Sstable::open(Arc::clone(&file), FileId(1), cache)).unwrap()
        };
        let cold = open(0);
        let (forward, backward) = (scan(&cold, true, false), scan(&cold, false, false));
        println!("  scan, decoding  {forward:6.2} M cells/s forward, {backward:6.2} M cells/s backward");
        let warm = open(2 << 30);
        scan(&warm, true, true);
        let (forward, backward) = (scan(&warm, true, true), scan(&warm, false, true));
        println!("  scan, cached    {forward:6.2} M cells/s forward, {backward:6.2} M cells/s backward");
        let (anywhere, near) = (seeks(&warm, cells, None), seeks(&warm, cells, Some(3)));
        println!("  seeks, cached   {anywhere:6.0} k/s at random, {near:6.0} k/s three rows on");
        let absent: Vec<_> = (0..cells.min(1_000_000))
            .map(|n| row_prefix(format!("{}x", row_name(n)).as_bytes()))
            .collect();
        let start = Instant::now();
        let wrong = absent.iter().filter(|row| warm.may_contain_row(row)).count();
        let nanos = start.elapsed().as_nanos() as f64 / absent.len() as f64;
        println!(
            "  filter          {nanos:6.0} ns per absent row, {:.2} % wrong",
            wrong as f64 * 100.0 / absent.len() as f64
        );
    }
}
