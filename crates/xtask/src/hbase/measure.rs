//! Measures Stele and a real HBase in one run with HBase's own client, PerformanceEvaluation.
//!
//! Both servers run with in-memory data, and acknowledge a write when it is with the operating system. The figure is rows per
//! CPU second of all processes of a server: client and servers share the machine, so rates alone say little.

use super::tools::{configure, show};
use crate::proc_stat::ProcStat;
use crate::rival::{self, Place, Request, Rival, finished_rows};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::time::Instant;

const EVALUATION: &str = "org.apache.hadoop.hbase.PerformanceEvaluation";
const TABLE: &str = "measured";
/// Where Stele serves HBase's protocol.
const STELE_HBASE: &str = "127.0.0.1:17202";
/// Client threads: with fewer, the client waits for single answers.
const CLIENTS: u64 = 8;
/// Rounds over all commands; the servers take turns.
const ROUNDS: usize = 3;

/// A command of PerformanceEvaluation with the rows of each client.
const COMMANDS: [(&str, u64); 4] = [
    ("sequentialWrite", 25_000),
    ("randomRead", 25_000),
    ("randomWrite", 25_000),
    ("scan", 25_000),
];

/// One of the two servers.
struct Party {
    rival: Rival,
    place: Place,
}

/// One run of a command.
#[derive(Clone, Copy)]
struct Run {
    rows_per_second: f64,
    rows_per_cpu_second: f64,
}

/// Measures both, and prints a table.
pub fn run() -> Result<bool> {
    let mut parties = Vec::new();
    for rival in [Rival::Stele, Rival::Hbase] {
        let settings: &[&str] = match rival {
            Rival::Stele => &["memory=4GiB", "durability=flush", "hbase=127.0.0.1:17202"],
            _ => &[],
        };
        let request = Request {
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            conf: None,
            fresh: true,
        };
        let url = rival::started(rival, &request)?;
        let address = match rival {
            Rival::Stele => STELE_HBASE,
            _ => url.trim_start_matches("hbase://").split('?').next().unwrap_or_default(),
        };
        let place = configure(address, &format!("measured-{}", rival.name()))?;
        parties.push(Party { rival, place });
    }
    let measured = measure(&parties);
    for party in &parties {
        rival::stop(party.rival)?;
    }
    print(&measured?);
    Ok(true)
}

/// Of each command: the runs of each server.
fn measure(parties: &[Party]) -> Result<Vec<[Vec<Run>; 2]>> {
    let mut measured: Vec<[Vec<Run>; 2]> = COMMANDS.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 0..=ROUNDS {
        for (command, runs) in COMMANDS.iter().zip(&mut measured) {
            for (party, runs) in parties.iter().zip(runs) {
                let run = evaluate(party, *command)?;
                let name = party.rival.name();
                println!(
                    "round {round} {:<16} {name:<6} {:>9.0} rows/s {:>9.0} rows per CPU s",
                    command.0, run.rows_per_second, run.rows_per_cpu_second
                );
                // The first round warms both servers up.
                if round > 0 {
                    runs.push(run);
                }
            }
        }
    }
    Ok(measured)
}

fn evaluate(party: &Party, (command, rows): (&str, u64)) -> Result<Run> {
    let before = cpu_seconds(party.rival)?;
    let (begin, mut output) = (Instant::now(), Vec::new());
    let succeeded = rival::hbase_tool(&party.place, "1g", EVALUATION)?
        .args(["--nomapred", &format!("--table={TABLE}"), &format!("--rows={rows}")])
        .args([command, &CLIENTS.to_string()])
        .lines(|line| output.push(line.to_owned()))?;
    let seconds = begin.elapsed().as_secs_f64();
    let finished: u64 = output.iter().filter_map(|line| finished_rows(line)).sum();
    if !succeeded || finished != rows * CLIENTS {
        show(&output);
    }
    ensure!(succeeded, "{command} failed");
    ensure!(finished == rows * CLIENTS, "{command} finished {finished} rows");
    let cpu = cpu_seconds(party.rival)? - before;
    Ok(Run {
        rows_per_second: finished as f64 / seconds,
        rows_per_cpu_second: finished as f64 / cpu.max(0.01),
    })
}

/// CPU seconds of all processes of a server so far.
fn cpu_seconds(rival: Rival) -> Result<f64> {
    let path = rival.place().party();
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let party: Value = serde_json::from_str(&text)?;
    let processes = party["processes"].as_array().context("no processes")?;
    let pids = processes.iter().filter_map(|process| process["pid"].as_u64());
    pids.map(|pid| Ok(ProcStat::read(&pid.to_string())?.cpu_seconds()))
        .sum()
}

fn print(measured: &[[Vec<Run>; 2]]) {
    println!("| command | stele, rows per CPU s | hbase | ratio |\n|---|---:|---:|---:|");
    for ((command, _), [stele, hbase]) in COMMANDS.iter().zip(measured) {
        let [ours, theirs] = [stele, hbase].map(|runs| spread(runs));
        let ratio = ours.0 / theirs.0;
        println!(
            "| {command} | {:.0} ({:.0}–{:.0}) | {:.0} ({:.0}–{:.0}) | {ratio:.1} |",
            ours.0, ours.1, ours.2, theirs.0, theirs.1, theirs.2
        );
    }
}

/// Median, least and most rows per CPU second.
fn spread(runs: &[Run]) -> (f64, f64, f64) {
    let mut figures: Vec<f64> = runs.iter().map(|run| run.rows_per_cpu_second).collect();
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    (at(figures.len() / 2), at(0), at(figures.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_shown_with_its_spread() {
        let run = |figure: f64| Run {
            rows_per_second: 1.0,
            rows_per_cpu_second: figure,
        };
        assert_eq!(spread(&[run(3.0), run(1.0), run(2.0)]), (2.0, 1.0, 3.0));
    }
}
