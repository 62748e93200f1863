//! Measures the Bigtable driver's own cost, in CPU of this process per operation.
//!
//! An echo server in another process responds.
//!
//! `cargo run --release -p stele-bench --example bigtable_cost [SECONDS]`. All clients run on one thread, as in a worker.
#![allow(clippy::disallowed_methods, reason = "a measurement needs the real clock")]

use anyhow::Context;
use bytes::Bytes;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stele_bench::target::{Columns, Connection, Put, Row, Scan, null, open};

const TABLE: &str = "bench-cost";

#[derive(Debug, Clone, Copy)]
enum Kind {
    Get,
    Put,
    /// Rows of 1000 bytes, 12 MB at a time; counted by row.
    BufferedPut,
    /// Ranges of 10,000 rows; counted by row.
    Scan,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.next().as_deref() {
        Some("serve") => runtime.block_on(serve()),
        seconds => {
            let seconds = seconds.unwrap_or("3").parse().context("seconds")?;
            let mut server = Server::start()?;
            let address = server.address()?;
            runtime.block_on(measure(&address, Duration::from_secs_f64(seconds)))
        }
    }
}

async fn serve() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    null::bigtable::serve(listener).await
}

/// The echo server's process, ended with this value.
struct Server(Child);

impl Server {
    fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let server = Command::new(program).arg("serve").stdout(Stdio::piped()).spawn()?;
        Ok(Self(server))
    }

    fn address(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let stdout = self.0.stdout.take().context("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn measure(address: &str, time: Duration) -> anyhow::Result<()> {
    println!(
        "{:12} {:>7} {:>12} {:>14} {:>14}",
        "operation", "clients", "op/s", "CPU µs/op", "mean µs"
    );
    for (kind, clients) in [
        (Kind::Get, 1),
        (Kind::Get, 16),
        (Kind::Get, 64),
        (Kind::Put, 1),
        (Kind::Put, 16),
        (Kind::Put, 64),
        (Kind::BufferedPut, 1),
        (Kind::Scan, 1),
    ] {
        let target = open(&format!("bigtable://{address}/null")).await?;
        let connection = target.connect().await?;
        run(connection.clone(), kind, clients, time / 4).await?;
        let (started, cpu) = (Instant::now(), cpu_time());
        let operations = run(connection, kind, clients, time).await? as f64;
        let (wall, cpu) = (started.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
        let mean = wall * 1e6 * f64::from(clients) / operations;
        let name = format!("{kind:?}");
        let (rate, micros) = (operations / wall, cpu * 1e6 / operations);
        println!("{name:12} {clients:>7} {rate:>12.0} {micros:>14.2} {mean:>14.1}");
    }
    Ok(())
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn run(connection: Arc<dyn Connection>, kind: Kind, clients: u32, time: Duration) -> anyhow::Result<u64> {
    let end = Instant::now() + time;
    let client = |connection: Arc<dyn Connection>| async move {
        let mut operations = 0;
        while Instant::now() < end {
            operations += step(&*connection, kind, operations).await?;
        }
        Ok::<u64, anyhow::Error>(operations)
    };
    let running: Vec<_> = (0..clients).map(|_| tokio::spawn(client(connection.clone()))).collect();
    let mut operations = 0;
    for client in running {
        operations += client.await??;
    }
    Ok(operations)
}

async fn step(connection: &dyn Connection, kind: Kind, number: u64) -> anyhow::Result<u64> {
    let put = |number: u64| Put {
        key: format!("user{number:020}").into(),
        cells: vec![("f".into(), Bytes::from_static(b"0"), Bytes::from_static(&[b'v'; 1000]))],
    };
    match kind {
        Kind::Get => {
            let columns = Columns::default();
            let row = connection
                .get(TABLE, format!("user{number:020}").into(), &columns)
                .await?;
            row.context("no row").map(|_| 1)
        }
        Kind::Put => connection.put(TABLE, put(number)).await.map(|()| 1).map_err(Into::into),
        Kind::BufferedPut => {
            let puts = 12_000;
            connection
                .put_many(TABLE, (0..puts).map(|i| put(number + i)).collect())
                .await?;
            Ok(puts)
        }
        Kind::Scan => {
            let scan = Scan {
                limit: Some(10_000),
                ..Scan::default()
            };
            let mut rows = 0;
            let sink = &mut |_: &Row| {
                rows += 1;
                ControlFlow::Continue(())
            };
            connection.scan(TABLE, &scan, sink).await?;
            Ok(rows)
        }
    }
}
