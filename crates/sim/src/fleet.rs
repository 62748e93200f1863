//! Several tablet servers that share a bucket or HDFS, without a master.
//!
//! A driver assigns tablets and moves them. It kills servers, pauses them, and declares them dead while they run on.
//!
//! A *member* is one life of a server, a process of the simulated machine. A member that was given up and still runs is a
//! *zombie*. The driver keeps the promises of [`stele_client::assignment`]; a [`FleetBug`] breaks one of them, which the
//! checkers must notice.
//!
//! Clients send puts, deletions, increments, reads and scans through the router, which finds the server of a tablet in the driver's table. A
//! call dies with the process of its server. Other clients write to zombies, which must acknowledge nothing.

mod backups;
mod clients;
pub mod clocks;
pub mod cluster;
mod coordinator;
mod driver;
mod host;
pub mod isolated;
mod large;
pub mod leaders;
mod member;
mod node;
mod nodes;
mod operator;
pub mod rules;
pub mod scale;
mod service;
mod snapshots;
pub mod throughput;

use crate::bucket::Bucket;
use crate::hdfs::Hdfs;
use crate::runtime::Sim;
use crate::shared::SharedStorage;
use clients::Clients;
use driver::Driver;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_client::Router;
use stele_coord::EmbeddedCoord;
use stele_env::{Env, PlantedBug, Priority};
use stele_storage::memory::MemoryStorage;
use stele_types::{
    Deletes, Epoch, Family, FamilyId, GroupId, RowRange, ServerId, TableId, TableName, TableSchema, TabletId, ValueType,
};

use member::Member;
use service::Dispatch;

/// The directory of the shared data.
const ROOT: &str = "data";
/// The directory of the destination of backups.
const BACKUPS: &str = "backups";
/// The directory of the archive of logs.
const ARCHIVE: &str = "archive";
/// Streams of the log of a server.
const STREAMS: u32 = 2;
/// Steps of one run; more is a livelock.
const STEPS_MAX: u64 = 20_000_000;
/// Concurrent clients of the router.
const CLIENTS: u64 = 4;
/// First letters of rows, one for each tablet.
const LETTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Puts.
const VALUES: FamilyId = FamilyId(1);
/// Counters.
const COUNTS: FamilyId = FamilyId(2);

/// A promise of the master that the driver breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetBug {
    /// The log of a server that was given up is read without being sealed.
    SkipFence,
    /// A tablet is assigned again under the epoch of its former assignment.
    ReuseEpoch,
    /// A log is deleted when its tablets have new owners, before these have replayed it.
    DropLogEarly,
    /// Files that a server is about to commit, or reads, are swept.
    SweepEarly,
}

impl FleetBug {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, FleetBug); 4] = [
        ("skip-fence", FleetBug::SkipFence),
        ("reuse-epoch", FleetBug::ReuseEpoch),
        ("drop-log-early", FleetBug::DropLogEarly),
        ("sweep-early", FleetBug::SweepEarly),
    ];
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct FleetPlan {
    /// The seed of all randomness.
    pub seed: u64,
    /// A bug that the run shall find.
    pub bug: Option<FleetBug>,
    /// Print all events.
    pub prints: bool,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetVerdict {
    /// The violations; empty is good.
    pub violations: Vec<String>,
    /// Hash of every decision and every result.
    pub trace: u64,
    /// Writes acknowledged, deletions among them.
    pub acknowledged: u64,
    /// Deletions acknowledged.
    pub deletions: u64,
    /// Scans that came to their ends.
    pub scans: u64,
    /// Tablets moved from one running server to another.
    pub moves: u64,
    /// Servers given up.
    pub failovers: u64,
    /// Servers given up that still ran.
    pub zombies: u64,
    /// Writes that zombies were asked for.
    pub zombie_writes: u64,
    /// Files that the sweep deleted.
    pub swept: u64,
    /// Logs deleted.
    pub logs_deleted: u64,
    /// Tables made of snapshots of which every row was compared.
    pub copies: u64,
    /// Tables that were restored to a moment of which every row was compared.
    pub moments: u64,
    /// Deletions of tables that were undone, with all rows.
    pub undeleted: u64,
    /// Tablets of the table at the end, of a cluster that leads itself.
    pub tablets: usize,
    /// Log files whose ends an operator gave up.
    pub given_up: u64,
}

/// Where a tablet is.
#[derive(Clone, Debug)]
struct Place {
    server: ServerId,
    epoch: Epoch,
    /// The logs that its next owner has to replay, without that of `server`.
    logs: BTreeSet<ServerId>,
}

/// The driver's table, which the router reads.
#[derive(Default)]
struct Table {
    members: BTreeMap<ServerId, Arc<Member>>,
    /// Given up, and perhaps not sealed yet. Clients go on sending requests to them.
    leaving: BTreeMap<ServerId, Arc<Member>>,
    zombies: BTreeMap<ServerId, Arc<Member>>,
    places: BTreeMap<TabletId, Place>,
    /// The last number that a server or an epoch has got.
    number: u32,
}

/// The parts that driver, clients and dispatch share.
struct Fleet {
    sim: Sim,
    /// The environment of the test itself, which outlives every member.
    env: Env,
    shared: SharedStorage,
    bug: Option<FleetBug>,
    /// A bug in the servers of a cluster.
    planted: Option<PlantedBug>,
    schema: Arc<TableSchema>,
    table: Mutex<Table>,
    verdict: Mutex<FleetVerdict>,
    /// When servers of a cluster were killed, in wall-clock microseconds.
    kills: Mutex<Vec<i64>>,
}

impl Fleet {
    fn below(&self, bound: u64) -> u64 {
        self.env.random_below(bound)
    }

    fn violate(&self, what: String) {
        self.sim.note(&format!("VIOLATION {what}"));
        self.verdict.lock().violations.push(what);
    }

    fn has(&self, bug: FleetBug) -> bool {
        self.bug == Some(bug)
    }

    fn next_number(&self) -> u32 {
        let mut table = self.table.lock();
        table.number += 1;
        table.number
    }

    fn members(&self) -> Vec<Arc<Member>> {
        self.table.lock().members.values().cloned().collect()
    }

    fn some_zombie(&self) -> Option<Arc<Member>> {
        let mut table = self.table.lock();
        table.zombies.retain(|_, member| !member.process.has_ended());
        let count = table.zombies.len() as u64;
        let chosen = (count > 0).then(|| self.env.random_below(count) as usize)?;
        table.zombies.values().nth(chosen).cloned()
    }
}

/// Runs one seed.
pub fn run(plan: FleetPlan) -> FleetVerdict {
    simulate((plan.seed, plan.prints), (plan.bug, None), live)
}

/// Runs a fleet with these bugs to its end.
fn simulate<F>(
    (seed, prints): (u64, bool),
    (bug, planted): (Option<FleetBug>, Option<PlantedBug>),
    live: impl FnOnce(Arc<Fleet>) -> F,
) -> FleetVerdict
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    simulate_on(in_a_bucket, STEPS_MAX, (seed, prints), (bug, planted), live)
}

/// An empty bucket.
fn in_a_bucket(env: Env) -> SharedStorage {
    SharedStorage::Bucket(Bucket::new(env))
}

/// An empty HDFS.
fn in_hdfs(env: Env) -> SharedStorage {
    SharedStorage::Hdfs(Hdfs::new(env))
}

/// The same on a storage, with a bound of its own for the steps.
fn simulate_on<F>(
    storage: fn(Env) -> SharedStorage,
    steps_max: u64,
    (seed, prints): (u64, bool),
    (bug, planted): (Option<FleetBug>, Option<PlantedBug>),
    live: impl FnOnce(Arc<Fleet>) -> F,
) -> FleetVerdict
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let sim = Sim::new(seed, steps_max);
    if prints {
        sim.print_trace();
    }
    let env = sim.process().env();
    let fleet = Arc::new(Fleet {
        shared: storage(sim.process().env()),
        env,
        bug,
        planted,
        schema: Arc::new(schema()),
        table: Mutex::default(),
        verdict: Mutex::default(),
        kills: Mutex::default(),
        sim: sim.clone(),
    });
    match sim.run(live(fleet.clone())) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => fleet.violate(why),
        Err(stalled) => fleet.violate(stalled.to_string()),
    }
    let mut verdict = fleet.verdict.lock().clone();
    verdict.trace = sim.trace_hash();
    verdict
}

async fn live(fleet: Arc<Fleet>) -> Result<(), String> {
    let env = fleet.env.clone();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let catalog = Catalog::load(coord.map_err(|e| e.to_string())?).await;
    let catalog = Arc::new(catalog.map_err(|e| e.to_string())?);
    let mut driver = Driver::new(fleet.clone());
    driver.begin().await?;
    let made = catalog.create_table(TableSchema::clone(&fleet.schema), ranges()).await;
    made.map_err(|e| e.to_string())?;
    let router = Arc::new(Router::new(
        env.clone(),
        catalog,
        Arc::new(Dispatch::new(fleet.clone())),
    ));
    let clients = Clients::new(fleet.clone(), router);
    let operations = 60 + env.random_below(80);
    let running = (0..CLIENTS).map(|_| {
        let client = clients.clone().client(operations);
        env.spawn_join(Priority::Foreground, "client", client)
    });
    let running = futures::future::join_all(running);
    let haunting = env.spawn_join(Priority::Foreground, "zombie client", clients.clone().haunt());
    let driving = async {
        let (driven, _) = futures::future::join(driver.drive(), running).await;
        let calmed = match driven {
            Ok(()) => driver.calm().await,
            failed => failed,
        };
        clients.stop();
        calmed
    };
    let (driven, _) = futures::future::join(driving, haunting).await;
    driven?;
    clients.check_everything().await;
    driver.check_files().await
}

fn table_name() -> TableName {
    TableName::new("sim", "fleet")
}

fn ranges() -> Vec<(TabletId, RowRange)> {
    let bound = |at: usize| {
        LETTERS
            .get(at)
            .map(|letter| bytes::Bytes::from_static(letter.as_bytes()))
    };
    let range = |at: usize| RowRange {
        start: if at == 0 {
            bytes::Bytes::new()
        } else {
            bound(at).unwrap_or_default()
        },
        end: bound(at + 1),
    };
    (0..LETTERS.len())
        .map(|at| (TabletId(at as u64 + 1), range(at)))
        .collect()
}

fn schema() -> TableSchema {
    let family = |name: &str| Family {
        name: name.to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        group: GroupId(0),
        deletes: Deletes::default(),
        front_end_data: Vec::new(),
    };
    TableSchema {
        families: BTreeMap::from([(VALUES, family("v")), (COUNTS, family("c"))]),
        next_family: FamilyId(3),
        ..TableSchema::new(TableId(1), table_name())
    }
}
