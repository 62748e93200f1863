//! Measures clusters of several sizes in one run, through HBase's own client.
//!
//! That client knows the server of each row, so no request has a hop. The figure is rows per CPU second of all nodes of a
//! cluster. The nodes share the machine, so a larger cluster does no more work, and each node has less to do.

use super::{Arguments, Cluster, moves};
use crate::hbase::evaluation::{Command, Evaluated, Spread, evaluate};
use crate::hbase::tools::configure;
use crate::rival::Place;
use anyhow::{Context, Result, ensure};

/// Rounds that count.
const REPEATS: u32 = 3;
/// Tablets of the table, in every cluster.
const PRESPLIT: &str = "--presplit=16";

/// The first one makes the table.
const COMMANDS: [Command; 4] = [
    Command {
        name: "sequentialWrite",
        rows: 25_000,
    },
    Command {
        name: "randomRead",
        rows: 100_000,
    },
    Command {
        name: "randomWrite",
        rows: 25_000,
    },
    Command {
        name: "scan",
        rows: 100_000,
    },
];

/// A cluster, and the runs of each command.
struct Party {
    cluster: Cluster,
    place: Place,
    runs: Vec<Vec<Evaluated>>,
}

/// Measures all sizes in turns, after a round that warms up, and prints a table.
pub fn measure(arguments: &Arguments) -> Result<bool> {
    let mut parties: Vec<Party> = Vec::new();
    for size in &arguments.sizes {
        let is_new = parties.iter().all(|party| party.cluster.nodes.len() != *size);
        ensure!(
            *size > 0 && is_new,
            "--sizes: each is a number of nodes above zero, given once"
        );
        let cluster = Cluster::start(arguments, *size)?;
        let node = cluster.nodes.first().context("no node")?;
        let place = configure(&node.hbase, &format!("cluster-{size}"))?;
        let runs = COMMANDS.iter().map(|_| Vec::new()).collect();
        parties.push(Party { cluster, place, runs });
    }
    for round in 0..=REPEATS {
        for (number, command) in COMMANDS.iter().enumerate() {
            for party in &mut parties {
                let makes_table = (round, number) == (0, 0);
                let options: &[&str] = if makes_table { &[PRESPLIT] } else { &[] };
                let run = evaluate(&party.place, *command, options, || party.cluster.cpu_seconds())?;
                if makes_table {
                    moves::spread(&party.cluster)?;
                }
                println!(
                    "round {round} {:<16} {} nodes {:>9.0} rows/s {:>9.0} rows per CPU s",
                    command.name,
                    party.cluster.nodes.len(),
                    run.rows_per_second,
                    run.rows_per_cpu_second
                );
                if round > 0 {
                    party.runs.get_mut(number).context("no such command")?.push(run);
                }
            }
        }
    }
    print(&parties);
    for party in &mut parties {
        party.cluster.scratch.discard();
    }
    Ok(true)
}

fn print(parties: &[Party]) {
    let sizes = parties
        .iter()
        .map(|party| format!(" {} nodes |", party.cluster.nodes.len()));
    println!("| command |{}", sizes.collect::<String>());
    println!("|---|{}", "---:|".repeat(parties.len()));
    for (number, command) in COMMANDS.iter().enumerate() {
        let spreads = parties.iter().filter_map(|party| party.runs.get(number));
        let spreads: Vec<Spread> = spreads.map(|runs| Spread::of(runs)).collect();
        let first = spreads.first().map_or(f64::NAN, |spread| spread.median);
        let cells = spreads
            .iter()
            .map(|spread| format!(" {spread}, {:.2} |", spread.median / first));
        println!("| {} |{}", command.name, cells.collect::<String>());
    }
}
