//! Leaders of a cluster that are cut off from the coordinator, and their successors.
//!
//! Such a leader cannot know that another one leads. It may refuse a call or wait. But it must not answer from its old catalog: a
//! namespace that its successor has made would not exist.

use super::node::Node;
use super::nodes::Nodes;
use super::{Fleet, FleetVerdict};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ServiceResult, TableAdmin};
use stele_coord::election::election_key;
use stele_coord::{Coord, EmbeddedCoord};
use stele_storage::memory::MemoryStorage;
use stele_types::{ErrorKind, ServerId};

/// Servers that run.
const NODES: usize = 3;
/// Leaders of a run.
const TERMS: u64 = 4;
/// Attempts at something that succeeds once there is a leader.
const ATTEMPTS_MAX: u32 = 100;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time between a cut and the call of a client.
const WAIT_MS_MAX: u64 = 5_000;

/// Runs one seed.
pub fn run(seed: u64, prints: bool) -> FleetVerdict {
    super::simulate((seed, prints), (None, None), live)
}

async fn live(fleet: Arc<Fleet>) -> Result<(), String> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), fleet.env.clone()).await;
    let coord: Arc<dyn Coord> = coord.map_err(|error| error.to_string())?;
    let nodes = Nodes::new(fleet.clone());
    for _ in 0..NODES {
        nodes.add(Node::start_answered(&fleet, coord.clone()).await?);
    }
    let driver = Driver { fleet, coord, nodes };
    for term in 1..=TERMS {
        let leader = driver.leader().await?;
        driver.fleet.sim.note(&format!("leader {} is cut off", leader.number));
        leader.link.set_cut(true);
        let (name, successor) = (format!("made-{term}"), driver.successor(leader.number).await?);
        driver.make(&successor, &name).await?;
        let wait = Duration::from_millis(driver.fleet.below(WAIT_MS_MAX));
        driver.fleet.env.sleep(wait).await;
        driver.check(&leader, &name).await;
        leader.process.kill();
        driver.fleet.verdict.lock().failovers += 1;
        driver
            .nodes
            .add(Node::start_answered(&driver.fleet, driver.coord.clone()).await?);
    }
    Ok(())
}

struct Driver {
    fleet: Arc<Fleet>,
    coord: Arc<dyn Coord>,
    nodes: Arc<Nodes>,
}

impl Driver {
    /// The server that leads by the coordinator.
    async fn leader(&self) -> Result<Arc<Node>, String> {
        for _ in 0..ATTEMPTS_MAX {
            let record = self.coord.get(&election_key("leader")).await;
            let record = record.map_err(|error| error.to_string())?;
            let number = record.and_then(|record| std::str::from_utf8(&record.value).ok()?.parse().ok());
            let mut running = self.nodes.running().into_iter();
            if let Some(node) = running.find(|node| Some(node.number.0) == number) {
                return Ok(node);
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err("no server leads".to_owned())
    }

    /// The leader after a server.
    async fn successor(&self, former: ServerId) -> Result<Arc<Node>, String> {
        for _ in 0..ATTEMPTS_MAX {
            let leader = self.leader().await?;
            if leader.number != former {
                return Ok(leader);
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(format!("server {former} leads for ever"))
    }

    async fn make(&self, through: &Node, name: &str) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            let (admin, wanted) = (through.admin.clone(), name.to_owned());
            let made = async move { admin.create_namespace(&wanted, Vec::new()).await };
            let answer = through.call(&self.fleet.env, made).await;
            self.fleet
                .sim
                .note(&format!("{name} through server {}: {answer:?}", through.number));
            let known = |kind: ErrorKind| kind == ErrorKind::AlreadyExists;
            if answer.is_ok_and(|made: ServiceResult<()>| made.map_or_else(|error| known(error.kind), |()| true)) {
                self.fleet.verdict.lock().acknowledged += 1;
                return Ok(());
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(format!("{name} is never made"))
    }

    /// A call to the cut-off server has no answer, or one that knows the namespace.
    async fn check(&self, former: &Node, name: &str) {
        let (admin, wanted): (Arc<dyn TableAdmin>, _) = (former.admin.clone(), name.to_owned());
        let change = async move { admin.update_namespace(&wanted, Bytes::new(), vec![1]).await };
        let answer = former.call(&self.fleet.env, change).await;
        let former = former.number;
        self.fleet
            .sim
            .note(&format!("{name} through server {former}: {answer:?}"));
        if answer.is_ok_and(|changed| changed.is_err_and(|error| error.kind == ErrorKind::NotFound)) {
            let what = format!("server {former}, which led before, says that {name} does not exist");
            self.fleet.violate(what);
        }
    }
}
