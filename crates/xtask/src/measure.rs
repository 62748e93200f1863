//! Measures Stele and Google's emulator with the same client in one run on one machine.
//!
//! The servers take turns, so other load of the machine hits both. The report holds throughput, latency and operations
//! per CPU second of the server: on a small machine the client takes half of the CPU, and throughput alone would measure
//! the client.

use crate::server::{self, Process, Scratch, Server, Start, free_address};
use crate::shell::{Run, target_dir};
use crate::tools;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const ROWS: &str = "100000";

/// Runs everything, prints a table and writes `target/measure/emulator.json`.
pub fn run(seconds: u32, repeats: u32) -> Result<bool> {
    server::build()?;
    let load = tools::go_program("load")?;
    let emulator = tools::go_program("emulator")?;
    let mut results = Vec::new();
    for repeat in 1..=repeats {
        results.extend(measure_stele(&load, seconds, repeat)?);
        results.extend(measure_emulator(&load, &emulator, seconds, repeat)?);
    }
    print_table(&results);
    let dir = target_dir().join("measure");
    fs::create_dir_all(&dir)?;
    let path = dir.join("emulator.json");
    fs::write(&path, serde_json::to_string_pretty(&results)?)?;
    println!("written to {}", path.display());
    Ok(true)
}

fn measure_stele(load: &Path, seconds: u32, repeat: u32) -> Result<Vec<Value>> {
    let scratch = Scratch::new("measure")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let mut server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &[],
    })?;
    let address = server.address().to_owned();
    let results = measure_server("stele", server.process(), &address, load, seconds, repeat)?;
    scratch.passed();
    Ok(results)
}

fn measure_emulator(load: &Path, emulator: &Path, seconds: u32, repeat: u32) -> Result<Vec<Value>> {
    let address = free_address()?;
    let child = Run::new(emulator)
        .args(["-address", &address])
        .into_command()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut process = Process::new(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(&address).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    measure_server("emulator", &mut process, &address, load, seconds, repeat)
}

fn measure_server(
    name: &str,
    process: &mut Process,
    address: &str,
    load: &Path,
    seconds: u32,
    repeat: u32,
) -> Result<Vec<Value>> {
    json_line(Run::new(load).args(["fill", "-address", address, "-rows", ROWS]))?;
    let seconds = seconds.to_string();
    let mut results = Vec::new();
    for operation in ["write", "read"] {
        let before = process.cpu_seconds()?;
        let start = Instant::now();
        let mut result =
            json_line(Run::new(load).args([operation, "-address", address, "-rows", ROWS, "-seconds", &seconds]))?;
        // The warm-up costs CPU and is not among the operations, so the rate uses the CPU share of the whole run.
        let cpu_share = (process.cpu_seconds()? - before) / start.elapsed().as_secs_f64();
        let rate = result
            .get("per_second")
            .and_then(Value::as_f64)
            .context("no per_second")?;
        if let Some(fields) = result.as_object_mut() {
            fields.insert("server".into(), json!(name));
            fields.insert("operation".into(), json!(operation));
            fields.insert("repeat".into(), json!(repeat));
            fields.insert("server_cpus".into(), json!(cpu_share));
            fields.insert("per_server_cpu_second".into(), json!(rate / cpu_share));
        }
        println!("{result}");
        results.push(result);
    }
    Ok(results)
}

fn print_table(results: &[Value]) {
    println!(
        "\n{:<10} {:<6} {:>10} {:>14} {:>9} {:>9} {:>9} {:>7}",
        "server", "op", "ops/s", "ops/CPU-second", "p50 µs", "p99 µs", "p99.9 µs", "errors"
    );
    for result in results {
        let number = |name: &str| result.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let text = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default();
        println!(
            "{:<10} {:<6} {:>10.0} {:>14.0} {:>9.0} {:>9.0} {:>9.0} {:>7.0}",
            text("server"),
            text("operation"),
            number("per_second"),
            number("per_server_cpu_second"),
            number("p50_us"),
            number("p99_us"),
            number("p999_us"),
            number("errors"),
        );
    }
}

/// Runs a program that prints one line of JSON.
pub fn json_line(command: Run) -> Result<Value> {
    let output = command.output()?;
    let line = output.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("not JSON: {line:?}"))
}
