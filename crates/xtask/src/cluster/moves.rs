//! Moves and splits tablets, and restarts every node under load. No client may see an error.

use super::Cluster;
use crate::registers::{Registers, TABLE, Window};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// Requests through a node that is restarted have ended by then: a load balancer waits as long.
const CLIENTS_LEAVE: Duration = Duration::from_secs(1);
/// A node has no tablets any more by then.
const DRAIN_WAIT: Duration = Duration::from_secs(60);
/// The leader checks every minute; a round in which a tablet comes or goes does not count.
pub const CHECK_WAIT: Duration = Duration::from_secs(240);
/// Milliseconds for one request of a thousand: the bar.
const SLOWEST: f64 = 500.0;

/// The tablets of the table at first ([`Registers::start`]).
pub const TABLETS: u32 = 24;

/// Whether no request failed and every row behaved like a register.
pub fn run(cluster: &mut Cluster, moves: u32, splits: u32) -> Result<bool> {
    let mut registers = Registers::start(&cluster.addresses(), &[])?;
    cluster.settle()?;
    registers.begin()?;
    let start = Instant::now();
    let moved = move_around(cluster, moves)?;
    let window = registers.end()?;
    show(
        &format!("{moved} moves in {:.1} s", start.elapsed().as_secs_f64()),
        &window,
    );
    let mut passed = is_good(&window);
    registers.begin()?;
    let start = Instant::now();
    split(cluster, 0..splits)?;
    let window = registers.end()?;
    show(
        &format!("{splits} splits in {:.1} s", start.elapsed().as_secs_f64()),
        &window,
    );
    passed &= is_good(&window);
    registers.begin()?;
    let nodes = cluster.nodes.len();
    for _ in 0..nodes {
        restart_oldest(cluster, &mut registers)?;
    }
    let window = registers.end()?;
    show(&format!("restart of {nodes} nodes"), &window);
    passed &= is_good(&window);
    let node = cluster.nodes.first().context("no node")?;
    let check = node.command_within(CHECK_WAIT, &["cluster", "check", "--fresh"])?;
    println!("{}", check.trim_end());
    Ok(passed)
}

/// Splits tablets evenly over the table, each half again when the first round is over.
pub fn split(cluster: &Cluster, splits: std::ops::Range<u32>) -> Result<()> {
    let node = cluster.nodes.first().context("no node")?;
    for number in splits {
        // Between the rows of a tablet, and behind those of all splits before.
        let row = format!("t{:04}-r{:05}", number % TABLETS, number);
        node.command(&["cluster", "split", TABLE, "--at", &row])?;
    }
    cluster.settle()
}

/// Moves all tablets of the table, time and again; the number of moves.
pub fn move_around(cluster: &Cluster, moves: u32) -> Result<u32> {
    let node = cluster.nodes.first().context("no node")?;
    let mut moved = 0;
    while moved < moves {
        let servers: Vec<u32> = cluster.status()?.servers.iter().map(|server| server.number).collect();
        for (tablet, owner) in node.tablets()? {
            let at = servers
                .iter()
                .position(|server| *server == owner)
                .context("an owner that is gone")?;
            let next = servers.get((at + 1) % servers.len()).context("no server")?;
            node.command(&["cluster", "move", &tablet.to_string(), &next.to_string()])?;
            moved += 1;
            if moved == moves {
                break;
            }
        }
        cluster.settle()?;
    }
    Ok(moved)
}

/// Moves tablets so that every server has as many as any other.
pub fn spread(cluster: &Cluster) -> Result<()> {
    let node = cluster.nodes.first().context("no node")?;
    let servers: Vec<u32> = cluster.status()?.servers.iter().map(|server| server.number).collect();
    for (at, (tablet, owner)) in node.tablets()?.into_iter().enumerate() {
        let to = *servers.get(at % servers.len()).context("no server")?;
        if to != owner {
            node.command(&["cluster", "move", &tablet.to_string(), &to.to_string()])?;
        }
    }
    cluster.settle()
}

/// Drains the oldest node, ends it and starts another one.
pub fn restart_oldest(cluster: &mut Cluster, registers: &mut Registers) -> Result<String> {
    restart(cluster, registers, 0)
}

/// The same of the node at this place.
pub fn restart(cluster: &mut Cluster, registers: &mut Registers, at: usize) -> Result<String> {
    let mut node = cluster.nodes.remove(at);
    registers.use_only(&cluster.addresses())?;
    let number = cluster.status()?.server_of(&node)?.number.to_string();
    let any = cluster.nodes.first().context("another node")?;
    any.command_within(DRAIN_WAIT, &["cluster", "drain", &number])?;
    let deadline = Instant::now() + DRAIN_WAIT;
    while cluster
        .status()?
        .server_of(&node)
        .is_ok_and(|server| server.tablets > 0)
    {
        if Instant::now() > deadline {
            bail!("{} has tablets after {DRAIN_WAIT:?}", node.name);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(CLIENTS_LEAVE);
    node.process.terminate()?;
    cluster.add_node()?;
    registers.use_only(&cluster.addresses())?;
    cluster.settle()?;
    Ok(node.name)
}

/// Prints the observations of a window.
pub fn show(name: &str, window: &Window) {
    println!(
        "{name}: {} requests, p99.9 {:.0} ms, longest {:.0} ms, longest pause of a row {:.0} ms, errors: [{}]",
        window.requests, window.p999_ms, window.max_ms, window.pause_max_ms, window.errors
    );
}

fn is_good(window: &Window) -> bool {
    window.is_clean() && window.p999_ms <= SLOWEST
}
