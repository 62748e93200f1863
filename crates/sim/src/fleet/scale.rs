//! Times of a large cluster after failures.
//!
//! How long a leader is missing, and for how long the tablets of a dead server are not served.
//!
//! Times are virtual. They count the delays of the coordinator, of the bucket and of the network, and the number of steps of all
//! servers together, but not the work within a step. The coordinator answers within 20 ms, the bucket within 2 to 40.

use super::Fleet;
use super::large::{self, LargeCluster, is_served};
use std::sync::Arc;
use std::time::Duration;

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
    large::measure(plan.seed, |fleet| live(fleet, plan))
}

async fn live(fleet: Arc<Fleet>, plan: ScalePlan) -> Result<Scale, String> {
    let cluster = LargeCluster::start(fleet, plan.servers, None).await?;
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
