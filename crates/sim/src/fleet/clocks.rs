//! Writes without timestamps to a tablet that moves between servers whose wall clocks differ.
//!
//! The owner gives such a write its time. Of two writes one after the other, a read must find the second, also when
//! the tablet has moved between them.

use super::large::{LargeCluster, table_of};
use super::node::{Node, SKEW_MICROS_MAX};
use super::nodes::Nodes;
use super::{Fleet, FleetVerdict, VALUES};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, ServiceResult, TableAdmin, TableService};
use stele_coord::{Coord, EmbeddedCoord};
use stele_storage::memory::MemoryStorage;
use stele_types::{ErrorKind, Mutation, RowMutation, RowRange, RowSet, RowWrites, ServerTime, Timestamp};

/// Servers that are kept running.
const NODES: usize = 3;
/// Writes of a run.
const WRITES: u64 = 200;
/// Attempts at something that succeeds once the tablet is served.
const ATTEMPTS_MAX: u32 = 100;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two writes.
const PAUSE_MS_MAX: u64 = 60;
/// The table of the run, of one tablet.
const TABLE: usize = 1;
const ROW: &[u8] = b"row";

/// Runs one seed.
pub fn run(seed: u64, prints: bool) -> FleetVerdict {
    super::simulate((seed, prints), (None, None), live)
}

async fn live(fleet: Arc<Fleet>) -> Result<(), String> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), fleet.env.clone()).await;
    let coord = coord.map_err(|error| error.to_string())?;
    let nodes = Nodes::new(fleet.clone());
    let driver = Driver { fleet, coord, nodes };
    driver.fill_up().await?;
    let cluster = LargeCluster {
        fleet: driver.fleet.clone(),
        nodes: driver.nodes.clone(),
    };
    cluster.create_table(TABLE, 1).await?;
    for number in 1..=WRITES {
        driver.harm(&cluster).await?;
        driver.write(number).await?;
        driver.check(number).await?;
        let pause = Duration::from_millis(driver.fleet.below(PAUSE_MS_MAX));
        driver.fleet.env.sleep(pause).await;
    }
    Ok(())
}

struct Driver {
    fleet: Arc<Fleet>,
    coord: Arc<dyn Coord>,
    nodes: Arc<Nodes>,
}

impl Driver {
    async fn fill_up(&self) -> Result<(), String> {
        while self.nodes.running().len() < NODES {
            let skew = self.fleet.below(2 * SKEW_MICROS_MAX as u64) as i64 - SKEW_MICROS_MAX;
            self.nodes
                .add(Node::start_skewed(&self.fleet, self.coord.clone(), skew).await?);
        }
        Ok(())
    }

    /// Has the tablet move, or kills a server, or neither.
    async fn harm(&self, cluster: &LargeCluster) -> Result<(), String> {
        match self.fleet.below(40) {
            0 => {
                let node = self.nodes.any().ok_or("no server runs")?;
                self.fleet.sim.note(&format!("server {} is killed", node.number));
                node.process.kill();
                self.fleet.verdict.lock().failovers += 1;
                self.fill_up().await
            }
            1..6 => {
                let (Ok(status), Some(to)) = (cluster.status().await, self.nodes.any()) else {
                    return Ok(());
                };
                let (tablet, to) = (status.tablets.first().ok_or("there is no tablet")?.tablet, to.number);
                let (fleet, nodes) = (self.fleet.clone(), self.nodes.clone());
                // Writes go on meanwhile.
                self.fleet.env.spawn("move", async move {
                    let moved = |admin: Arc<dyn TableAdmin>| async move { admin.move_tablet(tablet, to).await };
                    let moved = nodes.administer(moved).await;
                    fleet.sim.note(&format!("move to server {to}: {moved:?}"));
                    fleet.verdict.lock().moves += u64::from(moved.is_ok());
                });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the number, through any server.
    async fn write(&self, number: u64) -> Result<(), String> {
        self.succeed("write", || async {
            let called = self.nodes.any();
            let called = called.ok_or_else(|| ServiceError::new(ErrorKind::Unavailable, "no server runs"))?;
            let at = Timestamp(called.wall_micros());
            let put = Mutation::Put {
                family: VALUES,
                qualifier: Bytes::new(),
                timestamp: at,
                value: Bytes::copy_from_slice(&number.to_be_bytes()),
            };
            let row = RowMutation {
                row: Bytes::from_static(ROW),
                mutations: vec![put],
            };
            let time = ServerTime { at, is_foreign: false };
            let request = MutateRows {
                id: None,
                table: table_of(TABLE),
                rows: RowWrites::from(vec![row]).with_server_time(Some(time)),
                durability: None,
            };
            let service = called.service.clone();
            let written = async move { service.mutate_rows(request).await };
            let results = called.call(&self.fleet.env, written).await??;
            results.into_iter().collect::<ServiceResult<()>>()
        })
        .await?;
        self.fleet.sim.note(&format!("{number} is written"));
        self.fleet.verdict.lock().acknowledged += 1;
        Ok(())
    }

    /// The newest cell is the last that was written.
    async fn check(&self, number: u64) -> Result<(), String> {
        let found = self
            .succeed("read", || async {
                let request = ReadRows::new(
                    table_of(TABLE),
                    RowSet::new(vec![RowRange::single(&Bytes::from_static(ROW))]),
                );
                let mut stream = self.nodes.read_rows(request).await?;
                let batch = stream.next().await?;
                Ok(batch.and_then(|batch| batch.into_cells().into_iter().next()))
            })
            .await?;
        let value = found.as_ref().map(|cell| cell.value.as_ref().to_vec());
        if value.as_deref() != Some(&number.to_be_bytes()) {
            let what = format!("a read after write {number} finds {found:?}: an earlier write has the later time");
            self.fleet.violate(what);
        }
        Ok(())
    }

    async fn succeed<T, F>(&self, what: &str, call: impl Fn() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match call().await {
                Ok(done) => return Ok(done),
                Err(error) => last = error.to_string(),
            }
            self.fleet.sim.note(&format!("{what}: {last}"));
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(format!("no {what} succeeds: {last}"))
    }
}
