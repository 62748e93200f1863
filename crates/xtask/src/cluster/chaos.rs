//! Random faults for a while. Every row must behave like one register, and be available again after each fault.

use super::fault::FAULTS;
use super::moves;
use super::{Arguments, Cluster};
use crate::choices::{self, Choices};
use crate::registers::Registers;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Rows must be available within this time after a fault was mended and all tablets have owners. A connection sends packets again
/// that were lost, after pauses that double: 6.2 seconds after the first one it tries for the sixth time.
const RECOVERY: Duration = Duration::from_secs(7);
/// Time in which they must stay available.
const CALM: Duration = Duration::from_secs(3);
/// The longest pause of a row in calm. It is a pause of the machine, too.
const CALM_PAUSE_MS: f64 = 2_500.0;

/// Whether no fault made a row misbehave.
pub fn run(cluster: &mut Cluster, arguments: &Arguments, time: Duration) -> Result<bool> {
    let seed = choices::seed(arguments.seed)?;
    println!("chaos for {} minutes, seed {seed}", time.as_secs() / 60);
    let planted: &[&str] = if arguments.planted_stale_reads {
        &["-planted-stale-reads"]
    } else {
        &[]
    };
    let mut registers = Registers::start(&cluster.addresses(), planted)?;
    let mut choices = Choices(seed);
    let end = Instant::now() + time;
    let mut rounds = 0;
    while Instant::now() < end {
        rounds += 1;
        cluster.settle()?;
        if !round(cluster, &mut registers, &mut choices, arguments.nodes, rounds)? {
            return Ok(false);
        }
    }
    println!("{rounds} faults, no row misbehaved");
    Ok(true)
}

fn round(
    cluster: &mut Cluster,
    registers: &mut Registers,
    choices: &mut Choices,
    nodes: usize,
    number: u32,
) -> Result<bool> {
    moves::spread(cluster)?;
    let fault = *FAULTS.get(choices.below(FAULTS.len())).context("a fault")?;
    registers.begin()?;
    let happened = fault.happen(cluster, registers, choices.below(1 << 16))?;
    loop {
        replace_ended(cluster, registers, nodes)?;
        cluster.settle()?;
        registers.use_only(&cluster.addresses())?;
        std::thread::sleep(RECOVERY);
        // A server that was cut off ends when it learns that it was given up: seconds after the cut was mended.
        if have_all_stayed(cluster)? {
            break;
        }
    }
    let during = registers.end()?;
    registers.begin()?;
    std::thread::sleep(CALM);
    let calm = registers.end()?;
    println!(
        "round {number}: {fault:?}, {happened}: {} requests, longest pause of a row {:.0} ms, then {:.0} ms; errors: [{}]",
        during.requests, during.pause_max_ms, calm.pause_max_ms, during.errors
    );
    if fault.is_harmless() && !during.errors.is_empty() {
        eprintln!("round {number}: clients saw errors");
        return Ok(false);
    }
    if calm.pause_max_ms > CALM_PAUSE_MS || !calm.errors.is_empty() {
        eprintln!("round {number}: rows are not available again: [{}]", calm.errors);
        return Ok(false);
    }
    Ok(calm.is_linearizable())
}

/// Whether no node has ended.
fn have_all_stayed(cluster: &mut Cluster) -> Result<bool> {
    for node in &mut cluster.nodes {
        if node.process.ended()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Starts as many nodes as have ended.
pub fn replace_ended(cluster: &mut Cluster, registers: &mut Registers, nodes: usize) -> Result<()> {
    let mut ended = Vec::new();
    for mut node in std::mem::take(&mut cluster.nodes) {
        match node.process.ended()? {
            None => cluster.nodes.push(node),
            Some(_) => ended.push(node),
        }
    }
    registers.use_only(&cluster.addresses())?;
    for node in ended {
        registers.give_up(&node.bigtable)?;
    }
    while cluster.nodes.len() < nodes {
        cluster.add_node()?;
    }
    Ok(())
}
