//! Kills nodes under load, and proves that no acknowledged write is lost.

use super::Cluster;
use crate::choices;
use crate::writers::{Proof, is_proof};
use anyhow::{Context, Result};
use std::time::Duration;

/// Time for which the writers go on after a kill: longer than a failover takes.
const AFTERWARDS: Duration = Duration::from_secs(4);

/// Whether every round found every acknowledged write. In each, one node is killed while the writers use another one.
pub fn kills(cluster: &mut Cluster, rounds: u32) -> Result<bool> {
    let proof = Proof::new(cluster.scratch.join("state"))?;
    let seed = choices::seed(None)?;
    println!("cluster: {rounds} kills, seed {seed}");
    let mut acknowledged = 0;
    for round in 1..=rounds {
        // The writers' node is the newest; the oldest is killed, so each has its turn.
        let writers_at = cluster.nodes.last().context("no node")?.bigtable.clone();
        let Some(writers) = proof.write(&writers_at, seed + u64::from(round))? else {
            return Ok(false);
        };
        std::thread::sleep(Duration::from_millis(500 + u64::from(round % 5) * 400));
        let mut killed = cluster.nodes.remove(0);
        killed.process.kill()?;
        std::thread::sleep(AFTERWARDS);
        let Some(more) = writers.stop()? else {
            return Ok(false);
        };
        acknowledged += more;
        cluster.add_node()?;
        let reader_at = &cluster.nodes.first().context("no node")?.bigtable;
        let (passed, report) = proof.verify(reader_at)?;
        println!("round {round}: {} killed, {more} acknowledged, {report}", killed.name);
        if !passed {
            return Ok(false);
        }
    }
    Ok(is_proof(acknowledged, rounds))
}
