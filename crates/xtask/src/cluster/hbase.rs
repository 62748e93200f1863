//! HBase's own client against a cluster.
//!
//! Regions move and are split meanwhile. Then a node is killed.

use super::Cluster;
use crate::hbase::tools::small_program;
use crate::server::Process;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdout, Stdio};
use std::thread;
use std::time::Duration;

/// Time for which the client goes on after the kill: longer than a failover takes.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// The line of the program after the moves.
const MOVED: &str = "moved";

/// Whether no call failed, and every row is as it was answered.
pub fn run(cluster: &mut Cluster, moves: u32) -> Result<bool> {
    cluster.settle()?;
    let bootstrap: Vec<&str> = cluster.nodes.iter().map(|node| node.hbase.as_str()).collect();
    let (bootstrap, servers) = (bootstrap.join(","), bootstrap.len().to_string());
    let mut command = small_program("512m", "Moves")?
        .args([bootstrap.as_str(), &servers, &moves.to_string()])
        .into_command();
    let mut client = Process::new(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let output = client.child().stdout.take().context("the client has an output")?;
    let mut lines = BufReader::new(output).lines();
    if follow(&mut lines)? {
        let mut killed = cluster.nodes.remove(0);
        killed.process.kill()?;
        println!("{} is killed", killed.name);
        thread::sleep(AFTERWARDS);
        cluster.replace(killed)?;
        cluster.settle()?;
    }
    let mut input = client.child().stdin.take().context("the client has an input")?;
    // A client that has ended says why.
    let _ = writeln!(input);
    drop(input);
    follow(&mut lines)?;
    Ok(client.child().wait()?.success())
}

/// Shows lines of the client until the one after the moves, or all; whether it came.
fn follow(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<bool> {
    for line in lines {
        let line = line?;
        println!("{line}");
        if line == MOVED {
            return Ok(true);
        }
    }
    Ok(false)
}
