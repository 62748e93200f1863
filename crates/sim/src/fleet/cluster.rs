//! Servers that form a cluster by themselves, with an elected leader.
//!
//! They share a coordinator and storage, a bucket or HDFS, and have a network between them.
//!
//! The driver only harms: it kills servers, pauses them longer than their sessions, cuts links in one or both directions, cuts the power
//! of all, and has the storage fail. It also moves tablets, drains servers, splits tablets and changes the table. A keeper takes snapshots
//! meanwhile, and makes tables of them; in other runs an archivist makes backups at a destination. At the end, when all faults are over, every tablet must be served and every row be as
//! the clients know it.

use super::backups::Archivist;
use super::clients::Clients;
use super::node::{Node, SWEEP};
use super::nodes::Nodes;
use super::operator;
use super::snapshots::Keeper;
use super::{CLIENTS, Fleet, FleetVerdict, LETTERS, STEPS_MAX, table_name};
use crate::backend::network_faults;
use crate::network::NetworkFaults;
use crate::requests::Network;
use crate::shared::SharedStorage;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ClusterStatus, FamilyChange, NewFamily, NewTable, ServiceResult, TableAdmin};
use stele_coord::{Coord, EmbeddedCoord};
use stele_env::{PlantedBug, Priority};
use stele_storage::memory::MemoryStorage;
use stele_types::{Deletes, ValueType};

/// Servers that the driver keeps running.
const NODES: usize = 3;
/// Harms of a run.
const ACTIONS_MIN: u64 = 6;
const ACTIONS_MAX: u64 = 14;
/// Longest pause of a process: twice as long as a session.
const STILL_MS_MAX: u64 = 20_000;
/// A long one: files that the process may still refer to are deleted meanwhile.
const LONG_STILL_MS: std::ops::Range<u64> = 60_000..150_000;
/// One pause in this many is long.
const LONG_STILL_ONE_IN: u64 = 4;
/// Time without the coordinator: longer than a session, so that others take the tablets.
const ISOLATED_MS: std::ops::Range<u64> = 12_000..30_000;
/// Longest time for which a link is cut.
const CUT_MS_MAX: u64 = 15_000;
/// Attempts at something that succeeds once the faults are over.
const ATTEMPTS_MAX: u32 = 100;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_secs(1);

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlan {
    /// The seed of all randomness.
    pub seed: u64,
    /// A bug that the run shall find: one of [`PlantedBug::OF_CLUSTERS`].
    pub planted: Option<PlantedBug>,
    /// Print all events.
    pub prints: bool,
    /// The copies that are made meanwhile.
    pub copies: Copies,
    /// Whether the servers share HDFS, and not a bucket.
    pub on_hdfs: bool,
}

/// The copies of the table in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Snapshots, and tables made of them.
    Snapshots,
    /// Backups.
    Backups,
    /// Backups, and restores to moments behind them. Wall clocks of servers differ.
    Archive,
}

/// Runs one seed.
pub fn run(plan: ClusterPlan) -> FleetVerdict {
    let storage = match plan.on_hdfs {
        true => super::in_hdfs,
        false => super::in_a_bucket,
    };
    let live = |fleet| live(fleet, plan.copies);
    super::simulate_on(storage, STEPS_MAX, (plan.seed, plan.prints), (None, plan.planted), live)
}

/// Makes copies of the table.
enum Copyist {
    Snapshots(Keeper),
    Backups(Archivist),
}

impl Copyist {
    async fn keep(&self) {
        match self {
            Copyist::Snapshots(keeper) => keeper.keep().await,
            Copyist::Backups(archivist) => archivist.keep().await,
        }
    }

    async fn check_everything(&self) {
        match self {
            Copyist::Snapshots(keeper) => keeper.check_everything().await,
            Copyist::Backups(archivist) => archivist.check_everything().await,
        }
    }
}

async fn live(fleet: Arc<Fleet>, copies: Copies) -> Result<(), String> {
    let env = fleet.env.clone();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let coord = coord.map_err(|error| error.to_string())?;
    let nodes = Nodes::new(fleet.clone());
    let driver = Driver {
        fleet: fleet.clone(),
        coord,
        nodes: nodes.clone(),
        archives: copies == Copies::Archive,
        still_until: Mutex::default(),
    };
    driver.fill_up().await?;
    driver.create_table().await?;
    let clients = Clients::new(fleet.clone(), nodes.clone());
    let keeper = Arc::new(match copies {
        Copies::Snapshots => Copyist::Snapshots(Keeper::new(fleet.clone(), nodes, clients.clone())),
        Copies::Backups => Copyist::Backups(Archivist::new(fleet.clone(), nodes, clients.clone())),
        Copies::Archive => Copyist::Backups(Archivist::with_archive(fleet.clone(), nodes, clients.clone())),
    });
    let operations = 100 + env.random_below(60);
    let running = (0..CLIENTS).map(|_| {
        let client = clients.clone().client(operations);
        env.spawn_join(Priority::Foreground, "client", client)
    });
    let running = futures::future::join_all(running);
    let keeping = keeper.clone();
    let keeping = env.spawn_join(Priority::Foreground, "keeper", async move { keeping.keep().await });
    let (harmed, _, _) = futures::future::join3(driver.harm(), running, keeping).await;
    harmed?;
    driver.calm().await?;
    clients.check_everything().await;
    // Files that no tablet needs go, and those of snapshots stay.
    env.sleep(SWEEP.grace + 4 * SWEEP.interval).await;
    keeper.check_everything().await;
    driver.expect_a_check().await;
    Ok(())
}

struct Driver {
    fleet: Arc<Fleet>,
    coord: Arc<dyn Coord>,
    nodes: Arc<Nodes>,
    /// Servers archive their logs.
    archives: bool,
    /// When the last paused process goes on.
    still_until: Mutex<Duration>,
}

impl Driver {
    async fn fill_up(&self) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            if self.nodes.running().len() >= NODES {
                return Ok(());
            }
            let started = match self.archives {
                false => Node::start(&self.fleet, self.coord.clone()).await,
                true => Node::start_archiving(&self.fleet, self.coord.clone()).await,
            };
            match started {
                Ok(node) => {
                    self.fleet.sim.note(&format!("server {} has joined", node.number));
                    self.nodes.add(node);
                }
                Err(why) => self.fleet.sim.note(&why),
            }
        }
        Err("no server starts".to_owned())
    }

    async fn create_table(&self) -> Result<(), String> {
        let family = |name: &str| NewFamily {
            name: name.to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Deletes::default(),
            front_end_data: Vec::new(),
        };
        let table = NewTable {
            families: vec![family("v"), family("c")],
            // Small tablets, more than two for each server, so that some are merged.
            initial_splits: (LETTERS[1..].iter())
                .flat_map(|letter| [(*letter).to_owned(), format!("{letter}n")])
                .map(Bytes::from)
                .collect(),
            ..NewTable::new(table_name())
        };
        for _ in 0..ATTEMPTS_MAX {
            let table = table.clone();
            let made = self
                .nodes
                .administer(|admin| async move { admin.create_table(table).await })
                .await;
            self.fleet.sim.note(&format!("create table: {:?}", made.as_ref().err()));
            match made {
                Ok(_) => return Ok(()),
                Err(error) if error.kind == stele_types::ErrorKind::AlreadyExists => return Ok(()),
                Err(_) => self.fleet.env.sleep(PAUSE).await,
            }
        }
        Err("no table can be made".to_owned())
    }

    async fn harm(&self) -> Result<(), String> {
        let actions = ACTIONS_MIN + self.fleet.below(ACTIONS_MAX - ACTIONS_MIN);
        // The seeds that find planted bugs are known.
        let harms = if self.fleet.planted.is_some() { 13 } else { 14 };
        for _ in 0..actions {
            let pause = Duration::from_millis(self.fleet.below(6_000));
            self.fleet.env.sleep(pause).await;
            match self.fleet.below(harms) {
                0..2 => self.kill(),
                2..4 => self.isolate(),
                4 => self.pause(),
                5 => self.cut().await,
                6 => self
                    .fleet
                    .shared
                    .requests()
                    .set_network(network_faults(&self.fleet.env)),
                7 => self.disturb(),
                8 | 9 => self.move_some().await,
                10 => self.drain_some().await,
                11 => self.split_some().await,
                12 => self.alter().await,
                _ => self.cut_power(),
            }
            self.fill_up().await?;
        }
        Ok(())
    }

    fn kill(&self) {
        if let Some(node) = self.nodes.any() {
            self.fleet.sim.note(&format!("server {} is killed", node.number));
            node.process.kill();
            self.fleet.kills.lock().push(self.fleet.env.wall_micros());
            self.fleet.verdict.lock().failovers += 1;
        }
    }

    /// The machines of the storage lose power, in half of the cases together with all servers.
    fn cut_power(&self) {
        let with_servers = self.fleet.below(2) == 0;
        self.fleet
            .sim
            .note(&format!("the storage loses power, with all servers {with_servers}"));
        self.fleet.shared.lose_power();
        let lost = if with_servers { self.nodes.running() } else { Vec::new() };
        for node in lost {
            node.process.kill();
            self.fleet.kills.lock().push(self.fleet.env.wall_micros());
            self.fleet.verdict.lock().failovers += 1;
        }
    }

    fn pause(&self) {
        if let Some(node) = self.nodes.any() {
            let still = Duration::from_millis(self.pause_millis());
            self.fleet
                .sim
                .note(&format!("server {} stands still for {still:?}", node.number));
            node.process.stand_still(still);
            let mut until = self.still_until.lock();
            *until = (*until).max(self.fleet.env.now() + still);
            self.fleet.verdict.lock().zombies += 1;
        }
    }

    fn pause_millis(&self) -> u64 {
        // The seeds that find planted bugs are known.
        match self.fleet.planted.is_none() && self.fleet.below(LONG_STILL_ONE_IN) == 0 {
            true => LONG_STILL_MS.start + self.fleet.below(LONG_STILL_MS.end - LONG_STILL_MS.start),
            false => self.fleet.below(STILL_MS_MAX),
        }
    }

    /// Cuts a server off the coordinator for a while, while the others and the clients reach it.
    fn isolate(&self) {
        if let Some(node) = self.nodes.any() {
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
    }

    /// Cuts the link between two servers for a while.
    async fn cut(&self) {
        let (Some(one), Some(other)) = (self.nodes.any(), self.nodes.any()) else {
            return;
        };
        let (from, to) = (one.process.id(), other.process.id());
        if from == to {
            return;
        }
        let both = self.fleet.below(2) == 0;
        self.fleet.sim.note(&format!(
            "link from {} to {} is cut, both ways {both}",
            one.number, other.number
        ));
        self.fleet.sim.network().cut(from, to);
        if both {
            self.fleet.sim.network().cut(to, from);
        }
        let time = Duration::from_millis(self.fleet.below(CUT_MS_MAX));
        self.fleet.env.sleep(time).await;
        self.fleet.sim.network().heal();
    }

    fn disturb(&self) {
        self.fleet.sim.network().set_faults(NetworkFaults {
            delay_max: Duration::from_millis(self.fleet.below(100)),
            reset_one_in: self.fleet.below(2) * 200,
            refuse_one_in: 0,
        });
    }

    async fn status(&self) -> ServiceResult<ClusterStatus> {
        let status = self
            .nodes
            .administer(|admin| async move { admin.cluster_status().await })
            .await?;
        for finding in &status.check.findings {
            self.fleet.violate(format!("the leader's check found: {finding}"));
        }
        Ok(status)
    }

    /// The leader has compared all tablets and files since everything is calm.
    async fn expect_a_check(&self) {
        match self.status().await.map(|status| status.check) {
            Ok(check) if check.tablets > 0 => {}
            other => self
                .fleet
                .violate(format!("the leader has completed no check: {other:?}")),
        }
    }

    async fn administer(&self, what: &str, call: impl AsyncCall) {
        let done = self.nodes.administer(|admin| call.call(admin)).await;
        self.fleet.sim.note(&format!("{what}: {done:?}"));
        if done.is_ok() {
            self.fleet.verdict.lock().moves += 1;
        }
    }

    async fn move_some(&self) {
        let (Ok(status), Some(to)) = (self.status().await, self.nodes.any()) else {
            return;
        };
        let count = status.tablets.len() as u64;
        let Some(tablet) = status.tablets.get(self.fleet.below(count.max(1)) as usize) else {
            return;
        };
        let (tablet, to) = (tablet.tablet, to.number);
        self.administer("move", move |admin: Arc<dyn TableAdmin>| async move {
            admin.move_tablet(tablet, to).await
        })
        .await;
    }

    async fn drain_some(&self) {
        let Some(node) = self.nodes.any() else { return };
        let (server, drains) = (node.number, self.fleet.below(3) > 0);
        self.administer("drain", move |admin: Arc<dyn TableAdmin>| async move {
            admin.drain_server(server, drains).await
        })
        .await;
        let pause = Duration::from_millis(self.fleet.below(3_000));
        self.fleet.env.sleep(pause).await;
        self.administer("end of drain", move |admin: Arc<dyn TableAdmin>| async move {
            admin.drain_server(server, false).await
        })
        .await;
    }

    async fn split_some(&self) {
        let Ok(status) = self.status().await else { return };
        let count = status.tablets.len() as u64;
        let Some(tablet) = status.tablets.get(self.fleet.below(count.max(1)) as usize) else {
            return;
        };
        let mut row = if tablet.start.is_empty() {
            b"a".to_vec()
        } else {
            tablet.start.clone()
        };
        row.extend_from_slice(b"r1");
        let (tablet, row) = (tablet.tablet, Bytes::from(row));
        self.administer("split", move |admin: Arc<dyn TableAdmin>| async move {
            admin.split(&table_name(), tablet, Some(row)).await.map(drop)
        })
        .await;
    }

    async fn alter(&self) {
        let name = format!("x{}", self.fleet.below(3));
        let change = match self.fleet.below(2) {
            0 => FamilyChange::Drop { name },
            _ => FamilyChange::Create(NewFamily {
                name,
                gc_rule: None,
                value_type: ValueType::Bytes,
                deletes: Deletes::default(),
                front_end_data: Vec::new(),
            }),
        };
        self.administer("alter", move |admin: Arc<dyn TableAdmin>| async move {
            admin.modify_families(&table_name(), vec![change]).await.map(drop)
        })
        .await;
    }

    /// Ends all faults, and waits until every tablet is served. An operator helps when the servers have tried for long.
    async fn calm(&self) -> Result<(), String> {
        self.fleet.shared.requests().set_network(Network::default());
        self.fleet.sim.network().set_faults(NetworkFaults::default());
        self.fleet.sim.network().heal();
        let still_for = self.still_until.lock().saturating_sub(self.fleet.env.now());
        // Processes that go on find everything changed, and have a moment to do harm.
        let pause = Duration::from_secs(60).max(still_for + Duration::from_secs(5));
        self.fleet.env.sleep(pause).await;
        self.fill_up().await?;
        let mut last = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt == ATTEMPTS_MAX / 2
                && let SharedStorage::Hdfs(hdfs) = &self.fleet.shared
            {
                self.fleet.verdict.lock().given_up += operator::give_up_ends(hdfs).await?;
            }
            match self.status().await {
                Ok(status) if status.tablets.iter().all(|tablet| tablet.serves) && !status.tablets.is_empty() => {
                    let own = status
                        .tablets
                        .iter()
                        .filter(|tablet| tablet.table == table_name().to_string());
                    self.fleet.verdict.lock().tablets = own.count();
                    return Ok(());
                }
                Ok(status) => {
                    let waiting = status.tablets.iter().find(|tablet| !tablet.serves);
                    last = format!("{waiting:?}");
                }
                Err(error) => last = error.to_string(),
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(format!("a tablet is not served, although there are no faults: {last}"))
    }
}

/// A call without a result, of any administration.
trait AsyncCall: Send + 'static {
    fn call(self, admin: Arc<dyn TableAdmin>) -> futures::future::BoxFuture<'static, ServiceResult<()>>;
}

impl<C, F> AsyncCall for C
where
    C: FnOnce(Arc<dyn TableAdmin>) -> F + Send + 'static,
    F: Future<Output = ServiceResult<()>> + Send + 'static,
{
    fn call(self, admin: Arc<dyn TableAdmin>) -> futures::future::BoxFuture<'static, ServiceResult<()>> {
        Box::pin(self(admin))
    }
}
