//! The throughput of a cluster by its number of servers, on one core.
//!
//! Each server has a processor of its own in virtual time, which takes as long for a step as this machine really took. Clients take
//! no time, and ask the server that has the row. There is no front end: requests begin at the service interface. So the measurement
//! finds work that grows with the number of servers, and servers that wait for each other; it cannot find the limits of a network.
//! Servers share the caches of one core, to the disadvantage of large clusters.

use super::large::{self, LargeCluster, table_of};
use super::node::Node;
use super::{Fleet, VALUES};
use crate::network::NetworkFaults;
use crate::requests::Network;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, ServiceResult};
use stele_env::Priority;
use stele_types::{ErrorKind, Mutation, RowMutation, RowRange, RowSet, ServerId, Timestamp};

/// Memory of a server: enough that no row is read from the bucket.
const MEMORY: u64 = 512 << 20;
/// Tablets of a server.
const TABLETS: usize = 16;
/// Rows of a tablet: few, so that the rows of all servers are in the caches of the one processor that they share.
const ROWS: u64 = 50;
/// Bytes of a value.
const VALUE_BYTES: usize = 1_000;
/// The bucket and the network are as fast as in one data centre.
const WAY: (Duration, Duration) = (Duration::from_micros(200), Duration::from_micros(300));
/// Longest delay of a part between two servers.
const DELAY_MAX: Duration = Duration::from_micros(100);
/// Virtual time with requests before the measurement.
const WARM_UP: Duration = Duration::from_millis(200);
/// Time without requests, after which tablets are balanced and flushed.
const CALM: Duration = Duration::from_secs(30);

/// The requests of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Reads of one row.
    Reads,
    /// Writes of one row.
    Writes,
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub struct ThroughputPlan {
    /// The seed of all randomness.
    pub seed: u64,
    /// Servers.
    pub servers: usize,
    /// Concurrent callers for each server.
    pub callers: usize,
    /// The requests.
    pub load: Load,
    /// Virtual time of the measurement.
    pub time: Duration,
}

/// Its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Requests in a virtual second, of all callers.
    pub per_second: f64,
    /// Requests in a second of work, of all servers.
    pub per_work_second: f64,
    /// The share of time for which the least and the most occupied processor worked.
    pub occupied: (f64, f64),
    /// Tablets of the servers with the fewest and with the most.
    pub tablets: (usize, usize),
}

/// Loads a cluster, and measures it.
pub fn run(plan: ThroughputPlan) -> Result<Throughput, String> {
    large::measure(plan.seed, |fleet| live(fleet, plan))
}

async fn live(fleet: Arc<Fleet>, plan: ThroughputPlan) -> Result<Throughput, String> {
    fleet.shared.requests().set_network(Network {
        way: WAY,
        ..Network::default()
    });
    fleet.sim.network().set_faults(NetworkFaults {
        delay_max: DELAY_MAX,
        ..NetworkFaults::default()
    });
    let cluster = LargeCluster::start(fleet, plan.servers, Some(MEMORY)).await?;
    let tablets = plan.servers * TABLETS;
    cluster.create_table(0, tablets).await?;
    cluster.served_without(&[], tablets).await?;
    cluster.fleet.env.sleep(CALM).await;
    let callers = Callers::new(&cluster, plan, tablets).await?;
    callers.load().await?;
    cluster.fleet.env.sleep(CALM).await;
    callers.measure().await
}

/// The callers of all servers.
struct Callers {
    fleet: Arc<Fleet>,
    plan: ThroughputPlan,
    nodes: Vec<Arc<Node>>,
    /// For each tablet, in the order of rows, which of the nodes serves it.
    owners: Vec<usize>,
    answered: AtomicU64,
}

impl Callers {
    async fn new(cluster: &LargeCluster, plan: ThroughputPlan, tablets: usize) -> Result<Arc<Callers>, String> {
        let status = cluster.status().await.map_err(|error| error.to_string())?;
        let nodes = cluster.nodes.running();
        let numbers: BTreeMap<ServerId, usize> = nodes.iter().map(|node| node.number).zip(0..).collect();
        let mut by_start: Vec<_> = status
            .tablets
            .iter()
            .filter_map(|tablet| Some((tablet.start.clone(), *numbers.get(&tablet.owner?)?)))
            .collect();
        by_start.sort();
        if by_start.len() != tablets {
            return Err(format!("{} of {tablets} tablets are served", by_start.len()));
        }
        Ok(Arc::new(Callers {
            fleet: cluster.fleet.clone(),
            plan,
            nodes,
            owners: by_start.into_iter().map(|(_, owner)| owner).collect(),
            answered: AtomicU64::new(0),
        }))
    }

    /// Writes every row once.
    async fn load(&self) -> Result<(), String> {
        for (tablet, owner) in self.owners.iter().enumerate() {
            let rows = (0..ROWS).map(|row| put(&row_of(tablet, row))).collect();
            let written = self.write(*owner, rows).await;
            written.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Has all callers go on until the end, and counts the answers after the warm-up.
    async fn measure(self: &Arc<Self>) -> Result<Throughput, String> {
        let env = &self.fleet.env;
        let until = env.now() + WARM_UP + self.plan.time;
        let callers = (0..self.plan.servers * self.plan.callers).map(|_| {
            let callers = self.clone();
            env.spawn_join(Priority::Foreground, "caller", callers.call_until(until))
        });
        let callers = futures::future::join_all(callers);
        let watch = async {
            env.sleep(WARM_UP).await;
            let (before, worked) = (self.answered.load(Ordering::Relaxed), self.worked());
            env.sleep(self.plan.time).await;
            let after = self.answered.load(Ordering::Relaxed);
            let worked: Vec<f64> = self
                .worked()
                .iter()
                .zip(worked)
                .map(|(after, before)| (*after - before).as_secs_f64())
                .collect();
            (after - before, worked)
        };
        let (ended, (answered, worked)) = futures::future::join(callers, watch).await;
        for ended in ended {
            ended.map_err(|_| "a caller ended early")??;
        }
        let time = self.plan.time.as_secs_f64();
        let occupied = worked.iter().map(|worked| worked / time);
        let of = |node: usize| self.owners.iter().filter(|owner| **owner == node).count();
        let tablets = (0..self.nodes.len()).map(of);
        Ok(Throughput {
            tablets: (tablets.clone().min().unwrap_or(0), tablets.max().unwrap_or(0)),
            per_second: answered as f64 / time,
            per_work_second: answered as f64 / worked.iter().sum::<f64>(),
            occupied: (
                occupied.clone().fold(f64::INFINITY, f64::min),
                occupied.fold(0.0, f64::max),
            ),
        })
    }

    fn worked(&self) -> Vec<Duration> {
        self.nodes.iter().map(|node| node.process.worked()).collect()
    }

    async fn call_until(self: Arc<Self>, until: Duration) -> Result<(), String> {
        while self.fleet.env.now() < until {
            let tablet = self.fleet.below(self.owners.len() as u64) as usize;
            let row = row_of(tablet, self.fleet.below(ROWS));
            let node = self.owners[tablet];
            let answer = match self.plan.load {
                Load::Reads => self.read(node, &row).await,
                Load::Writes => self.write(node, vec![put(&row)]).await,
            };
            answer.map_err(|error| error.to_string())?;
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn write(&self, node: usize, rows: Vec<RowMutation>) -> ServiceResult<()> {
        let node = &self.nodes[node];
        let request = MutateRows {
            id: None,
            table: table_of(0),
            rows: rows.into(),
            durability: None,
        };
        let service = node.service.clone();
        let write = async move { service.mutate_rows(request).await };
        let results = node.call(&self.fleet.env, write).await??;
        results.into_iter().collect()
    }

    async fn read(&self, node: usize, row: &Bytes) -> ServiceResult<()> {
        let node = &self.nodes[node];
        let request = ReadRows::new(table_of(0), RowSet::new(vec![RowRange::single(row)]));
        let service = node.service.clone();
        let read = async move {
            let mut stream = service.read_rows(request).await?;
            let mut cells = 0;
            while let Some(batch) = stream.next().await? {
                cells += batch.into_cells().len();
            }
            Ok::<usize, ServiceError>(cells)
        };
        match node.call(&self.fleet.env, read).await?? {
            0 => Err(ServiceError::new(ErrorKind::Internal, "a loaded row is missing")),
            _ => Ok(()),
        }
    }
}

fn row_of(tablet: usize, row: u64) -> Bytes {
    Bytes::from(format!("{tablet:06}/{row:05}"))
}

fn put(row: &Bytes) -> RowMutation {
    RowMutation {
        row: row.clone(),
        mutations: vec![Mutation::Put {
            family: VALUES,
            qualifier: Bytes::new(),
            timestamp: Timestamp(1),
            value: vec![b'v'; VALUE_BYTES].into(),
        }],
    }
}
