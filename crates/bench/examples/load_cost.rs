//! Measures the generator's own work: choosing keys, making rows, judging responses.
//!
//! The unit is ns of CPU time per operation, so that other work on the machine does not count. No server, no driver,
//! one thread.
//!
//! ```text
//! cargo run --release -p stele-bench --example load_cost
//! ```
use anyhow::Result;
use async_trait::async_trait;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use stele_bench::activity::{Actor, ActorContext};
use stele_bench::clients::Shared;
use stele_bench::load::operations::Operations;
use stele_bench::load::shape::{Arena, Shape};
use stele_bench::load::values::{Pool, ValueMaker, Version, key_hash};
use stele_bench::load::{Written, keys::KeyCoder, ledger};
use stele_bench::plan::{Activity, KeyFormat, KeyOrder, Keys, Operation, Run, ValueSource, Values, Workload};
use stele_bench::target::{self, Cell, Columns, Connection, Put, Row, Scan};

const RECORDS: u64 = 10_000_000;

fn main() -> Result<()> {
    choosing()?;
    for bytes in [10, 100, 1_000, 10_000] {
        rows(bytes)?;
    }
    following()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for (name, operation) in [
        ("put", Operation::Put),
        (
            "buffered-put",
            Operation::BufferedPut {
                buffer_bytes: 12_000_000,
            },
        ),
        ("get", Operation::Get),
    ] {
        runtime.block_on(client(name, operation))?;
    }
    Ok(())
}

/// CPU time of this thread so far, in ns.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn report(what: &str, operations: u64, from: i64) {
    let nanos = (cpu_nanos() - from) as f64 / operations as f64;
    println!("{what:<52} {nanos:8.1} ns");
}

fn workload(operation: Operation, order: KeyOrder, bytes: u32) -> Workload {
    Workload {
        table: "bench-cost".into(),
        mix: vec![(operation, 1.0)],
        keys: Keys {
            records: RECORDS,
            order,
            format: KeyFormat::Padded { digits: 20 },
        },
        values: Values {
            bytes,
            ..Values::default()
        },
        verify: true,
    }
}

fn choosing() -> Result<()> {
    const TIMES: u64 = 5_000_000;
    for order in [
        KeyOrder::Sequential,
        KeyOrder::Uniform,
        KeyOrder::Zipf { exponent: 0.8 },
        KeyOrder::Zipf { exponent: 0.99 },
        KeyOrder::Hotspot {
            keys: 0.2,
            operations: 0.8,
        },
    ] {
        let operations = Operations::new(&workload(Operation::Get, order, 8), 1)?;
        let from = cpu_nanos();
        let sum = (0..TIMES).fold(0u64, |sum, i| sum.wrapping_add(operations.at(i).key));
        report(&format!("choose key, {order:?}"), TIMES, from);
        black_box(sum);
    }
    Ok(())
}

fn rows(bytes: u32) -> Result<()> {
    const TIMES: u64 = 300_000;
    let values = Values {
        bytes,
        ..Values::default()
    };
    let pool = Arc::new(Pool::open(&ValueSource::Incompressible)?);
    let shape = Shape::new(&values, ValueMaker::new(&values, pool)?)?;
    let coder = KeyCoder::new(&KeyFormat::Padded { digits: 20 })?;
    let mut arena = Arena::default();
    let mut made = Vec::with_capacity(1_000);
    let from = cpu_nanos();
    for i in 0..TIMES {
        let key = arena.cut(coder.key_bytes(), |out| coder.write(i, out));
        let cells = shape.cells(key_hash(&key), Version::LOADED, &mut arena);
        if made.len() < 1_000 {
            made.push(row(&key, &cells));
        }
        black_box((key, cells));
    }
    report(&format!("make key and value of {bytes} B"), TIMES, from);
    let from = cpu_nanos();
    let rounds = TIMES / 1_000;
    for row in (0..rounds).flat_map(|_| &made) {
        anyhow::ensure!(shape.read(row)? == Some(Version::LOADED));
    }
    report(&format!("check a row with a value of {bytes} B"), rounds * 1_000, from);
    Ok(())
}

fn row(key: &Bytes, cells: &[(Arc<str>, Bytes, Bytes)]) -> Row {
    let cell = |(family, qualifier, value): &(Arc<str>, Bytes, Bytes)| Cell {
        family: Bytes::copy_from_slice(family.as_bytes()),
        qualifier: qualifier.clone(),
        timestamp: 0,
        value: value.clone(),
    };
    Row {
        key: key.clone(),
        cells: cells.iter().map(cell).collect(),
    }
}

fn following() -> Result<()> {
    const TIMES: u64 = 2_000_000;
    let ledger = ledger::Ledger::new(RECORDS)?;
    let operations = Operations::new(&workload(Operation::Get, KeyOrder::Uniform, 8), 1)?;
    let from = cpu_nanos();
    for i in 0..TIMES {
        if let Ok(Some((write, _))) = ledger.begin_write(operations.at(i).key) {
            ledger.end_write(write, ledger::Ending::Acknowledged);
        }
    }
    report("choose key, and follow a write of it", TIMES, from);
    let from = cpu_nanos();
    for i in 0..TIMES {
        if let Some(before) = ledger.begin_read(operations.at(i).key) {
            black_box(ledger.end_read(&before, 1));
        }
    }
    report("choose key, and follow a read of it", TIMES, from);
    Ok(())
}

/// A connection that drops writes and returns the right row, made beforehand, for each read.
struct Instantly(Row);

async fn client(name: &str, operation: Operation) -> Result<()> {
    const TIMES: u64 = 300_000;
    let load = workload(Operation::Put, KeyOrder::Sequential, 1_000);
    let run = Run {
        activity: Activity::Table(workload(operation, KeyOrder::Sequential, 1_000)),
        ..Run::default()
    };
    let pool = Arc::new(Pool::open(&ValueSource::Incompressible)?);
    let shape = Shape::new(&load.values, ValueMaker::new(&load.values, pool)?)?;
    let coder = KeyCoder::new(&load.keys.format)?;
    let mut arena = Arena::default();
    let key = arena.cut(coder.key_bytes(), |out| coder.write(0, out));
    let cells = shape.cells(key_hash(&key), Version::LOADED, &mut arena);
    let written = Written {
        workload: load,
        spans: std::iter::once(0..RECORDS).collect(),
        ..Written::default()
    };
    let shared = Shared::default();
    shared.prepare(&run, 0, 1, &[written])?;
    let context = ActorContext {
        connection: Arc::new(Instantly(row(&key, &cells))),
        worker: 0,
        workers: 1,
        client: 0,
        clients: 1,
        seed: 0,
    };
    let mut actor: Box<dyn Actor> = shared.actor(&run, context)?;
    actor.begin(0..TIMES);
    let from = cpu_nanos();
    for i in 0..TIMES {
        // Reads are always of the one row that the connection has.
        let index = if name == "get" { 0 } else { i };
        let step = actor.step(index).await?;
        anyhow::ensure!(step.verdict.is_right(), "{:?}", step.verdict);
    }
    actor.finish().await?;
    report(&format!("whole step of a client, {name} of 1000 B"), TIMES, from);
    Ok(())
}

#[async_trait]
impl Connection for Instantly {
    async fn put(&self, _table: &str, put: Put) -> target::Result<()> {
        black_box(put);
        Ok(())
    }

    async fn put_many(&self, _table: &str, puts: Vec<Put>) -> target::Result<()> {
        black_box(puts);
        Ok(())
    }

    async fn get(&self, _table: &str, _key: Bytes, _columns: &Columns) -> target::Result<Option<Row>> {
        Ok(Some(self.0.clone()))
    }

    async fn scan(
        &self,
        _table: &str,
        _scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> target::Result<()> {
        let _ = sink(&self.0);
        Ok(())
    }

    async fn increment(&self, _: &str, _: Bytes, _: &str, _: Bytes, by: i64) -> target::Result<i64> {
        Ok(by)
    }

    async fn check_and_put(&self, _: &str, _: &str, _: Bytes, _: Option<Bytes>, _: Put) -> target::Result<bool> {
        Ok(true)
    }

    async fn delete(&self, _: &str, _: Bytes, _: Option<&str>, _: &[Bytes]) -> target::Result<()> {
        Ok(())
    }

    fn retries(&self) -> u64 {
        0
    }
}
