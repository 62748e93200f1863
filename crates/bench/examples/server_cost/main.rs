//! Measures the cost that a server adds to its transport.
//!
//! The unit is operations per CPU second of the server.
//!
//! For comparison, a bare tonic echo is measured in the same run by the same caller.
//!
//! `cargo xtask server-cost`, or `cargo run --release -p stele-bench --example server_cost -- [--stele PROGRAM]`.
//!
//! A workload begins when the server is quiet. Workloads that write have two figures. One covers the time in which the
//! writes were acknowledged, with the flushes and compactions during it. The other extends until the server is quiet
//! again.
//!
//! Every repeat measures the echo and all workloads in turn, so that other work of the machine affects all of them.
//! Requests are encoded before they are counted, and responses are parsed only as far as needed to check them. Caller
//! and server share the machine, and a slow caller changes how much the server can do at a time.
//!
//! The server keeps its files in a temporary folder, with durability `flush`: acknowledged when the operating system
//! has it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement needs the real clock and real sockets"
)]

mod caller;
mod echo;
mod process;
mod workload;

use anyhow::{Context, ensure};
use caller::Caller;
use clap::Parser;
use process::Server;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workload::{Plan, Requests, Workload};

#[derive(Parser)]
struct Arguments {
    /// Serves the echo until the process ends; for internal use.
    #[arg(long)]
    echo: bool,
    /// The server's program; the one next to this example when absent. Several are measured in turn, for comparing
    /// builds.
    #[arg(long)]
    stele: Vec<PathBuf>,
    /// Further arguments of `stele start`.
    #[arg(long)]
    start: Vec<String>,
    /// Measures a server that runs already, by address and process, instead of starting one.
    #[arg(long, requires = "pid")]
    address: Option<String>,
    /// The process of that server.
    #[arg(long)]
    pid: Option<u32>,
    /// Seconds of each measurement, after a fifth as much to warm up.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often everything is measured.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Only these workloads.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Also writes the results here.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.echo {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        return runtime.block_on(echo::serve());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(&arguments))
}

/// The result of one measurement.
#[derive(Clone, Copy)]
struct Measured {
    /// Operations, rows or bytes for each CPU second of the server.
    per_cpu_second: f64,
    /// The same, including the time until the server has finished its flushes and compactions.
    settled: f64,
    /// For each second of the clock.
    per_second: f64,
}

/// Pause without writes after which a tablet makes the compactions that do not pay while writes go on. It is also twice
/// as long as the writes took.
const REST: Duration = Duration::from_secs(14);
/// A server is quiet when it uses less than a twentieth of a core for this long.
const QUIET: Duration = Duration::from_millis(400);
/// Longest wait for that.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Line {
    /// The program measured.
    server: String,
    workload: &'static str,
    unit: &'static str,
    per_server_cpu_second: f64,
    /// With the remaining flushes and compactions. Only of workloads that write.
    settled: Option<f64>,
    /// Lowest and highest of the repeats.
    spread: [f64; 2],
    per_second: f64,
    /// As a share of the echo's calls per CPU second, in the same repeat. Only where operations are calls.
    of_echo: Option<f64>,
}

async fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let echo = Server::echo()?;
    let mut servers = Vec::new();
    match (&arguments.address, arguments.pid) {
        (Some(address), Some(pid)) => servers.push(Server::running(address, pid)),
        _ if arguments.stele.is_empty() => servers.push(Server::stele(process::beside_this()?, &arguments.start)?),
        _ => {
            for program in &arguments.stele {
                servers.push(Server::stele(program.clone(), &arguments.start)?);
            }
        }
    }
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let plans: Vec<Plan> = Plan::all().into_iter().filter(|plan| wanted(plan.name)).collect();
    ensure!(!plans.is_empty(), "no workload of that name");
    let mut callers = Vec::new();
    for server in &servers {
        let caller = Arc::new(Caller::connect(server.address()).await?);
        workload::prepare(&caller).await?;
        callers.push(caller);
    }
    let echo_caller = Arc::new(Caller::connect(echo.address()).await?);
    let time = Duration::from_secs_f64(arguments.seconds);
    let echo_plan = Plan::echo();
    let mut echoes = Vec::new();
    // By workload, then by server.
    let mut results = vec![vec![Vec::new(); servers.len()]; plans.len()];
    for _ in 0..arguments.repeats {
        echoes.push(one(&echo_caller, &echo, &echo_plan, time).await?);
        for (plan, results) in plans.iter().zip(&mut results) {
            for ((server, caller), measured) in servers.iter().zip(&callers).zip(results) {
                measured.push(one(caller, server, plan, time).await?);
            }
        }
    }
    let mut lines = vec![line(&echo, &echo_plan, &echoes, &echoes)];
    for (plan, results) in plans.iter().zip(&results) {
        let measured = servers.iter().zip(results);
        lines.extend(measured.map(|(server, measured)| line(server, plan, measured, &echoes)));
    }
    print(&lines, servers.len() > 1);
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_string_pretty(&lines)?)?;
    }
    Ok(())
}

/// Runs a workload and divides its operations by the CPU time of the server's process.
async fn one(caller: &Arc<Caller>, server: &Server, plan: &Plan, time: Duration) -> anyhow::Result<Measured> {
    let workload = Arc::new(Workload::new(plan)?);
    quiet(server).await?;
    run(caller, &workload, plan.callers, time / 5).await?;
    let (started, cpu) = (Instant::now(), server.cpu_seconds()?);
    let done = run(caller, &workload, plan.callers, time).await? as f64;
    let (wall, end) = (started.elapsed().as_secs_f64(), server.cpu_seconds()?);
    if plan.writes() {
        tokio::time::sleep(REST.max(2 * (time + time / 5) + Duration::from_secs(2))).await;
        quiet(server).await?;
    }
    Ok(Measured {
        per_cpu_second: done / (end - cpu),
        settled: done / (server.cpu_seconds()? - cpu),
        per_second: done / wall,
    })
}

/// Waits until the server is quiet, so that no workload pays for the one before.
async fn quiet(server: &Server) -> anyhow::Result<()> {
    let end = Instant::now() + QUIET_WAIT_MAX;
    loop {
        let before = server.cpu_seconds()?;
        tokio::time::sleep(QUIET).await;
        if server.cpu_seconds()? - before < QUIET.as_secs_f64() / 20.0 || Instant::now() > end {
            return Ok(());
        }
    }
}

/// All callers in closed loops. Returns their completed work in the plan's unit.
async fn run(caller: &Arc<Caller>, workload: &Arc<Workload>, callers: u64, time: Duration) -> anyhow::Result<u64> {
    let end = Instant::now() + time;
    let mut running = Vec::new();
    for _ in 0..callers {
        let (caller, workload) = (caller.clone(), workload.clone());
        running.push(tokio::spawn(async move {
            let mut requests = Requests::new(&workload);
            let mut done = 0;
            while Instant::now() < end {
                done += requests.next(&caller).await?;
            }
            Ok::<u64, anyhow::Error>(done)
        }));
    }
    let mut done = 0;
    for caller in running {
        done += caller.await.context("a caller ended early")??;
    }
    Ok(done)
}

fn line(server: &Server, plan: &Plan, measured: &[Measured], echoes: &[Measured]) -> Line {
    let per_cpu: Vec<f64> = measured.iter().map(|m| m.per_cpu_second).collect();
    let ratios: Vec<f64> = measured
        .iter()
        .zip(echoes)
        .map(|(m, e)| m.per_cpu_second / e.per_cpu_second)
        .collect();
    let ends = |values: &[f64], f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or(f64::NAN);
    Line {
        server: server.name().to_owned(),
        workload: plan.name,
        unit: plan.unit,
        per_server_cpu_second: median(&per_cpu),
        settled: plan
            .writes()
            .then(|| median(&measured.iter().map(|m| m.settled).collect::<Vec<_>>())),
        spread: [ends(&per_cpu, f64::min), ends(&per_cpu, f64::max)],
        per_second: median(&measured.iter().map(|m| m.per_second).collect::<Vec<_>>()),
        of_echo: (plan.unit == "calls").then(|| median(&ratios)),
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(lines: &[Line], with_servers: bool) {
    println!(
        "{:<18} {:>14} {:>26} {:>12} {:>12} {:>8}  unit",
        "workload", "/CPU-second", "spread", "settled", "/second", "of echo"
    );
    for line in lines {
        let [low, high] = line.spread;
        let spread = format!("{low:.0} to {high:.0}");
        let of_echo = line.of_echo.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        println!(
            "{:<18} {:>14.0} {:>26} {:>12} {:>12.0} {:>8}  {} {}",
            line.workload,
            line.per_server_cpu_second,
            spread,
            line.settled.map_or(String::new(), |settled| format!("{settled:.0}")),
            line.per_second,
            of_echo,
            line.unit,
            if with_servers { &line.server } else { "" }
        );
    }
}
