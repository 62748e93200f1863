//! Measures the memtable and the encoding of batches.
//!
//! It prints nanoseconds of CPU time per row and bytes per row.
//!
//! ```text
//! cargo run --release -p stele-tablet --example memtable [-- VALUE_BYTES [PART]]
//! ```
//!
//! Rows are 20 decimal digits in random order, each with one cell (one-byte qualifier, one timestamp for each batch), until the
//! memtable holds about 64 MiB. PART limits the run to one part, for a profiler. Batches have 1,000 rows. CPU time of
//! the one thread, not wall time, so that a busy machine disturbs little; still, compare medians of several runs.

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Arc;
use stele_memtable::{MemoryAccount, Memtable, MemtableCursor};
use stele_tablet::{Batch, BatchBuilder};
use stele_types::{FamilyId, Mutation, RowMutation, RowWrites, SeqNo, Timestamp, key};

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows of a batch, as in the engine's benchmark.
const BATCH_ROWS: usize = 1000;

fn main() {
    let mut args = std::env::args().skip(1);
    let sizes = args
        .next()
        .and_then(|v| v.parse().ok())
        .map_or(vec![10, 100, 1000], |v| vec![v]);
    let what = args.next().unwrap_or_default();
    for value_bytes in sizes {
        let run = Run::new(value_bytes);
        let wants = |name: &str| what.is_empty() || what == name;
        if wants("single") {
            run.single();
        }
        if wants("unsorted") {
            run.batches("unsorted", false);
        }
        if wants("sorted") {
            run.batches("sorted", true);
        }
        if wants("read") {
            run.read();
        }
    }
}

struct Run {
    value: Bytes,
    rows: Vec<Bytes>,
}

impl Run {
    fn new(value_bytes: usize) -> Self {
        let count = (64 << 20) / (56 + value_bytes) / BATCH_ROWS * BATCH_ROWS;
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        Run {
            value: Bytes::from(vec![0x76; value_bytes]),
            rows: (0..count).map(|_| Bytes::from(format!("{:020}", random()))).collect(),
        }
    }

    fn mutations(&self, rows: &[Bytes], stamp: usize, sorted: bool) -> Vec<RowMutation> {
        let mut rows = rows.to_vec();
        if sorted {
            rows.sort();
        }
        let put = |row| RowMutation {
            row,
            mutations: vec![Mutation::Put {
                family: FamilyId(1),
                qualifier: Bytes::from_static(b"q"),
                timestamp: Timestamp(1_700_000_000_000_000 + stamp as i64 * 1000),
                value: self.value.clone(),
            }],
        };
        rows.into_iter().map(put).collect()
    }

    /// One row for each batch: encoding, and insertion into one growing memtable.
    fn single(&self) {
        let table = Memtable::new(MemoryAccount::default());
        let (mut encode, mut insert, mut bytes) = (0, 0, 0);
        for (chunk, rows) in self.rows.chunks(BATCH_ROWS).enumerate() {
            let mutations = self.mutations(rows, chunk, false);
            let start = cpu_nanos();
            let batches: Vec<Batch> = mutations.iter().map(single).collect();
            let middle = cpu_nanos();
            for (i, batch) in batches.iter().enumerate() {
                apply(&table, batch, (chunk * BATCH_ROWS + i) as u64);
            }
            encode += middle - start;
            insert += cpu_nanos() - middle;
            bytes += batches.iter().map(|b| b.byte_len()).sum::<usize>();
        }
        self.report("single", &table, encode, insert, bytes);
    }

    fn batches(&self, name: &str, sorted: bool) {
        let table = Memtable::new(MemoryAccount::default());
        let (mut encode, mut insert, mut bytes) = (0, 0, 0);
        for (chunk, rows) in self.rows.chunks(BATCH_ROWS).enumerate() {
            let mutations = self.mutations(rows, chunk, sorted);
            let rows = RowWrites::from(mutations);
            let start = cpu_nanos();
            let batch = encoded(&rows);
            let middle = cpu_nanos();
            apply(&table, &batch, (chunk * BATCH_ROWS) as u64);
            encode += middle - start;
            insert += cpu_nanos() - middle;
            bytes += batch.byte_len();
        }
        self.report(name, &table, encode, insert, bytes);
    }

    fn read(&self) {
        let table = Arc::new(Memtable::new(MemoryAccount::default()));
        for (chunk, rows) in self.rows.chunks(BATCH_ROWS).enumerate() {
            apply(
                &table,
                &encoded(&self.mutations(rows, chunk, false).into()),
                (chunk * BATCH_ROWS) as u64,
            );
        }
        let mut cursor = MemtableCursor::new(table.clone());
        let start = cpu_nanos();
        let mut found = 0;
        for row in self.rows.iter().rev() {
            found += usize::from(cursor.seek(&key::row_prefix(row)) && cursor.key().starts_with(row));
        }
        let seek = cpu_nanos() - start;
        assert_eq!(found, self.rows.len());
        let walk = |copy: bool| {
            let mut cursor = MemtableCursor::new(table.clone());
            let start = cpu_nanos();
            let (mut valid, mut seen) = (cursor.seek(&[]), 0);
            while valid {
                black_box(cursor.key());
                if copy {
                    black_box(cursor.value_bytes());
                } else {
                    black_box(cursor.value().len());
                }
                seen += 1;
                valid = cursor.advance();
            }
            assert_eq!(seen, self.rows.len());
            cpu_nanos() - start
        };
        let (keys, values) = (walk(false), walk(true));
        println!(
            "{:>5} B read:     seek {:>5} ns, next {:>4} ns, next with value_bytes {:>4} ns",
            self.value.len(),
            self.each(seek),
            self.each(keys),
            self.each(values),
        );
    }

    fn report(&self, name: &str, table: &Memtable, encode: u64, insert: u64, log: usize) {
        assert_eq!(table.len(), self.rows.len() as u64);
        println!(
            "{:>5} B {name:<9} encode {:>4} ns, insert {:>5} ns; {:>6.1} B of memory, {:>6.1} B of log; {} rows",
            self.value.len(),
            self.each(encode),
            self.each(insert),
            table.bytes() as f64 / self.rows.len() as f64,
            log as f64 / self.rows.len() as f64,
            self.rows.len(),
        );
    }

    fn each(&self, nanos: u64) -> u64 {
        nanos / self.rows.len() as u64
    }
}

fn single(row: &RowMutation) -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push_row(row);
    builder.finish()
}

fn encoded(rows: &RowWrites) -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push_rows(rows);
    builder.finish()
}

fn apply(table: &Memtable, batch: &Batch, first: u64) {
    table.insert_all(|insert| {
        batch.entries(SeqNo(first), |key, value| {
            insert.insert(key, value, key::seq_of(key).unwrap_or_default())
        });
    });
}

/// CPU time of this thread.
fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
