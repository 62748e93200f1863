//! Measures the read path of one tablet, in memory, on one thread.
//!
//! `cargo run --release -p stele-tablet --example read_path [value bytes,…] [rows] [rounds]`
//!
//! Prints medians of CPU nanoseconds per row: of full scans in both directions, of gets on the calling thread of present
//! and of absent rows, and of scans of one row. The rows lie in one compacted file, or
//! (`several`) spread over three files and the memtable. For instruction counts, run it under
//! `valgrind --tool=callgrind --toggle-collect='*get_all*'` with few rows and one round.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the kernel's accounts")]
#![allow(clippy::unwrap_used, reason = "a tool over memory")]

use bytes::Bytes;
use std::sync::Arc;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tablet::{
    BatchBuilder, FileRegistry, Manifest, MemoryAccount, ScanSpec, Tablet, TabletContext, TabletMetrics, TabletScanner,
};
use stele_types::{
    Compression, Family, FamilyId, GroupId, LocalityGroup, Mutation, RowMutation, RowRange, RowSet, TableId, TableName,
    TableSchema, Timestamp, ValueType,
};

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

/// CPU nanoseconds of this thread so far.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// 20 bytes.
fn row_name(n: u64) -> Bytes {
    Bytes::from(format!("user{:016}", n * 7))
}

fn schema() -> Arc<TableSchema> {
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    let group = LocalityGroup::new(GroupId(0), "default", Compression::Snappy);
    Arc::new(TableSchema {
        families: [(FamilyId(1), family)].into(),
        next_family: FamilyId(2),
        groups: vec![group],
        row_cache: false,
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    })
}

async fn new_tablet() -> Arc<Tablet> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let context = TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(FileRegistry::new(storage, Arc::new(Cache::new(4 << 30)), 1)),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: stele_tablet::TokenMemory::default(),
    };
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    Tablet::create(context, schema(), manifest).await.unwrap()
}

fn write(tablet: &Tablet, rows: impl Iterator<Item = u64>, value_bytes: usize) {
    let mut random = Random(7);
    for n in rows {
        let value: Vec<u8> = (0..value_bytes)
            .map(|i| if i % 2 == 0 { random.next() as u8 } else { 0 })
            .collect();
        let put = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1_700_000_000_000_000 + n as i64 * 1_000),
            value: value.into(),
        };
        let mut builder = BatchBuilder::default();
        builder.push_row(&RowMutation {
            row: row_name(n),
            mutations: vec![put],
        });
        let batch = builder.finish();
        let first = tablet.sequence(batch.len(), |first| first).unwrap();
        tablet.apply(&batch, first);
    }
}

#[inline(never)]
async fn scan_all(tablet: &Arc<Tablet>, reversed: bool) -> u64 {
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut rows = 0;
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        rows += batch.len() as u64;
    }
    rows
}

#[inline(never)]
fn get_all(tablet: &Arc<Tablet>, keys: &[Bytes]) -> u64 {
    let found = |row: &Bytes| tablet.get_row(row, None).unwrap().expect("in memory").len() as u64;
    keys.iter().map(found).sum()
}

#[inline(never)]
async fn scan_each(tablet: &Arc<Tablet>, keys: &[Bytes]) -> u64 {
    let mut found = 0;
    for row in keys {
        let spec = ScanSpec {
            rows: RowSet::new(vec![RowRange::single(row)]),
            filter: None,
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            found += batch.len() as u64;
        }
    }
    found
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU nanoseconds per item of one run.
async fn timed(items: u64, run: impl AsyncFnOnce() -> u64, expected: u64) -> f64 {
    let begin = cpu_nanos();
    assert_eq!(run().await, expected);
    (cpu_nanos() - begin) as f64 / items as f64
}

async fn measure(value_bytes: usize, rows: u64, rounds: usize, several: bool) {
    let tablet = new_tablet().await;
    if several {
        for part in 0..3 {
            write(&tablet, (0..rows).filter(|n| n % 5 == part), value_bytes);
            tablet.flush().await.unwrap();
        }
        write(&tablet, (0..rows).filter(|n| n % 5 > 2), value_bytes);
    } else {
        write(&tablet, 0..rows, value_bytes);
        tablet.compact_all().await.unwrap();
    }
    let mut random = Random(1);
    let gets = (rows / 2).min(200_000);
    let present: Vec<Bytes> = (0..gets).map(|_| row_name(random.next() % rows)).collect();
    let absent: Vec<Bytes> = (0..gets)
        .map(|_| Bytes::from(format!("user{:016}", random.next() % rows * 7 + 3)))
        .collect();
    let mut results: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        results[0].push(timed(rows, async || scan_all(&tablet, false).await, rows).await);
        results[1].push(timed(rows, async || scan_all(&tablet, true).await, rows).await);
        results[2].push(timed(gets, async || get_all(&tablet, &present), gets).await);
        results[3].push(timed(gets, async || get_all(&tablet, &absent), 0).await);
        results[4].push(timed(gets, async || scan_each(&tablet, &present).await, gets).await);
    }
    let [scan, reverse, get, none, single] = results.map(median);
    let place = if several { "several" } else { "one file" };
    println!(
        "{value_bytes:>5} B {place:>8}: scan {scan:6.0}  reverse {reverse:6.0}  get {get:6.0}  absent {none:6.0}  \
         scan of one {single:6.0}  ns"
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let sizes = arguments.next().unwrap_or_else(|| "10,100,1000".to_owned());
    let rows: u64 = arguments.next().map_or(300_000, |n| n.parse().unwrap());
    let rounds: usize = arguments.next().map_or(5, |n| n.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for size in sizes.split(',') {
            for several in [false, true] {
                measure(size.parse().unwrap(), rows, rounds, several).await;
            }
        }
    });
}
