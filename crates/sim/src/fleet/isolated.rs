//! A leader that reaches the coordinator and not the other servers.
//!
//! Its links to all of them are cut, in one direction or both. Then another server is killed. A server that the others reach must come to
//! lead, and give the tablets of the dead one to servers that serve them, while the links stay cut. The former leader keeps its session and is
//! silent. After a minute others must serve its tablets, too, and it may answer no read that their writes make stale. Then the links heal, and all
//! tablets must be served.

mod reads;

use super::large::LargeCluster;
use super::node::Node;
use super::{Fleet, FleetVerdict};
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ClusterStatus, ServiceResult};
use stele_env::PlantedBug;
use stele_types::ServerId;

/// Servers of a cluster: of five, three are left that reach each other.
const NODES: usize = 5;
const TABLETS: usize = 20;
/// Longest time from the death of a server until its tablets are served. The leader gives up after a session and a half. Then there is an
/// election, and a few rounds wait three seconds each for the former leader.
const FAILOVER_MAX: Duration = Duration::from_secs(45);
/// Longest time until the tablets of the former leader are served by others: a minute of silence, and a failover.
const SILENCE_MAX: Duration = Duration::from_secs(100);
/// Time until the former leader loses the coordinator, and the range of random milliseconds on top: a session before the end of the minute, and less.
const ALMOST: Duration = Duration::from_secs(50);
const ALMOST_MS: u64 = 8_000;
/// Time for which the row of the former leader is read afterwards.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// Longest wait for the status: a leader that is cut off does not answer.
const STATUS_WAIT: Duration = Duration::from_secs(1);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time between the cut and the death.
const BEFORE_MS_MAX: u64 = 20_000;
/// Time with the healed links.
const HEALED: Duration = Duration::from_secs(60);

/// The directions in which bytes between the leader and the others are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// From the leader.
    From,
    /// To the leader.
    To,
    /// Both.
    Both,
}

/// Runs one seed.
pub fn run(seed: u64, cut: Cut, planted: Option<PlantedBug>, prints: bool) -> FleetVerdict {
    super::simulate((seed, prints), (None, planted), |fleet| live(fleet, cut))
}

async fn live(fleet: Arc<Fleet>, cut: Cut) -> Result<(), String> {
    let cluster = LargeCluster::start(fleet.clone(), NODES, None).await?;
    cluster.create_table(0, TABLETS).await?;
    cluster.served_without(&[], TABLETS).await?;
    let running = cluster.nodes.running();
    let status = status(&fleet, &running).await.ok_or("no status")?;
    let leader = status.leader;
    let (leading, others): (Vec<_>, Vec<_>) = running.into_iter().partition(|node| node.number == leader);
    let [leading] = &leading[..] else {
        return Err("one server leads".to_owned());
    };
    for other in &others {
        let (from, to) = (leading.process.id(), other.process.id());
        if cut != Cut::To {
            fleet.sim.network().cut(from, to);
        }
        if cut != Cut::From {
            fleet.sim.network().cut(to, from);
        }
    }
    fleet.sim.note(&format!("leader {leader} is cut off: {cut:?}"));
    let own = status.tablets.iter().find(|tablet| tablet.owner == Some(leader));
    let row = [&own.ok_or("the leader has no tablet")?.start[..], b"+"].concat();
    tokio::select! {
        biased;
        () = reads::watch(&fleet, leading, &others, row.into()) => {}
        done = fail_over(&fleet, leading, others.clone()) => {
            let dead = done?;
            fleet.sim.network().heal();
            leading.link.set_cut(false);
            fleet.env.sleep(HEALED).await;
            return cluster.served_without(&[dead, leader], TABLETS).await;
        }
    }
    Err("the row is watched until the end".to_owned())
}

/// Kills one of the servers that are not cut off, and waits until the rest serve all tablets; the number of the dead one.
async fn fail_over(fleet: &Fleet, former: &Node, mut others: Vec<Arc<Node>>) -> Result<ServerId, String> {
    let leader = former.number;
    fleet.env.sleep(Duration::from_millis(fleet.below(BEFORE_MS_MAX))).await;
    let dead = others.swap_remove(fleet.below(others.len() as u64) as usize);
    let (dead, killed) = (dead.number, {
        dead.process.kill();
        fleet.env.now()
    });
    fleet.sim.note(&format!("server {dead} is killed"));
    // For a while the former leader keeps its own tablets, which the others do not reach.
    served_by_others(fleet, &others, (leader, dead), killed + FAILOVER_MAX).await?;
    fleet.verdict.lock().failovers += 1;
    // Just before it is given up it loses the coordinator, too, so that it does not learn of that.
    fleet
        .env
        .sleep(ALMOST + Duration::from_millis(fleet.below(ALMOST_MS)))
        .await;
    former.link.set_cut(true);
    served_by_others(fleet, &others, (leader, leader), killed + SILENCE_MAX).await?;
    // It may still trust its session.
    fleet.env.sleep(AFTERWARDS).await;
    Ok(dead)
}

/// Waits until another server leads than the former leader, and others serve the tablets of one server.
async fn served_by_others(
    fleet: &Fleet,
    others: &[Arc<Node>],
    (leader, former): (ServerId, ServerId),
    until: Duration,
) -> Result<(), String> {
    let is_done = |status: &ClusterStatus| {
        let mut tablets = status.tablets.iter();
        let served =
            tablets.all(|tablet| tablet.owner != Some(former) && (tablet.serves || tablet.owner == Some(leader)));
        status.leader != leader && served
    };
    while !status(fleet, others).await.is_some_and(|status| is_done(&status)) {
        if fleet.env.now() > until {
            return Err(format!("tablets of server {former} are not served after {until:?}"));
        }
        fleet.env.sleep(PAUSE).await;
    }
    fleet.sim.note(&format!("others serve the tablets of server {former}"));
    Ok(())
}

/// The status by the first of some servers that knows it.
async fn status(fleet: &Fleet, nodes: &[Arc<Node>]) -> Option<ClusterStatus> {
    for node in nodes {
        let admin = node.admin.clone();
        let asked = node.call(&fleet.env, async move { admin.cluster_status().await });
        let answer: Result<Result<ServiceResult<ClusterStatus>, _>, _> = fleet.env.timeout(STATUS_WAIT, asked).await;
        if let Ok(Ok(Ok(status))) = answer {
            return Some(status);
        }
    }
    None
}
