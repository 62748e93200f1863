//! Loads far more than the memory budget and checks what must hold then: every row is there, memory stayed near the
//! budget, the files are not much larger than the data, and a restart is quick.

use crate::measure::json_line;
use crate::server::{self, Scratch, Server, Start};
use crate::shell::Run;
use crate::tools;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Value bytes; the evaluations of the family use 1,000.
const VALUE_BYTES: u64 = 1_000;

/// Allowed above the budget: code, stacks, gRPC buffers of the requests in flight.
const RSS_CONSTANT_BYTES: u64 = 256 << 20;

/// Files may hold this much more than the values: keys, indexes, inputs of a running compaction, the log.
const DISK_FACTOR: f64 = 2.5;

/// Whether all of it held.
pub fn run(megabytes: u64, memory_mib: u64) -> Result<bool> {
    server::build()?;
    let load = tools::go_program("load")?;
    let scratch = Scratch::new("soak")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let memory = (memory_mib << 20).to_string();
    let start = Start {
        data: &data,
        log: &log,
        arguments: &["--memory", &memory],
    };
    let rows = megabytes * 1_000_000 / VALUE_BYTES;

    let mut server = Server::start(&start)?;
    let rows_text = rows.to_string();
    let filled = json_line(Run::new(&load).args(["fill", "-address", server.address(), "-rows", &rows_text]))?;
    let cpu = server.process().cpu_seconds()?;
    println!("fill: {filled}, server CPU {cpu:.1} s");
    let counted = json_line(Run::new(&load).args(["count", "-address", server.address()]))?;
    println!("count: {counted}");
    let rss = server.process().peak_rss_bytes()?;
    let disk = bytes_below(&data)?;
    server.process().kill()?;
    let restart = Instant::now();
    let server = Server::start(&start)?;
    let recovery = restart.elapsed();
    let recounted = json_line(Run::new(&load).args(["count", "-address", server.address()]))?;

    let rows_of = |value: &serde_json::Value| value.get("rows").and_then(|v| v.as_u64());
    let checks = [
        (format!("{rows} rows before the kill"), rows_of(&counted) == Some(rows)),
        (format!("{rows} rows after recovery"), rows_of(&recounted) == Some(rows)),
        (
            format!("peak memory {} MiB, budget {memory_mib} MiB", rss >> 20),
            rss <= (memory_mib << 20) + RSS_CONSTANT_BYTES,
        ),
        (
            format!("{} MB of files for {megabytes} MB of values", disk / 1_000_000),
            disk as f64 <= DISK_FACTOR * (megabytes * 1_000_000) as f64,
        ),
        (format!("ready again in {} ms", recovery.as_millis()), true),
    ];
    for (what, holds) in &checks {
        println!("{} {what}", if *holds { "ok  " } else { "FAIL" });
    }
    let passed = checks.iter().all(|(_, holds)| *holds);
    if passed {
        scratch.passed();
    }
    Ok(passed)
}

fn bytes_below(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let info = entry.metadata()?;
        bytes += if info.is_dir() {
            bytes_below(&entry.path())?
        } else {
            info.len()
        };
    }
    Ok(bytes)
}
