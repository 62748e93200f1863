//! Times of a large cluster after failures.
//!
//! How long a leader is missing, and for how long the tablets of a dead server are not served.
//!
//! Times are virtual. They count the delays of the coordinator, of the bucket and of the network, and the number of steps of all
//! servers together, but not the work within a step.

use super::node::Node;
use super::nodes::Nodes;
use super::{Fleet, table_name};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ClusterStatus, NewFamily, NewTable, ServiceResult, TableAdmin};
use stele_coord::{Coord, EmbeddedCoord};
use stele_storage::memory::MemoryStorage;
use stele_types::{Compression, DeleteRule, Deletes, ErrorKind, ServerId, TableName, TimeUnit, ValueType};

/// Steps of a run: more than any cluster needs that fits into memory.
const STEPS_MAX: u64 = 100_000_000_000;
/// Attempts at something that succeeds some time later.
const ATTEMPTS_MAX: u32 = 3_000;
/// Pause between two checks of the cluster: the error of the measured times.
const PAUSE: Duration = Duration::from_millis(100);
/// Time without events, after which servers have nothing left to do.
const CALM: Duration = Duration::from_secs(20);

/// The size of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ScalePlan {
    /// The seed of all randomness.
    pub seed: u64,
    /// Servers.
    pub servers: usize,
    /// Tables.
    pub tables: usize,
    /// Tablets of each table.
    pub tablets: usize,
}

/// Virtual times of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// From the death of the leader until another one answers.
    pub leader_change: Duration,
    /// From the death of a server until all its tablets are served elsewhere.
    pub failover: Duration,
    /// Tablets of that server.
    pub tablets: usize,
    /// Requests to the coordinator between that death and the end, of all servers.
    pub coordinator_requests: u64,
}

/// Builds a cluster, and kills its leader and then another server.
pub fn run(plan: ScalePlan) -> Result<Scale, String> {
    let scale = Arc::new(Mutex::new(Scale::default()));
    let measured = scale.clone();
    let verdict = super::simulate_up_to(STEPS_MAX, (plan.seed, false), (None, None), |fleet| async move {
        *measured.lock() = live(fleet, plan).await?;
        Ok(())
    });
    match verdict.violations.into_iter().next() {
        None => Ok(*scale.lock()),
        Some(violation) => Err(violation),
    }
}

async fn live(fleet: Arc<Fleet>, plan: ScalePlan) -> Result<Scale, String> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), fleet.env.clone()).await;
    let coord: Arc<dyn Coord> = coord.map_err(|error| error.to_string())?;
    let nodes = Nodes::new(fleet.clone());
    while nodes.running().len() < plan.servers {
        nodes.add(Node::start_without_merges(&fleet, coord.clone()).await?);
    }
    let cluster = Cluster { fleet, nodes };
    for table in 0..plan.tables {
        cluster.create_table(table, plan.tablets).await?;
    }
    let all = plan.tables * plan.tablets;
    cluster.served_without(&[], all).await?;
    cluster.fleet.env.sleep(CALM).await;
    let leader = cluster.status().await.map_err(|error| error.to_string())?.leader;
    let leader_change = cluster
        .time_of(leader, |status| status.leader != leader, "a leader")
        .await?;
    cluster.served_without(&[leader], all).await?;
    cluster.fleet.env.sleep(CALM).await;
    let status = cluster.status().await.map_err(|error| error.to_string())?;
    let dead = status.tablets.iter().filter_map(|tablet| tablet.owner);
    let dead = dead
        .into_iter()
        .find(|owner| *owner != status.leader)
        .ok_or("no tablet has an owner")?;
    let tablets = status
        .tablets
        .iter()
        .filter(|tablet| tablet.owner == Some(dead))
        .count();
    let requests = cluster.nodes.coordinator_requests(dead);
    let failover = cluster
        .time_of(dead, |status| is_served(status, &[dead]), "all tablets")
        .await?;
    Ok(Scale {
        leader_change,
        failover,
        tablets,
        coordinator_requests: cluster.nodes.coordinator_requests(dead) - requests,
    })
}

fn is_served(status: &ClusterStatus, dead: &[ServerId]) -> bool {
    let mut tablets = status.tablets.iter();
    tablets.all(|tablet| tablet.serves && tablet.owner.is_some_and(|owner| !dead.contains(&owner)))
}

struct Cluster {
    fleet: Arc<Fleet>,
    nodes: Arc<Nodes>,
}

impl Cluster {
    async fn create_table(&self, number: usize, tablets: usize) -> Result<(), String> {
        let family = NewFamily {
            name: "v".to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Deletes::default(),
            front_end_data: Vec::new(),
        };
        let table = NewTable {
            name: TableName::new(table_name().namespace, format!("t{number:04}")),
            time_unit: TimeUnit::Micros,
            granularity: 1,
            delete_rule: DeleteRule::BySequence,
            durability: None,
            deletion_protection: false,
            automated_backups: None,
            families: vec![family],
            initial_splits: (1..tablets).map(|row| Bytes::from(format!("{row:06}"))).collect(),
            compression: Compression::None,
            front_end_data: Vec::new(),
        };
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let table = table.clone();
            let create = |admin: Arc<dyn TableAdmin>| async move { admin.create_table(table).await };
            match self.nodes.administer(create).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind == ErrorKind::AlreadyExists => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(format!("a table cannot be made: {last}"))
    }

    async fn status(&self) -> ServiceResult<ClusterStatus> {
        let status = |admin: Arc<dyn TableAdmin>| async move { admin.cluster_status().await };
        self.nodes.administer(status).await
    }

    /// Waits until all tablets are served by servers that live.
    async fn served_without(&self, dead: &[ServerId], all: usize) -> Result<(), String> {
        let is_done = |status: &ClusterStatus| status.tablets.len() == all && is_served(status, dead);
        self.wait_for(is_done, "all tablets").await
    }

    /// Kills a server, and waits for the effect; how long that took.
    async fn time_of(
        &self,
        server: ServerId,
        is_over: impl Fn(&ClusterStatus) -> bool,
        of: &str,
    ) -> Result<Duration, String> {
        let running = self.nodes.running();
        let node = running
            .iter()
            .find(|node| node.number == server)
            .ok_or("the server is gone")?;
        let killed = self.fleet.env.now();
        node.process.kill();
        self.wait_for(is_over, of).await?;
        Ok(self.fleet.env.now().saturating_sub(killed))
    }

    async fn wait_for(&self, is_over: impl Fn(&ClusterStatus) -> bool, of: &str) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match self.status().await {
                Ok(status) if is_over(&status) => return Ok(()),
                Ok(status) => {
                    let open = status.tablets.iter().filter(|tablet| !tablet.serves).count();
                    last = format!("{open} of {} tablets are not served", status.tablets.len());
                }
                Err(error) => last = error.to_string(),
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(format!("the cluster waits for {of}: {last}"))
    }
}
