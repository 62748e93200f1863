//! Measures the HBase driver's own cost, in CPU of this process per operation.
//!
//! An echo server in another process responds.
//!
//! `cargo run --release -p stele-bench --example hbase_cost [SECONDS [BYTES]]`
//!
//! One generator thread, as in a run. CPU is the process's own, user and system, so that work which a driver leaves to
//! the kernel counts too. Keys and values are made beforehand, because they belong to the workload and not to the
//! driver.
#![allow(clippy::disallowed_methods, reason = "a measurement needs the real clock")]

use anyhow::{Context, Result};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;
use stele_bench::target::{Columns, Connection, Put, Row, Scan};

const TABLE: &str = "bench-cost";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // The command of an echo server of any protocol.
        ["null-server", "--protocol", protocol] => runtime.block_on(stele_bench::target::null::serve(protocol)),
        ref rest => {
            let seconds = rest.first().map_or(Ok(2.0), |text| text.parse()).context("SECONDS")?;
            let bytes = rest.get(1).map_or(Ok(1000), |text| text.parse()).context("BYTES")?;
            runtime.block_on(measure(seconds, bytes))
        }
    }
}

async fn measure(seconds: f64, bytes: usize) -> Result<()> {
    let target = stele_bench::target::open(&format!("null://hbase?bytes={bytes}")).await?;
    let connection = target.connect().await?;
    println!("values of {bytes} bytes, {seconds} s each; CPU of the generator for each operation");
    println!("{:<28}{:>12}{:>14}{:>10}", "", "CPU, µs", "a second", "busy");
    for clients in [1, 16, 64] {
        let name = format!("point read, {clients} clients");
        report(&name, clients, seconds, &connection, |c| async move {
            let row = c
                .get(
                    TABLE,
                    Bytes::from_static(b"user00000000000000000001"),
                    &Columns::default(),
                )
                .await?;
            anyhow::ensure!(row.is_some(), "no row");
            Ok(1)
        })
        .await?;
    }
    let value = Bytes::from(vec![b'v'; bytes]);
    for clients in [1, 16, 64] {
        let (name, value) = (format!("unbuffered put, {clients} clients"), value.clone());
        report(&name, clients, seconds, &connection, move |c| {
            let put = put(1, &value);
            async move { c.put(TABLE, put).await.map(|()| 1).map_err(Into::into) }
        })
        .await?;
    }
    for buffer in [2 << 20, 12 << 20] {
        let name = format!("buffered row, {} MiB", buffer >> 20);
        let rows = (buffer / (bytes + 30)).max(1);
        let value = value.clone();
        report(&name, 1, seconds, &connection, move |c| {
            let puts: Vec<Put> = (0..rows).map(|i| put(i, &value)).collect();
            async move { c.put_many(TABLE, puts).await.map(|()| rows as u64).map_err(Into::into) }
        })
        .await?;
    }
    for rows in [100, 100_000] {
        report(
            &format!("row of a scan of {rows}"),
            1,
            seconds,
            &connection,
            move |c| async move {
                let mut seen = 0;
                let mut sink = |row: &Row| {
                    seen += row.cells.len() as u64;
                    ControlFlow::Continue(())
                };
                let scan = Scan {
                    limit: Some(rows),
                    ..Scan::default()
                };
                c.scan(TABLE, &scan, &mut sink).await?;
                anyhow::ensure!(seen == rows, "{seen} rows");
                Ok(seen)
            },
        )
        .await?;
    }
    Ok(())
}

fn put(i: usize, value: &Bytes) -> Put {
    let cell = (Arc::from("family"), Bytes::from_static(b"0"), value.clone());
    Put {
        key: format!("user{i:020}").into(),
        cells: vec![cell],
    }
}

/// Lets `clients` repeat an operation for a while, and prints the cost of each of its units.
async fn report<F>(
    name: &str,
    clients: usize,
    seconds: f64,
    connection: &Arc<dyn Connection>,
    operation: impl Fn(Arc<dyn Connection>) -> F + Clone + Send + 'static,
) -> Result<()>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    operation(connection.clone()).await?;
    let (began, cpu_before) = (Instant::now(), cpu());
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let (connection, operation) = (connection.clone(), operation.clone());
            tokio::spawn(async move {
                let mut done = 0;
                while began.elapsed().as_secs_f64() < seconds {
                    done += operation(connection.clone()).await?;
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for client in clients {
        done += client.await??;
    }
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu() - cpu_before);
    let (each, rate) = (cpu / done as f64 * 1e6, done as f64 / wall);
    println!("{name:<28}{each:>12.2}{rate:>14.0}{:>9.0}%", cpu / wall * 100.0);
    Ok(())
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
