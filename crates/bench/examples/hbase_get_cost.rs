//! Measures the cost of a Get beyond that of its frames.
//!
//! The rivals are echoes: servers that send one prepared response.
//!
//! `cargo run --release -p stele-bench --example hbase_get_cost -- [--stele PROGRAM]`
//!
//! The unit is Gets per CPU second of the server. One echo ([`stele_bench::target::null`]) serves its connections on an event loop,
//! as Stele does. The other one has a blocking thread for each connection, which is the cheapest way there is. Both answer
//! all requests of one read by one write. All servers get the same requests from the same driver in turns. Caller and
//! server share the machine.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement needs the real clock and real processes"
)]

#[allow(
    dead_code,
    reason = "shared with the measurement of the Bigtable API, which has an echo of its own"
)]
#[path = "server_cost/process.rs"]
mod process;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Parser;
use process::Server;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use stele_bench::load::random::Stream;
use stele_bench::target::{Columns, Connection, Put, TableSpec};
use stele_bench::xray::process_cpu;

const TABLE: &str = "bench-cost";
const FAMILY: &str = "family";
const ROWS: u64 = 20_000;
const VALUE_BYTES: usize = 1000;

/// As the event loops of Stele have it.
const TASKS_PER_EVENT_CHECK: u32 = 8;

#[derive(Parser)]
struct Arguments {
    /// The server's program; the one next to this example when absent.
    #[arg(long)]
    stele: Option<PathBuf>,
    /// Seconds of each measurement, after a fifth as much to warm up.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How often each server is measured.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Concurrent callers, which share a connection.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    callers: Vec<usize>,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["null-server", "--protocol", protocol] => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .event_interval(TASKS_PER_EVENT_CHECK)
                .build()?;
            runtime.block_on(stele_bench::target::null::serve(protocol))
        }
        _ => runtime.block_on(measure(&Arguments::parse())),
    }
}

/// The process of the echo. It ends with its standard input.
struct Echo(Child);

impl Echo {
    /// The echo and its address.
    fn start(on_loop: bool) -> Result<(Self, String)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "null-server",
            "--protocol",
            &format!("hbase?bytes={VALUE_BYTES}&loop={}", u8::from(on_loop)),
        ]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let echo = Echo(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening ").context("no address")?;
        Ok((echo, address.to_owned()))
    }

    fn cpu_seconds(&self) -> Result<f64> {
        process_cpu(self.0.id()).context("the echo is gone")
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let hbase = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let program = arguments.stele.clone().map_or_else(process::beside_this, Ok)?;
    let stele = Server::stele(program, &["--hbase".to_owned(), hbase.clone()])?;
    let to_stele = filled(&hbase).await?;
    let mut echoes = Vec::new();
    for on_loop in [true, false] {
        let (echo, address) = Echo::start(on_loop)?;
        let target = stele_bench::target::open(&format!("hbase://{address}")).await?;
        echoes.push((echo, target.connect().await?));
    }
    println!(
        "Gets of values of {VALUE_BYTES} bytes per CPU second of the server; median of {} and range",
        arguments.repeats
    );
    println!(
        "{:>8}{:>32}{:>32}{:>26}{:>32}{:>26}",
        "callers", "stele", "echo on a loop", "cost of a Get ÷ echo", "echo of threads", "cost of a Get ÷ echo"
    );
    for &callers in &arguments.callers {
        let mut of_stele = Vec::new();
        let mut of_echoes = [const { (Vec::new(), Vec::new()) }; 2];
        for _ in 0..arguments.repeats {
            let done = gets(&to_stele, callers, arguments.seconds, || stele.cpu_seconds()).await?;
            of_stele.push(done);
            for ((echo, connection), (figures, costs)) in echoes.iter().zip(&mut of_echoes) {
                let figure = gets(connection, callers, arguments.seconds, || echo.cpu_seconds()).await?;
                figures.push(figure);
                costs.push(figure / done);
            }
        }
        print!("{callers:>8}{:>32}", text(of_stele, 0));
        for (figures, costs) in of_echoes {
            print!("{:>32}{:>26}", text(figures, 0), text(costs, 2));
        }
        println!();
    }
    Ok(())
}

/// A connection to a server whose table has all rows.
async fn filled(address: &str) -> Result<Arc<dyn Connection>> {
    let target = stele_bench::target::open(&format!("hbase://{address}")).await?;
    let table = TableSpec {
        name: TABLE.to_owned(),
        families: vec![FAMILY.to_owned()],
        max_versions: 1,
        ..TableSpec::default()
    };
    target.create_table(&table).await?;
    let connection = target.connect().await?;
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let puts = (0..ROWS).map(|row| Put {
        key: key(row),
        cells: vec![(Arc::from(FAMILY), Bytes::from_static(b"0"), value.clone())],
    });
    connection.put_many(TABLE, puts.collect()).await?;
    target.flush_table(TABLE).await?;
    Ok(connection)
}

fn key(row: u64) -> Bytes {
    format!("user{row:020}").into()
}

/// Gets per CPU second of the server.
async fn gets(
    connection: &Arc<dyn Connection>,
    callers: usize,
    seconds: f64,
    cpu: impl Fn() -> Result<f64>,
) -> Result<f64> {
    call(connection, callers, seconds / 5.0).await?;
    let before = cpu()?;
    let done = call(connection, callers, seconds).await?;
    let used = cpu()? - before;
    ensure!(used > 0.0, "the server used no CPU time");
    Ok(done as f64 / used)
}

/// Lets callers get random rows for a while. Returns how many they got.
async fn call(connection: &Arc<dyn Connection>, callers: usize, seconds: f64) -> Result<u64> {
    let begin = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|caller| {
            let connection = Arc::clone(connection);
            tokio::spawn(async move {
                let mut random = Stream::new(0, caller as u64);
                let (columns, mut done) = (Columns::default(), 0);
                while begin.elapsed().as_secs_f64() < seconds {
                    let row = connection.get(TABLE, key(random.below(ROWS)), &columns).await?;
                    let bytes = row.and_then(|row| row.cells.first().map(|cell| cell.value.len()));
                    ensure!(bytes == Some(VALUE_BYTES), "a wrong row");
                    done += 1;
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    Ok(done)
}

/// The median of figures, and their range.
fn text(mut figures: Vec<f64>, digits: usize) -> String {
    figures.sort_by(f64::total_cmp);
    let [least, .., most] = figures[..] else {
        return figures
            .first()
            .map_or_else(String::new, |one| format!("{one:.digits$}"));
    };
    let median = figures[figures.len() / 2];
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}
