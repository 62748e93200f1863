//! Kills nodes under load, and proves that no acknowledged write is lost.

use super::Cluster;
use crate::crash::{acknowledged_in, is_proof};
use crate::server::Process;
use crate::shell::Run;
use crate::tools;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for which the writers go on after a kill: longer than a failover takes.
const AFTERWARDS: Duration = Duration::from_secs(4);

/// Whether every round found every acknowledged write. In each, one node is killed while the writers use another one.
pub fn kills(cluster: &mut Cluster, rounds: u32) -> Result<bool> {
    let crashload = tools::go_program("crashload")?;
    let state = cluster.scratch.join("state");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    println!("cluster: {rounds} kills, seed {seed}");
    let mut acknowledged = 0;
    for round in 1..=rounds {
        // The writers' node is the newest; the oldest is killed, so each has its turn.
        let writers_at = cluster.nodes.last().context("no node")?.bigtable.clone();
        let mut writer = Process::new(
            Run::new(&crashload)
                .args([
                    "write",
                    "-address",
                    &writers_at,
                    "-seed",
                    &(seed + u64::from(round)).to_string(),
                    "-state",
                ])
                .args([&state])
                .into_command()
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let mut output = BufReader::new(writer.child().stdout.take().context("no standard output")?);
        if output.read_line(&mut String::new())? == 0 {
            eprintln!("round {round}: the writers did not start");
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(500 + u64::from(round % 5) * 400));
        let mut killed = cluster.nodes.remove(0);
        killed.process.kill()?;
        std::thread::sleep(AFTERWARDS);
        drop(writer.child().stdin.take());
        let mut said = String::new();
        output.read_to_string(&mut said)?;
        let status = writer.child().wait().context("waiting for the writers")?;
        if !status.success() {
            eprintln!("round {round}: the writers failed: {status}");
            return Ok(false);
        }
        acknowledged += acknowledged_in(&said)?;
        cluster.add_node()?;
        let reader_at = cluster.nodes.first().context("no node")?.bigtable.clone();
        let mut report = String::new();
        let passed = Run::new(&crashload)
            .args(["verify", "-address", &reader_at, "-state"])
            .args([&state])
            .lines(|line| report.push_str(line))?;
        println!("round {round}: {} killed, {} {report}", killed.name, said.trim());
        if !passed {
            return Ok(false);
        }
    }
    Ok(is_proof(acknowledged, rounds))
}
