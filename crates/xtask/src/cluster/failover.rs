//! Measures pauses of rows after the kill of a node with a full log.

use super::Cluster;
use crate::registers::Registers;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Tablets of the table: several for each node.
const TABLETS: &str = "24";
/// Longer than a failover takes, by far.
const AFTERWARDS: Duration = Duration::from_secs(12);

/// Kills a node in each round; prints the pauses. Whether no request failed and every row behaved like a register.
pub fn measure(cluster: &mut Cluster, rounds: u32, log_mib: u64) -> Result<bool> {
    let mut registers = Registers::start(&cluster.addresses(), &["-tablets", TABLETS])?;
    let mut pauses = Vec::new();
    let mut passed = true;
    for round in 1..=rounds {
        cluster.settle()?;
        registers.use_only(&cluster.addresses())?;
        fill(cluster, &mut registers, log_mib)?;
        let mut killed = cluster.nodes.remove(0);
        let log = killed.metric("stele_commitlog_retained_bytes")?;
        let (tablets, leads) = {
            let status = cluster.status()?;
            let server = status.server_of(&killed)?;
            (server.tablets, server.leads)
        };
        registers.use_only(&cluster.addresses())?;
        // Requests through the node that is killed have ended by then; its clients would be somewhere else, too.
        std::thread::sleep(Duration::from_millis(500));
        registers.begin()?;
        killed.process.kill()?;
        std::thread::sleep(AFTERWARDS);
        let window = registers.end()?;
        println!(
            "round {round}: {}{} with {tablets} tablets and {:.0} MiB of log killed; the longest pause of a row is {:.0} ms, of \
             the median row {:.0} ms; {} requests, errors: [{}]",
            killed.name,
            if leads { ", the leader," } else { "" },
            log / f64::from(1 << 20),
            window.pause_max_ms,
            window.pause_p50_ms,
            window.requests,
            window.errors,
        );
        passed &= window.is_clean();
        pauses.push(window.pause_max_ms);
        cluster.add_node()?;
    }
    pauses.sort_by(f64::total_cmp);
    let median = pauses.get(pauses.len() / 2).context("no round")?;
    let longest = pauses.last().context("no round")?;
    println!("every row available again: p50 {median:.0} ms, longest {longest:.0} ms of {rounds} rounds");
    Ok(passed)
}

/// Writes until the log of the first node holds as much as wanted.
fn fill(cluster: &Cluster, registers: &mut Registers, log_mib: u64) -> Result<()> {
    let node = cluster.nodes.first().context("no node")?;
    let servers = cluster.nodes.len() as u64;
    let mut written = 0;
    loop {
        let has = node.metric("stele_commitlog_retained_bytes")? as u64 >> 20;
        if has >= log_mib {
            return Ok(());
        }
        ensure!(
            written < 8 * log_mib * servers,
            "the log has {has} MiB after {written} MiB of writes"
        );
        let more = ((log_mib - has) * servers).min(64);
        registers.fill(more)?;
        written += more;
    }
}
