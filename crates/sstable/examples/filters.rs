//! Measures the bloom filter of files against binary fuse filters.
//!
//! `cargo run --release -p stele-sstable --example filters [rows per filter,…]`
//!
//! Prints, per kind and number of rows: CPU nanoseconds per row to build the filter, bits per row, CPU nanoseconds per
//! probe of absent rows, and the part of these that pass. Each probe goes to another of many filters, as reads of
//! random rows of a large table do. Hashes of rows are the same for all kinds and not in the figures.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the kernel's accounts")]
#![allow(clippy::unwrap_used, reason = "a tool over memory")]

use bytes::Bytes;
use std::hint::black_box;
use stele_sstable::filter::{Filter, FilterBuilder, row_hash};
use xorf::{BinaryFuse8, BinaryFuse16, Filter as _};

/// Bytes of all filters of a measurement, more than the processor's caches hold.
const FILTERS_BYTES: usize = 128 << 20;
const QUESTIONS: u64 = 2_000_000;

/// CPU nanoseconds of this thread so far.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// A filter of rows.
struct Kind<F> {
    name: String,
    build: fn(&[u64], u32) -> F,
    bits_per_row: u32,
    bytes: fn(&F) -> usize,
    may_contain: fn(&F, u64) -> bool,
}

fn row(n: u64) -> u64 {
    row_hash(format!("user{n:016}").as_bytes())
}

fn measure<F>(kind: &Kind<F>, rows: u64) {
    let bytes_each = rows as usize * 10 / 8;
    let count = (FILTERS_BYTES / bytes_each).clamp(1, 4096) as u64;
    let hashes: Vec<Vec<u64>> = (0..count)
        .map(|f| (0..rows).map(|n| row(f << 32 | n)).collect())
        .collect();
    let begin = cpu_nanos();
    let filters: Vec<F> = hashes.iter().map(|h| (kind.build)(h, kind.bits_per_row)).collect();
    let build = (cpu_nanos() - begin) as f64 / (count * rows) as f64;
    drop(hashes);
    let questions: Vec<(usize, u64)> = (0..QUESTIONS)
        .map(|n| {
            let hash = row(1 << 60 | n);
            ((hash >> 7) as usize % filters.len(), hash)
        })
        .collect();
    let begin = cpu_nanos();
    let mut wrong = 0u64;
    for (filter, hash) in &questions {
        wrong += u64::from(black_box((kind.may_contain)(&filters[*filter], *hash)));
    }
    let query = (cpu_nanos() - begin) as f64 / QUESTIONS as f64;
    let bytes: usize = filters.iter().map(kind.bytes).sum();
    let bits = bytes as f64 * 8.0 / (count * rows) as f64;
    let wrong = wrong as f64 * 100.0 / QUESTIONS as f64;
    println!(
        "{rows:>9} rows  {:<14} build {build:5.1} ns  {bits:5.2} bits  question {query:5.1} ns  wrong {wrong:6.3} %",
        kind.name
    );
}

fn bloom(bits_per_row: u32) -> Kind<Filter> {
    Kind {
        name: format!("bloom {bits_per_row}"),
        build: |hashes, bits| {
            let mut builder = FilterBuilder::new(bits);
            hashes.iter().for_each(|hash| builder.add_hash(*hash));
            Filter::parse(Bytes::from(builder.finish().unwrap())).unwrap()
        },
        bits_per_row,
        bytes: Filter::bytes,
        may_contain: |filter, hash| filter.may_contain(hash),
    }
}

fn main() {
    let sizes = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "10000,100000,1000000".to_owned());
    for rows in sizes.split(',').map(|n| n.parse().unwrap()) {
        for bits in [8, 10, 12, 16] {
            measure(&bloom(bits), rows);
        }
        let fuse8 = Kind::<BinaryFuse8> {
            name: "binary fuse 8".to_owned(),
            build: |hashes, _| BinaryFuse8::try_from(hashes).unwrap(),
            bits_per_row: 0,
            bytes: |filter| filter.fingerprints.len(),
            may_contain: |filter, hash| filter.contains(&hash),
        };
        measure(&fuse8, rows);
        let fuse16 = Kind::<BinaryFuse16> {
            name: "binary fuse 16".to_owned(),
            build: |hashes, _| BinaryFuse16::try_from(hashes).unwrap(),
            bits_per_row: 0,
            bytes: |filter| filter.fingerprints.len() * 2,
            may_contain: |filter, hash| filter.contains(&hash),
        };
        measure(&fuse16, rows);
    }
}
