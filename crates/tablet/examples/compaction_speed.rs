//! Measures CPU time per cell of a flush and a compaction.
//!
//! It runs on one thread over storage in memory (Linux).
//!
//! `cargo run --release -p stele-tablet --example compaction_speed [rows]`
//!
//! Rows of 20 bytes in random order with one cell each, of 10, 100 and 1,000 bytes of which half can be compressed. They
//! are flushed in four parts, which are then compacted into one. The best of five rounds is shown: noise only adds.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, on the real clock"
)]

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tablet::{BatchBuilder, FileRegistry, Manifest, MemoryAccount, Tablet, TabletContext, TabletMetrics};
use stele_types::{
    Compression, Family, FamilyId, GcRule, GroupId, LocalityGroup, Mutation, RowMutation, TableId, TableName,
    TableSchema, Timestamp, ValueType,
};

const PARTS: u64 = 4;
const ROUNDS: usize = 5;

fn schema(compression: Compression) -> TableSchema {
    let family = Family {
        name: "f".to_owned(),
        gc_rule: Some(GcRule::MaxVersions(1)),
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        families: [(FamilyId(1), family)].into(),
        next_family: FamilyId(2),
        groups: vec![LocalityGroup::new(GroupId(0), "default", compression)],
        row_cache: false,
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn value(bytes: usize, state: &mut u64) -> Bytes {
    let noise = (0..bytes / 2).map(|_| random(state) as u8);
    noise.chain(std::iter::repeat_n(b'v', bytes - bytes / 2)).collect()
}

fn write(tablet: &Tablet, rows: u64, value_bytes: usize, state: &mut u64) {
    for _ in 0..rows / 100 {
        let mut builder = BatchBuilder::default();
        for _ in 0..100 {
            builder.push_row(&RowMutation {
                row: format!("{:020}", random(state)).into(),
                mutations: vec![Mutation::Put {
                    family: FamilyId(1),
                    qualifier: Bytes::from_static(b"q"),
                    timestamp: Timestamp(1_700_000_000_000_000),
                    value: value(value_bytes, state),
                }],
            });
        }
        let batch = builder.finish();
        if let Ok(first) = tablet.sequence(batch.len(), |first| first) {
            tablet.apply(&batch, first);
        }
    }
}

/// Time of the flushes and of the compaction, and bytes of the outcome.
async fn round(
    rows: u64,
    value_bytes: usize,
    compression: Compression,
) -> stele_tablet::Result<(Duration, Duration, u64)> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let context = TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(FileRegistry::new(storage, Arc::new(Cache::new(0)), 1)),
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
    let tablet = Tablet::create(context, Arc::new(schema(compression)), manifest).await?;
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut flushing = Duration::ZERO;
    for _ in 0..PARTS {
        write(&tablet, rows / PARTS, value_bytes, &mut state);
        let start = cpu_time();
        tablet.flush().await?;
        flushing += cpu_time() - start;
    }
    let start = cpu_time();
    tablet.compact_all().await?;
    Ok((flushing, cpu_time() - start, tablet.state().file_bytes()))
}

/// CPU time of this thread so far, which does all the work: other processes disturb it less than they do the clock.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> stele_tablet::Result<()> {
    let rows = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200_000);
    println!("value  codec    flush ns/cell  MB/s   compaction ns/cell  MB/s   bytes/cell");
    for value_bytes in [10, 100, 1000] {
        let rows = if value_bytes == 1000 { rows / 4 } else { rows };
        for compression in [Compression::None, Compression::Lz4, Compression::Snappy] {
            let (mut flush, mut compaction, mut bytes) = (Duration::MAX, Duration::MAX, 0);
            for _ in 0..ROUNDS {
                let (a, b, len) = round(rows, value_bytes, compression).await?;
                (flush, compaction, bytes) = (flush.min(a), compaction.min(b), len);
            }
            let nanos = |time: Duration| time.as_nanos() as f64 / rows as f64;
            let rate = |time: Duration| (20 + value_bytes) as f64 * 1e3 / nanos(time);
            println!(
                "{value_bytes:5}  {:7}  {:13.0}  {:4.0}   {:18.0}  {:4.0}   {:10.1}",
                format!("{compression:?}").to_lowercase(),
                nanos(flush),
                rate(flush),
                nanos(compaction),
                rate(compaction),
                bytes as f64 / rows as f64,
            );
        }
    }
    Ok(())
}
