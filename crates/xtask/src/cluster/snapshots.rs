//! Takes snapshots while tablets move under load, and restores them.

use super::Cluster;
use super::moves;
use crate::choices::micros;
use crate::registers::{Registers, TABLE};
use anyhow::{Context, Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// A snapshot asks again for a tablet that moves, for a minute.
const COMMAND_WAIT: Duration = Duration::from_secs(90);

/// Whether every snapshot had the rows of a moment between its beginning and its end.
pub fn run(cluster: &mut Cluster, snapshots: u32) -> Result<bool> {
    let mut registers = Registers::start(&cluster.addresses(), &["-history"])?;
    cluster.settle()?;
    moves::spread(cluster)?;
    registers.begin()?;
    let mut passed = true;
    for number in 0..snapshots {
        passed &= one(cluster, &mut registers, number)?;
    }
    let window = registers.end()?;
    println!(
        "{snapshots} snapshots: {} requests, p99 {:.0} ms, longest pause of a row {:.0} ms, errors: [{}]",
        window.requests, window.p99_ms, window.pause_max_ms, window.errors
    );
    Ok(passed && window.is_clean())
}

/// Takes one while all tablets move, and compares a clone of it.
pub fn one(cluster: &Cluster, registers: &mut Registers, number: u32) -> Result<bool> {
    let node = cluster.nodes.first().context("no node")?;
    let name = format!("s{number}");
    let (from, took, to) = thread::scope(|scope| {
        let moving = scope.spawn(|| moves::move_around(cluster, moves::TABLETS));
        // Some tablets have moved by then, some move, and others will.
        thread::sleep(Duration::from_millis(50 * u64::from(number % 8)));
        let (from, start) = (micros()?, Instant::now());
        node.command_within(COMMAND_WAIT, &["snapshot", "create", TABLE, &name])?;
        let (took, to) = (start.elapsed(), micros()?);
        match moving.join() {
            Ok(moved) => moved.map(|_| (from, took, to)),
            Err(_) => bail!("moving tablets panicked"),
        }
    })?;
    let (restored, is_exact) = registers.is_exact(&node.bigtable, &name, (from, to), false)?;
    println!(
        "snapshot {number}: taken in {:.2} s, restored in {:.2} s",
        took.as_secs_f64(),
        restored.as_secs_f64()
    );
    Ok(is_exact)
}
