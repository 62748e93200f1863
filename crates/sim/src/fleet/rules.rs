//! Access rules of a cluster whose servers are cut off from the coordinator, and end.
//!
//! Any server takes a change. When it has answered, every server that has contact with the coordinator obeys it. A server that is
//! without the coordinator may go on with the former rules, but not longer than [`RULES_AGE_MAX`]: then it says that it does not know
//! them.

use super::node::Node;
use super::nodes::Nodes;
use super::{Fleet, FleetVerdict};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{AccessAdmin, ServiceResult};
use stele_cluster::RULES_AGE_MAX;
use stele_coord::{Coord, EmbeddedCoord};
use stele_storage::memory::MemoryStorage;
use stele_types::{AccessRule, Member, Resource, Rights, ServerId};

/// Servers that are kept running.
const NODES: usize = 3;
/// Changes of a run.
const CHANGES: u64 = 10;
/// Attempts at something that succeeds once there are enough servers.
const ATTEMPTS_MAX: u32 = 100;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_secs(1);
/// Time without the coordinator: from shorter than a session to longer than rules count.
const ISOLATED_MS: std::ops::Range<u64> = 1_000..100_000;

/// Runs one seed.
pub fn run(seed: u64, prints: bool) -> FleetVerdict {
    super::simulate((seed, prints), (None, None), live)
}

async fn live(fleet: Arc<Fleet>) -> Result<(), String> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), fleet.env.clone()).await;
    let coord = coord.map_err(|error| error.to_string())?;
    let nodes = Nodes::new(fleet.clone());
    let driver = Driver { fleet, coord, nodes };
    for number in 1..=CHANGES {
        driver.fill_up().await?;
        let touched = driver.harm();
        driver.change(number).await?;
        driver.check_untouched(number, &touched).await;
        if driver.fleet.below(2) == 0 {
            driver.fleet.env.sleep(RULES_AGE_MAX).await;
            driver.check_age(number).await;
        }
    }
    Ok(())
}

struct Driver {
    fleet: Arc<Fleet>,
    coord: Arc<dyn Coord>,
    nodes: Arc<Nodes>,
}

/// The rules of a server: the number of the newest change that it obeys, if it knows the rules.
type Obeyed = Option<u64>;

impl Driver {
    async fn fill_up(&self) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            if self.nodes.running().len() >= NODES {
                return Ok(());
            }
            match Node::start_checking_rights(&self.fleet, self.coord.clone()).await {
                Ok(node) => self.nodes.add(node),
                Err(why) => self.fleet.sim.note(&why),
            }
        }
        Err("no server starts".to_owned())
    }

    /// Cuts a server off the coordinator for a while, or ends one. Those that are cut off now.
    fn harm(&self) -> BTreeSet<ServerId> {
        let Some(node) = self.nodes.any() else {
            return BTreeSet::new();
        };
        match self.fleet.below(3) {
            0 => {
                self.fleet.sim.note(&format!("server {} is killed", node.number));
                node.process.kill();
                self.fleet.verdict.lock().failovers += 1;
            }
            1 => {
                let longer = self.fleet.below(ISOLATED_MS.end - ISOLATED_MS.start);
                let time = Duration::from_millis(ISOLATED_MS.start + longer);
                self.fleet
                    .sim
                    .note(&format!("server {} is without a coordinator for {time:?}", node.number));
                node.link.set_cut(true);
                self.fleet.verdict.lock().zombies += 1;
                let (link, env) = (node.link.clone(), self.fleet.env.clone());
                self.fleet.env.spawn("end of isolation", async move {
                    env.sleep(time).await;
                    link.set_cut(false);
                });
            }
            _ => {}
        }
        self.cut_off()
    }

    fn cut_off(&self) -> BTreeSet<ServerId> {
        let running = self.nodes.running();
        let cut = running.iter().filter(|node| node.link.is_cut());
        cut.map(|node| node.number).collect()
    }

    /// Gives a right to the caller `number`, and takes that of all former ones.
    async fn change(&self, number: u64) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(node) = self.nodes.any() {
                let rules = node.rules.clone();
                let rule = AccessRule::whole(Member::User(number.to_string()), Rights::READ);
                let set = async move { rules.set_rules(&Resource::Cluster, vec![rule], None).await };
                let answer: Result<ServiceResult<u64>, _> = node.call(&self.fleet.env, set).await;
                self.fleet
                    .sim
                    .note(&format!("change {number} through server {}: {answer:?}", node.number));
                if let Ok(Ok(_)) = answer {
                    self.fleet.verdict.lock().acknowledged += 1;
                    return Ok(());
                }
            }
            self.fleet.env.sleep(PAUSE).await;
            self.fill_up().await?;
        }
        Err(format!("change {number} of the rules is never made"))
    }

    async fn obeyed(&self) -> Vec<(ServerId, Obeyed)> {
        let mut all = Vec::new();
        for node in self.nodes.running() {
            let rules = node.rules.clone();
            if let Ok(obeyed) = node.call(&self.fleet.env, async move { obeyed_by(&*rules) }).await {
                all.push((node.number, obeyed));
            }
        }
        all
    }

    /// Servers that were never cut off obey a change as soon as it is answered.
    async fn check_untouched(&self, number: u64, touched: &BTreeSet<ServerId>) {
        let since: BTreeSet<ServerId> = touched.union(&self.cut_off()).copied().collect();
        for (server, obeyed) in self.obeyed().await {
            if !since.contains(&server) && obeyed != Some(number) {
                let what = format!("server {server} obeys {obeyed:?} after change {number} was answered");
                self.fleet.violate(what);
            }
        }
    }

    /// No server obeys former rules for longer than it may.
    async fn check_age(&self, number: u64) {
        for (server, obeyed) in self.obeyed().await {
            if obeyed.is_some_and(|obeyed| obeyed != number) {
                let what = format!("server {server} obeys {obeyed:?} a minute after change {number}");
                self.fleet.violate(what);
            }
        }
    }
}

fn obeyed_by(rules: &dyn AccessAdmin) -> Obeyed {
    if !rules.is_current() {
        return None;
    }
    let all = rules.rules();
    let first = all.get(&Resource::Cluster).and_then(|found| found.rules.first());
    match first.map(|rule| &rule.member) {
        Some(Member::User(number)) => number.parse().ok(),
        _ => Some(0),
    }
}
