//! A cluster of many servers and tables, without faults but those that a measurement makes.

use super::node::Node;
use super::nodes::Nodes;
use super::{Fleet, table_name};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ClusterStatus, NewFamily, NewTable, ServiceResult, TableAdmin};
use stele_coord::EmbeddedCoord;
use stele_storage::memory::MemoryStorage;
use stele_types::{Deletes, ErrorKind, ServerId, TableName, ValueType};

/// Steps of a run: more than any cluster needs that fits into memory.
const STEPS_MAX: u64 = 100_000_000_000;
/// Attempts at something that succeeds some time later.
const ATTEMPTS_MAX: u32 = 3_000;
/// Pause between two checks of the cluster: the error of the measured times.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs a measurement; its result.
pub(super) fn measure<T, F>(seed: u64, live: impl FnOnce(Arc<Fleet>) -> F) -> Result<T, String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let measured = Arc::new(Mutex::new(None));
    let slot = measured.clone();
    let verdict = super::simulate_on(super::in_a_bucket, STEPS_MAX, (seed, false), (None, None), |fleet| {
        let live = live(fleet);
        async move {
            *slot.lock() = Some(live.await?);
            Ok(())
        }
    });
    match verdict.violations.into_iter().next() {
        None => measured.lock().take().ok_or_else(|| "there is no result".to_owned()),
        Some(violation) => Err(violation),
    }
}

/// The servers.
pub(super) struct LargeCluster {
    pub(super) fleet: Arc<Fleet>,
    pub(super) nodes: Arc<Nodes>,
}

impl LargeCluster {
    /// Starts this many servers, with this much memory each: see [`Node::start_of_many`].
    pub(super) async fn start(fleet: Arc<Fleet>, servers: usize, memory: Option<u64>) -> Result<LargeCluster, String> {
        let coord = EmbeddedCoord::open(MemoryStorage::new(), fleet.env.clone()).await;
        let coord = coord.map_err(|error| error.to_string())?;
        let nodes = Nodes::new(fleet.clone());
        while nodes.running().len() < servers {
            nodes.add(Node::start_of_many(&fleet, coord.clone(), memory).await?);
        }
        Ok(LargeCluster { fleet, nodes })
    }

    /// Creates a table with one family, cut at equal distances.
    pub(super) async fn create_table(&self, number: usize, tablets: usize) -> Result<(), String> {
        let family = NewFamily {
            name: "v".to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Deletes::default(),
            front_end_data: Vec::new(),
        };
        let table = NewTable {
            families: vec![family],
            initial_splits: (1..tablets).map(|row| Bytes::from(format!("{row:06}"))).collect(),
            ..NewTable::new(table_of(number))
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

    pub(super) async fn status(&self) -> ServiceResult<ClusterStatus> {
        let status = |admin: Arc<dyn TableAdmin>| async move { admin.cluster_status().await };
        self.nodes.administer(status).await
    }

    /// Waits until all tablets are served by servers that live.
    pub(super) async fn served_without(&self, dead: &[ServerId], all: usize) -> Result<(), String> {
        let is_done = |status: &ClusterStatus| status.tablets.len() == all && is_served(status, dead);
        self.wait_for(is_done, "all tablets").await
    }

    /// Kills a server, and waits for the effect; how long that took.
    pub(super) async fn time_of(
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

/// Whether servers that live serve all tablets.
pub(super) fn is_served(status: &ClusterStatus, dead: &[ServerId]) -> bool {
    let mut tablets = status.tablets.iter();
    tablets.all(|tablet| tablet.serves && tablet.owner.is_some_and(|owner| !dead.contains(&owner)))
}

/// The name of a table.
pub(super) fn table_of(number: usize) -> TableName {
    TableName::new(table_name().namespace, format!("t{number:04}"))
}
