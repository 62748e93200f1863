//! Measures the time from the start of a server to the first answered get.
//!
//! The servers are Stele and a real HBase, and the client is HBase's own. It runs and has loaded its classes before the server starts. Both
//! servers had stopped in order, with a table of one row.

use super::tools::small_program;
use crate::rival::{Request, Rival, Running};
use crate::server::Process;
use crate::shell::{Run, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

const ROUNDS: usize = 3;

/// Measures both in turns, and prints the times in milliseconds.
pub fn run() -> Result<bool> {
    let parties = [
        (
            Rival::Stele,
            vec!["memory=4GiB".to_owned(), "hbase=127.0.0.1:17202".to_owned()],
        ),
        (Rival::Hbase, Vec::new()),
    ];
    let mut addresses = Vec::new();
    for (rival, settings) in &parties {
        let running = Running::start(*rival, &request(settings, true))?;
        let address = match rival {
            Rival::Stele => "127.0.0.1:17202",
            _ => running.hbase_address(),
        };
        first_get("make", address)?.check()?;
        addresses.push(address.to_owned());
        running.stop()?;
    }
    let mut times: [Vec<u64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (((rival, settings), address), times) in parties.iter().zip(&addresses).zip(&mut times) {
            times.push(timed(*rival, &request(settings, false), address)?);
        }
    }
    for ((rival, _), times) in parties.iter().zip(&mut times) {
        times.sort_unstable();
        println!("{}: first get after {times:?} ms", rival.name());
    }
    let medians = times.map(|times| times.get(ROUNDS / 2).copied().unwrap_or_default());
    println!(
        "ratio of the medians: {:.1}",
        medians[1] as f64 / medians[0].max(1) as f64
    );
    Ok(true)
}

fn request(settings: &[String], fresh: bool) -> Request {
    Request {
        settings: settings.to_vec(),
        conf: None,
        fresh,
    }
}

fn first_get(task: &str, address: &str) -> Result<Run> {
    // The client prints a trace of each try that fails.
    let log = target_dir().join("hbase-clients.log");
    let errors = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    Ok(small_program("512m", "FirstGet")?
        .errors_to(errors)
        .args([task, address]))
}

/// Milliseconds from the start to the first get. The rival is stopped afterwards.
fn timed(rival: Rival, request: &Request, address: &str) -> Result<u64> {
    let mut child = first_get("wait", address)?
        .into_command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the client")?;
    let mut input = child.stdin.take().context("no standard input")?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let _client = Process::new(child);
    let ready = lines.next().context("the client ended")??;
    ensure!(ready == "ready", "the client printed {ready:?}");
    writeln!(input, "go")?;
    input.flush()?;
    let running = Running::start(rival, request)?;
    ensure!(running.is_own(), "{} runs already", rival.name());
    let line = lines.next().context("the client ended")??;
    running.stop()?;
    line.parse().with_context(|| format!("the client printed {line:?}"))
}
