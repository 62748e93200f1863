//! Measures Stele and a real HBase in one run with HBase's own client, PerformanceEvaluation.
//!
//! Both servers run with in-memory data, and acknowledge a write when it is with the operating system. The figure is rows per
//! CPU second of all processes of a server: client and servers share the machine, so rates alone say little.

use super::evaluation::{Command, Evaluated, Spread, evaluate};
use super::tools::configure;
use crate::proc_stat::ProcStat;
use crate::rival::{Place, Request, Rival, Running};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;

/// Where Stele serves HBase's protocol.
const STELE_HBASE: &str = "127.0.0.1:17202";
/// Rounds over all commands; the servers take turns.
const ROUNDS: usize = 3;

/// The commands, with a table of 200,000 rows.
const COMMANDS: [Command; 4] = [
    named("sequentialWrite"),
    named("randomRead"),
    named("randomWrite"),
    named("scan"),
];

const fn named(name: &'static str) -> Command {
    Command { name, rows: 25_000 }
}

/// One of the two servers.
struct Party {
    running: Running,
    place: Place,
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
        let running = Running::start(rival, &request)?;
        let address = match rival {
            Rival::Stele => STELE_HBASE,
            _ => running.hbase_address(),
        };
        let place = configure(address, &format!("measured-{}", rival.name()))?;
        parties.push(Party { running, place });
    }
    print(&measure(&parties)?);
    parties.into_iter().try_for_each(|party| party.running.stop())?;
    Ok(true)
}

/// Of each command: the runs of each server.
fn measure(parties: &[Party]) -> Result<Vec<[Vec<Evaluated>; 2]>> {
    let mut measured: Vec<[Vec<Evaluated>; 2]> = COMMANDS.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 0..=ROUNDS {
        for (command, runs) in COMMANDS.iter().zip(&mut measured) {
            for (party, runs) in parties.iter().zip(runs) {
                let rival = party.running.rival();
                let run = evaluate(&party.place, *command, &[], || cpu_seconds(rival))?;
                let name = rival.name();
                println!(
                    "round {round} {:<16} {name:<6} {:>9.0} rows/s {:>9.0} rows per CPU s",
                    command.name, run.rows_per_second, run.rows_per_cpu_second
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

fn print(measured: &[[Vec<Evaluated>; 2]]) {
    println!("| command | stele, rows per CPU s | hbase | ratio |\n|---|---:|---:|---:|");
    for (command, [stele, hbase]) in COMMANDS.iter().zip(measured) {
        let [ours, theirs] = [stele, hbase].map(|runs| Spread::of(runs));
        let ratio = ours.median / theirs.median;
        println!("| {} | {ours} | {theirs} | {ratio:.1} |", command.name);
    }
}
