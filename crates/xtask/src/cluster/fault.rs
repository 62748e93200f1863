//! Faults of a cluster, each injected, held for a while, and mended.

use super::moves;
use super::{Cluster, Node};
use crate::registers::Registers;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Longer than a session.
const SILENCE: Duration = Duration::from_secs(14);
/// For as long, reads and writes go on without etcd.
const WITHOUT_ETCD: Duration = Duration::from_secs(60);
/// A short fault.
const SHORT: Duration = Duration::from_secs(4);
/// A silent node is replaced by then, and a replaced one has ended by then.
const END_WAIT: Duration = Duration::from_secs(30);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGKILL of the leader.
    KillLeader,
    /// SIGSTOP for longer than a session, then SIGCONT.
    Pause,
    /// Packets between two nodes vanish, in one direction or both.
    CutPeers { both: bool },
    /// Packets from a node to all members of etcd vanish, those back too if `both`.
    CutCoordinator { both: bool },
    /// Packets from a node to the object store vanish, those back too if `both`.
    CutStorage { both: bool },
    /// One member of etcd is killed, and comes back.
    Member,
    /// All members of etcd are stopped for a minute.
    NoCoordinator,
    /// A node is drained, ended and replaced.
    Restart,
}

/// All of them, the frequent ones more than once.
pub const FAULTS: [Fault; 14] = [
    Fault::Kill,
    Fault::Kill,
    Fault::KillLeader,
    Fault::KillLeader,
    Fault::Pause,
    Fault::CutPeers { both: true },
    Fault::CutPeers { both: false },
    Fault::CutCoordinator { both: true },
    Fault::CutCoordinator { both: false },
    Fault::CutStorage { both: true },
    Fault::CutStorage { both: false },
    Fault::Member,
    Fault::NoCoordinator,
    Fault::Restart,
];

impl Fault {
    /// Whether clients that use the nodes which are left may see no error.
    pub fn is_harmless(self) -> bool {
        matches!(
            self,
            Fault::Kill | Fault::KillLeader | Fault::Pause | Fault::Member | Fault::Restart
        )
    }

    /// Injects it, waits and mends it; the names of the nodes that it happened to. `choice` selects among them.
    pub fn happen(self, cluster: &mut Cluster, registers: &mut Registers, choice: usize) -> Result<String> {
        let nodes = cluster.nodes.len();
        let at = choice % nodes;
        match self {
            Fault::Kill => kill(cluster, registers, at),
            Fault::KillLeader => {
                let leader = leader(cluster)?;
                kill(cluster, registers, leader)
            }
            Fault::Pause => pause(cluster, registers, at),
            Fault::CutPeers { both } => {
                ensure!(nodes > 1, "a link has two ends");
                let other = (at + 1) % nodes;
                let (from, to) = (at, other);
                cut(cluster, from, to, both)
            }
            Fault::CutCoordinator { both } => cut_coordinator(cluster, registers, at, both),
            Fault::CutStorage { both } => cut_storage(cluster, registers, at, both),
            Fault::Member => {
                cluster.etcd.kill(choice)?;
                std::thread::sleep(SHORT);
                cluster.etcd.restart()?;
                Ok(format!("member {}", choice % 3))
            }
            Fault::NoCoordinator => {
                cluster.etcd.pause(true)?;
                std::thread::sleep(WITHOUT_ETCD);
                cluster.etcd.pause(false)?;
                std::thread::sleep(SHORT);
                Ok("etcd".to_owned())
            }
            Fault::Restart => moves::restart_oldest(cluster, registers),
        }
    }
}

/// The place of the node that leads.
pub fn leader(cluster: &Cluster) -> Result<usize> {
    let status = cluster.status()?;
    let leads = |node: &Node| status.server_of(node).is_ok_and(|server| server.leads);
    cluster.nodes.iter().position(leads).context("nobody leads")
}

fn kill(cluster: &mut Cluster, registers: &mut Registers, at: usize) -> Result<String> {
    let mut node = cluster.nodes.remove(at);
    node.process.kill()?;
    registers.use_only(&cluster.addresses())?;
    registers.give_up(&node.bigtable)?;
    std::thread::sleep(SHORT);
    Ok(node.name)
}

/// A node that was silent until others had its tablets must end by itself.
fn pause(cluster: &mut Cluster, registers: &mut Registers, at: usize) -> Result<String> {
    let mut node = cluster.nodes.remove(at);
    node.process.pause()?;
    registers.use_only(&cluster.addresses())?;
    registers.give_up(&node.bigtable)?;
    std::thread::sleep(SILENCE);
    // On a busy machine the leader notices the silence late, and a node that nobody has given up may begin a new session.
    cluster.settle_without(&node, END_WAIT)?;
    // Clients that do not know of its failure ask it immediately.
    let mut addresses = cluster.addresses();
    addresses.push(&node.bigtable);
    registers.use_only(&addresses)?;
    node.process.resume()?;
    std::thread::sleep(Duration::from_millis(200));
    registers.use_only(&cluster.addresses())?;
    registers.give_up(&node.bigtable)?;
    let deadline = Instant::now() + END_WAIT;
    while node.process.ended()?.is_none() {
        ensure!(
            Instant::now() < deadline,
            "{} lives {END_WAIT:?} after it was replaced",
            node.name
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(node.name)
}

fn cut(cluster: &Cluster, from: usize, to: usize, both: bool) -> Result<String> {
    let (from, to) = (cluster.nodes.get(from), cluster.nodes.get(to));
    let (from, to) = from.zip(to).context("two nodes")?;
    from.host.cut(&to.host)?;
    if both {
        to.host.cut(&from.host)?;
    }
    std::thread::sleep(SILENCE);
    from.host.mend(&to.host)?;
    if both {
        to.host.mend(&from.host)?;
    }
    Ok(format!("{} to {}", from.name, to.name))
}

fn cut_coordinator(cluster: &mut Cluster, registers: &mut Registers, at: usize, both: bool) -> Result<String> {
    let node = cluster.nodes.remove(at);
    let name = node.name.clone();
    for member in cluster.etcd.hosts() {
        node.host.cut(member)?;
        if both {
            member.cut(&node.host)?;
        }
    }
    registers.use_only(&cluster.addresses())?;
    registers.give_up(&node.bigtable)?;
    std::thread::sleep(SILENCE);
    for member in cluster.etcd.hosts() {
        node.host.mend(member)?;
        if both {
            member.mend(&node.host)?;
        }
    }
    cluster.nodes.push(node);
    Ok(name)
}

fn cut_storage(cluster: &mut Cluster, registers: &mut Registers, at: usize, both: bool) -> Result<String> {
    let node = cluster.nodes.remove(at);
    let name = node.name.clone();
    node.host.cut(cluster.storage())?;
    if both {
        cluster.storage().cut(&node.host)?;
    }
    registers.use_only(&cluster.addresses())?;
    registers.give_up(&node.bigtable)?;
    std::thread::sleep(SHORT);
    node.host.mend(cluster.storage())?;
    if both {
        cluster.storage().mend(&node.host)?;
    }
    cluster.nodes.push(node);
    Ok(name)
}
