//! A whole server on a medium that fails: started, killed, cut from its power, replaced, started again.
//!
//! A *node* is one life of the server: a process of the simulated machine with coordinator, catalog, tablet server, master
//! and router, wired as the binary wires them. The medium outlives it. Whatever a client asks runs as a task of the node's
//! process, so that it dies with the node, and the client learns that the outcome is unknown.
//!
//! Where several servers reach the medium, a node may be *replaced*: the next one starts while it runs on, or stands still for a
//! while. Half of them end when they learn of that, as the binary does; until then clients that did not learn of it either go on asking.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_catalog::Catalog;
use stele_client::Router;
use stele_coord::{EmbeddedCoord, next_epoch_above};
use stele_env::metrics::Metrics;
use stele_env::{Env, PlantedBug, Priority};
use stele_master::Master;
use stele_memory::{Part, Pool};
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tabletserver::{MemoryBudget, MemtableLimits, ServerOptions, TabletServer, last_epoch};
use stele_types::{Durability, Epoch};

use crate::backend::{Backend, Happened};
use crate::runtime::{Process, Sim};

/// One life of the server.
pub struct Node {
    process: Process,
    env: Env,
    /// The waist's data half.
    pub router: Arc<Router>,
    /// The waist's administrative half.
    pub master: Arc<Master>,
    server: Arc<TabletServer>,
    /// Another one has begun to serve since.
    outlived: AtomicBool,
    opening: Opening,
}

/// One attempt to open the medium, of all that there were.
#[derive(Clone, Default)]
struct Opening {
    number: u64,
    newest: Arc<AtomicU64>,
    /// What was wrong with those that say they were replaced.
    alarms: Arc<Mutex<Vec<String>>>,
}

impl Opening {
    fn next(&self) -> Opening {
        Opening {
            number: self.newest.fetch_add(1, Ordering::Relaxed) + 1,
            ..self.clone()
        }
    }

    /// Nobody has tried to open it since, so nobody can have taken it over.
    fn is_newest(&self) -> bool {
        self.newest.load(Ordering::Relaxed) == self.number
    }
}

/// The machine, its medium, and the node that runs now.
pub struct Cluster {
    sim: Sim,
    /// Of the test itself: outlives every node.
    env: Env,
    planted: Option<PlantedBug>,
    /// The power never goes in this run, and syncs do not fail.
    steady_power: bool,
    /// A life of the server may have more than one log stream.
    several_streams: bool,
    backend: Arc<Backend>,
    node: Mutex<Option<Arc<Node>>>,
    /// Nodes that were replaced and were not killed, oldest first.
    replaced: Mutex<Vec<Arc<Node>>>,
    /// The first, of which all others follow.
    openings: Opening,
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power goes: what was not synced is lost, torn, or there by chance.
    PowerLoss,
    /// `kill -9`: the system keeps what was written.
    Kill,
    /// The server is asked to stop, and does.
    Shutdown,
    /// Another one takes over while it runs. Only where several reach the medium.
    Replaced,
}

/// Longest virtual time a start may take without faults.
const START_MAX: Duration = Duration::from_secs(600);

/// Longest virtual time an orderly end may take without faults, on a disk.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Nodes at most that run beside the one that replaced them.
const REPLACED_MAX: usize = 2;

/// Longest virtual time that a node stands still which is replaced.
const STILL_MAX: Duration = Duration::from_secs(30);

/// Block cache of a simulated server: a few blocks, so that most of them leave it again.
pub const CACHE_BYTES: usize = 32 << 10;

/// The pool of a simulated server: every limit is reached by a few rows.
fn small_pool() -> Pool {
    Pool::with_limits(|part| match part {
        Part::Values | Part::Batches => 64 << 10,
        // The first reservation of a row.
        Part::WriteRows => 2 << 20,
        // Enough for one scan of two runs, and not for another.
        Part::Readahead => 128 << 10,
        // Enough for a few filters.
        Part::BloomFilters => 700,
        // There are no front ends.
        Part::Requests | Part::Responses => 1 << 20,
    })
}

/// Everything small, so that little data makes segments, flushes, compactions and splits.
pub fn options() -> ServerOptions {
    ServerOptions {
        durability: Durability::Sync,
        memory: Some(MemoryBudget {
            interval: Duration::from_millis(20),
            ..MemoryBudget::new(256 << 10)
        }),
        memtables: MemtableLimits::new(64 << 10, 12 << 10),
        row_cache_bytes: 64 << 10,
        log_bytes_max: 48 << 10,
        log_segment_bytes: 6 << 10,
        log_queue_bytes: 64 << 10,
        log_streams: 1,
        tablet_bytes_max: 12 << 10,
        sstable_bytes: 2 << 10,
        value_separate_bytes: 4 << 10,
        catalog_in_doubt: false,
        inherit_from: usize::MAX,
        pool: small_pool(),
        compactions_max: 2,
        job_readahead_bytes: 8 << 10,
        free_bytes_min: 16 << 10,
        admission_wait_max: Duration::from_secs(1),
    }
}

/// The same where everything takes longer.
fn options_at(pace: u32) -> ServerOptions {
    let options = options();
    let slower = |memory: MemoryBudget| MemoryBudget {
        interval: pace * memory.interval,
        ..memory
    };
    ServerOptions {
        memory: options.memory.map(slower),
        ..options
    }
}

impl Cluster {
    /// A machine with an empty medium.
    pub fn new(sim: Sim, planted: Option<PlantedBug>) -> Arc<Cluster> {
        let env = sim.process().env();
        // One in eight: each takes as long as ten on a disk.
        let backend = match env.random_below(8) {
            0 => Backend::bucket(sim.process().env()),
            _ => Backend::disk(env.clone()),
        };
        Arc::new(Cluster {
            // One in four: enough to find what goes wrong only there, and the others have more to go wrong.
            steady_power: env.random_below(4) == 0 && !backend.is_shared(),
            several_streams: env.random_below(3) == 0,
            sim,
            env,
            planted,
            backend: Arc::new(backend),
            node: Mutex::new(None),
            replaced: Mutex::default(),
            openings: Opening::default(),
        })
    }

    /// Whether nothing but the process ends in this run, so that what the system was given survives.
    pub fn power_is_steady(&self) -> bool {
        self.steady_power
    }

    /// Whether a life of the server may have more than one log stream in this run.
    pub fn has_several_streams(&self) -> bool {
        self.several_streams
    }

    /// The environment of the test.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The machine.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Whether several servers reach the medium, so that one may replace another that runs.
    pub fn is_shared(&self) -> bool {
        self.backend.is_shared()
    }

    /// How much longer everything takes than on a disk.
    pub fn pace(&self) -> u32 {
        self.backend.pace()
    }

    /// Chooses what goes wrong from now on.
    pub async fn trouble(&self) {
        self.backend.trouble(&self.env, self.steady_power).await;
    }

    /// Nothing goes wrong from now on.
    pub fn calm(&self) {
        self.backend.calm();
    }

    /// What has gone wrong so far.
    pub fn happened(&self) -> Happened {
        self.backend.happened()
    }

    /// The node that runs now.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().clone()
    }

    /// Servers that took themselves for replaced, and were not.
    pub fn alarms(&self) -> Vec<String> {
        self.openings.alarms.lock().clone()
    }

    /// One that was replaced and still runs, if there is any: what a client asks that has not learned of it.
    pub fn replaced_node(&self) -> Option<Arc<Node>> {
        let mut replaced = self.replaced.lock();
        replaced.retain(|node| !node.process.has_ended());
        let count = replaced.len() as u64;
        (count > 0).then(|| replaced[self.env.random_below(count) as usize].clone())
    }

    /// Ends the node, or lets it run on for another to replace it. Where the medium does not fail, a server that is asked to stop must.
    pub async fn end(&self, end: End) -> Result<(), String> {
        let node = self.node.lock().take();
        self.sim.note(&format!("end {end:?}"));
        if let Some(node) = node {
            if end == End::Replaced {
                self.leave(node);
                return Ok(());
            }
            if end == End::Shutdown {
                let server = node.server.clone();
                let stop = node.env.spawn_join(
                    Priority::Foreground,
                    "shutdown",
                    async move { server.shut_down().await },
                );
                // A medium in trouble may keep it from ending; then somebody kills it.
                let stopped = self.env.timeout(self.pace() * STOP_MAX, stop).await;
                if stopped.is_err() && self.backend.is_calm() {
                    let limit = self.pace() * STOP_MAX;
                    return Err(format!("no end within {limit:?} on a healthy medium"));
                }
            }
            node.process.kill();
        }
        // Now and then whatever went before ends with it, so that nobody runs any more.
        if self.is_shared() && self.env.random_below(2) == 0 {
            self.replaced.lock().drain(..).for_each(|node| node.process.kill());
        }
        self.lose_process(end);
        Ok(())
    }

    /// Lets a node run on that is to be replaced.
    fn leave(&self, node: Arc<Node>) {
        if self.env.random_below(2) == 0 {
            let still = self.env.random_below(STILL_MAX.as_micros() as u64);
            node.process.stand_still(Duration::from_micros(still));
        }
        let mut replaced = self.replaced.lock();
        replaced.push(node);
        let surplus = replaced.len().saturating_sub(REPLACED_MAX);
        let ended: Vec<Arc<Node>> = replaced.drain(..surplus).collect();
        drop(replaced);
        ended.iter().for_each(|node| node.process.kill());
    }

    fn lose_process(&self, end: End) {
        self.backend.lose_process(end == End::PowerLoss && !self.steady_power);
    }

    /// What of the medium looks damaged. No end of a node damages anything: a check that finds something, and a repair that
    /// gives something up, would be wrong.
    pub async fn damage(&self) -> Result<Vec<String>, String> {
        match self.replaced_node() {
            // Who looks while a server works sees files come and go.
            Some(_) => Ok(Vec::new()),
            None => self.backend.damage(self.env.clone()).await,
        }
    }

    /// Starts a node. While the medium fails, a start may fail too, and is tried again on a healthy one, which must do.
    pub async fn start(&self) -> Result<(), String> {
        for attempt in 0.. {
            let process = self.sim.process();
            let mut env = process.env();
            if let Some(bug) = self.planted {
                env = env.with_planted_bug(bug);
            }
            let healthy = self.backend.is_calm();
            let settings = ServerOptions {
                // Of each kind of value; what an earlier process did differently stays.
                value_separate_bytes: [1, 9, 64, 4 << 10][self.env.random_below(4) as usize],
                inherit_from: [0, usize::MAX][self.env.random_below(2) as usize],
                log_streams: match self.several_streams {
                    true => 1 + self.env.random_below(3) as u32,
                    false => 1,
                },
                ..options_at(self.pace())
            };
            let opening = self.openings.next();
            let starting = env.spawn_join(
                Priority::Foreground,
                "start",
                open_on(self.backend.clone(), process.clone(), env.clone(), settings, opening),
            );
            let why = match self.env.timeout(START_MAX, starting).await {
                Ok(Ok(Ok(node))) => {
                    self.sim.note("started");
                    let outlived = |node: &Arc<Node>| node.outlived.store(true, Ordering::Relaxed);
                    self.replaced.lock().iter().for_each(outlived);
                    *self.node.lock() = Some(Arc::new(node));
                    return Ok(());
                }
                Ok(Ok(Err(why))) => why,
                Ok(Err(_)) => "the start was dropped".to_owned(),
                Err(_) => format!("no start within {START_MAX:?}"),
            };
            self.sim.note(&format!("start failed: {why}"));
            process.kill();
            self.lose_process(if attempt % 2 == 0 { End::Kill } else { End::PowerLoss });
            if says_replaced(&why) {
                return Err(format!(
                    "a server that starts and that nobody replaces says it was: {why}"
                ));
            }
            if healthy {
                return Err(format!("the server does not start on a healthy medium: {why}"));
            }
            self.calm();
        }
        Ok(())
    }
}

/// Starts a server on a medium, of which it may have to become the owner. When another one does it ends, or goes on as if it did
/// not learn of it: what keeps it from acknowledging anything must not depend on that.
async fn open_on(
    backend: Arc<Backend>,
    process: Process,
    env: Env,
    options: ServerOptions,
    opening: Opening,
) -> Result<Node, String> {
    let opened = backend.open(env.clone()).await?;
    if let Some(shared) = opened.shared
        && env.random_below(2) == 0
    {
        let (process, opening) = (process.clone(), opening.clone());
        env.spawn("until replaced", async move {
            let by = shared.replaced().await;
            if opening.is_newest() {
                let mut alarms = opening.alarms.lock();
                alarms.push(format!("a server that nobody has replaced ends, because of {by}"));
            }
            process.kill();
        });
    }
    let node = open_node(process, env, opened.storage, options, CACHE_BYTES).await?;
    Ok(Node { opening, ..node })
}

/// Whether these are the words of somebody who was replaced: of a medium, a tablet or a coordinator.
pub fn says_replaced(text: &str) -> bool {
    const WORDS: [&str; 3] = [
        "this process was replaced by",
        "is owned by a newer epoch",
        "was written by another owner of this data",
    ];
    WORDS.iter().any(|words| text.contains(words))
}

/// Starts a server on what a medium holds, wired as the binary wires it.
pub async fn open_node(
    process: Process,
    env: Env,
    storage: Arc<dyn Storage>,
    options: ServerOptions,
    cache_bytes: usize,
) -> Result<Node, String> {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone())
        .await
        .map_err(|e| format!("coordinator: {e}"))?;
    let used = last_epoch(&*storage).await.map_err(|e| format!("commit log: {e}"))?;
    let epoch = next_epoch_above(&*coord, "server", used).await;
    let epoch = epoch.map_err(|e| format!("epoch: {e}"))?;
    let options = ServerOptions {
        catalog_in_doubt: coord.was_torn(),
        ..options
    };
    let catalog = Catalog::load(coord).await.map_err(|e| format!("catalog: {e}"))?;
    let catalog = Arc::new(catalog);
    let cache = Arc::new(Cache::with_shards(cache_bytes, 1));
    let epoch = Epoch(u32::try_from(epoch).unwrap_or(u32::MAX));
    let started = TabletServer::start(env.clone(), storage, &catalog, epoch, cache, options, &Metrics::new()).await;
    let (server, _) = started.map_err(|e| e.to_string())?;
    let master = Master::new(env.clone(), catalog.clone(), server.clone());
    master.start_splitting();
    let router = Arc::new(Router::new(env.clone(), catalog, server.clone()));
    Ok(Node {
        process,
        env,
        router,
        master,
        server,
        outlived: AtomicBool::new(false),
        opening: Opening::default(),
    })
}

/// The node went away before it answered, or took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    /// Runs a request in the node.
    pub async fn call<T: Send + 'static>(
        &self,
        client: &Env,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let answer = self.env.spawn_join(Priority::Foreground, "request", request);
        match client.timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(NoAnswer),
        }
    }

    /// Whether another one has begun to serve since: what this one is asked for from then on never happens.
    pub fn is_outlived(&self) -> bool {
        self.outlived.load(Ordering::Relaxed)
    }

    /// Whether anybody has tried to replace it.
    pub fn is_contested(&self) -> bool {
        !self.opening.is_newest()
    }

    /// The tablet server.
    pub fn server(&self) -> &Arc<TabletServer> {
        &self.server
    }

    /// Number of tablets served.
    pub fn tablets(&self) -> usize {
        self.server.all_served().len()
    }
}
