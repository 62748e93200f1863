//! A whole server on a storage backend with faults: started, killed, replaced and started again.
//!
//! A *node* is one life of the server: a process of the simulated machine with coordinator, catalog, tablet server,
//! master and router, connected as the binary connects them. The backend outlives it. A client's request runs as a task
//! of the node's process. So it dies with the node, and the client learns that the outcome is unknown.
//!
//! Where several servers reach the backend, a node may be *replaced*: the next one starts while it runs on, or is
//! paused for a while. Half of the replaced nodes end when they learn of it, as the binary does. Until then, clients
//! that have not learned of it either keep sending requests to them.

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
use crate::shared::Owned;

/// One life of the server.
pub struct Node {
    process: Process,
    env: Env,
    /// The service for data.
    pub router: Arc<Router>,
    /// The service for administration.
    pub master: Arc<Master>,
    server: Arc<TabletServer>,
    /// The shared storage that it owns.
    owned: Option<Owned>,
    /// Whether another node has begun to serve since.
    outlived: AtomicBool,
    opening: Opening,
}

/// The number of the attempt to open the backend that made this node.
#[derive(Clone, Default)]
struct Opening {
    number: u64,
    newest: Arc<AtomicU64>,
    /// False reports of replacement by nodes.
    alarms: Arc<Mutex<Vec<String>>>,
}

impl Opening {
    fn next(&self) -> Opening {
        Opening {
            number: self.newest.fetch_add(1, Ordering::Relaxed) + 1,
            ..self.clone()
        }
    }

    /// No process has tried to open the backend since, so none can have taken it over.
    fn is_newest(&self) -> bool {
        self.newest.load(Ordering::Relaxed) == self.number
    }
}

/// The machine, its backend, and the current node.
pub struct Cluster {
    sim: Sim,
    /// The environment of the test itself, which outlives every node.
    env: Env,
    planted: Option<PlantedBug>,
    /// Whether this run has no power losses and no failed syncs.
    steady_power: bool,
    /// Whether a life of the server may have more than one log stream.
    several_streams: bool,
    backend: Arc<Backend>,
    node: Mutex<Option<Arc<Node>>>,
    /// Nodes that were replaced and not killed, oldest first.
    replaced: Mutex<Vec<Arc<Node>>>,
    /// The seed of all other seeds.
    openings: Opening,
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power fails: each unsynced write is lost, torn or kept at random.
    PowerLoss,
    /// `kill -9`: the operating system keeps all writes.
    Kill,
    /// The server is asked to stop and does.
    Shutdown,
    /// Another node takes over while it runs. Only where several servers reach the backend.
    Replaced,
}

/// Longest virtual time a start may take without faults.
const START_MAX: Duration = Duration::from_secs(600);

/// Longest virtual time of an orderly shutdown without faults, on a disk.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Most replaced nodes that still run.
const REPLACED_MAX: usize = 2;

/// Longest virtual time that a replaced node is paused.
const STILL_MAX: Duration = Duration::from_secs(30);

/// Block cache of a simulated server: a few blocks, so that most of them are evicted again.
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
        // Enough that no test forgets one.
        Part::RequestTokens => 1 << 20,
        // There are no front ends.
        Part::Requests | Part::Responses | Part::Peers | Part::PeerRows => 1 << 20,
        // A few pieces of changes.
        Part::Archive => 512 << 10,
        // Some streams wait for each other.
        Part::Restores => 128 << 10,
        // Nothing is sampled.
        Part::Heat => 0,
    })
}

/// Everything small, so that little data makes segments, flushes, compactions and splits.
pub fn options() -> ServerOptions {
    ServerOptions {
        log_clock: None,
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

/// The same for a slower backend.
pub(crate) fn options_at(pace: u32) -> ServerOptions {
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
    /// A machine with an empty backend.
    pub fn new(sim: Sim, planted: Option<PlantedBug>) -> Arc<Cluster> {
        let env = sim.process().env();
        // One in eight, because each takes as long as ten on a disk.
        let backend = match env.random_below(8) {
            0 => Backend::bucket(sim.process().env()),
            _ => Backend::disk(env.clone()),
        };
        Self::on(backend, env, sim, planted)
    }

    /// Machines on an empty HDFS.
    pub fn on_hdfs(sim: Sim, planted: Option<PlantedBug>) -> Arc<Cluster> {
        let env = sim.process().env();
        Self::on(Backend::hdfs(sim.process().env()), env, sim, planted)
    }

    /// A machine with an empty disk, which its servers encrypt.
    pub fn encrypted(sim: Sim) -> Arc<Cluster> {
        let env = sim.process().env();
        Self::on(Backend::encrypted_disk(env.clone()), env, sim, None)
    }

    fn on(backend: Backend, env: Env, sim: Sim, planted: Option<PlantedBug>) -> Arc<Cluster> {
        Arc::new(Cluster {
            // One in four: enough to find the faults of this mode. The other runs have more kinds of faults.
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

    /// Whether only the process ends in this run, so that all writes to the operating system survive.
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

    /// Whether several servers reach the backend, so that one may replace another that runs.
    pub fn is_shared(&self) -> bool {
        self.backend.is_shared()
    }

    /// Whether the backend may lose something with its power.
    pub fn loses_power(&self) -> bool {
        self.backend.loses_power()
    }

    /// The factor by which operations are slower than on a disk.
    pub fn pace(&self) -> u32 {
        self.backend.pace()
    }

    /// Chooses the faults from now on.
    pub async fn trouble(&self) {
        self.backend.trouble(&self.env, self.steady_power).await;
    }

    /// Stops all faults.
    pub fn calm(&self) {
        self.backend.calm();
    }

    /// Counts of the faults so far.
    pub fn happened(&self) -> Happened {
        self.backend.happened()
    }

    /// The current node.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().clone()
    }

    /// False reports of replacement.
    pub fn alarms(&self) -> Vec<String> {
        self.openings.alarms.lock().clone()
    }

    /// A replaced node that still runs, if there is one: the target of clients that have not learned of the
    /// replacement.
    pub fn replaced_node(&self) -> Option<Arc<Node>> {
        let mut replaced = self.replaced.lock();
        replaced.retain(|node| !node.process.has_ended());
        let count = replaced.len() as u64;
        (count > 0).then(|| replaced[self.env.random_below(count) as usize].clone())
    }

    /// Ends the node, or lets it run on until another replaces it. On a backend without faults, a server that is asked
    /// to stop must do so.
    pub async fn end(&self, end: End) -> Result<(), String> {
        let node = self.node.lock().take();
        self.sim.note(&format!("end {end:?}"));
        if let Some(node) = node {
            if end == End::Replaced {
                self.leave(node);
                return Ok(());
            }
            if end == End::Shutdown {
                let (server, owned) = (node.server.clone(), node.owned.clone());
                let stop = async move {
                    server.shut_down().await;
                    if let Some(owned) = owned {
                        owned.finish().await;
                    }
                };
                let stop = node.env.spawn_join(Priority::Foreground, "shutdown", stop);
                // Faults of the backend may prevent its end; then it is killed.
                let stopped = self.env.timeout(self.pace() * STOP_MAX, stop).await;
                if stopped.is_err() && self.backend.is_calm() {
                    let limit = self.pace() * STOP_MAX;
                    return Err(format!("no end within {limit:?} on a healthy backend"));
                }
            }
            node.process.kill();
        }
        // Now and then all earlier nodes end with it, so that none runs any more.
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

    /// The findings of a check. No end of a node damages anything. A check that finds damage, or a repair that gives
    /// data up, would be wrong.
    pub async fn damage(&self) -> Result<Vec<String>, String> {
        match self.replaced_node() {
            // A check during a running server's work sees files come and go.
            Some(_) => Ok(Vec::new()),
            None => self.backend.damage(self.env.clone()).await,
        }
    }

    /// Starts a node. With faults a start may fail; it is then repeated without faults, where it must succeed.
    pub async fn start(&self) -> Result<(), String> {
        for attempt in 0.. {
            let process = self.sim.process();
            let mut env = process.env();
            if let Some(bug) = self.planted {
                env = env.with_planted_bug(bug);
            }
            let healthy = self.backend.is_calm();
            let settings = ServerOptions {
                // One for each kind of value. Values that an earlier process chose stay.
                value_separate_bytes: [1, 9, 64, 4 << 10][self.env.random_below(4) as usize],
                inherit_from: [0, usize::MAX][self.env.random_below(2) as usize],
                log_streams: if self.several_streams {
                    1 + self.env.random_below(3) as u32
                } else {
                    1
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
                    "a starting server reports a replacement that never happened: {why}"
                ));
            }
            if healthy {
                return Err(format!("the server does not start on a healthy backend: {why}"));
            }
            self.calm();
        }
        Ok(())
    }
}

/// Starts a server on a backend, of which it may have to become the owner. When another one takes over, the server
/// ends, or goes on as if it had not learned of it. Protection against its acknowledgements must not depend on its end.
async fn open_on(
    backend: Arc<Backend>,
    process: Process,
    env: Env,
    options: ServerOptions,
    opening: Opening,
) -> Result<Node, String> {
    let opened = backend.open(env.clone()).await?;
    if let Some(shared) = opened.shared.clone()
        && env.random_below(2) == 0
    {
        let (process, opening) = (process.clone(), opening.clone());
        env.spawn("until replaced", async move {
            let by = shared.replaced().await;
            if opening.is_newest() {
                let mut alarms = opening.alarms.lock();
                alarms.push(format!("a server that was not replaced ends, because of {by}"));
            }
            process.kill();
        });
    }
    let node = open_node(process, env, opened.storage, options, CACHE_BYTES).await?;
    Ok(Node {
        opening,
        owned: opened.shared,
        ..node
    })
}

/// Whether an error reports a replacement: of a backend's, tablet's or coordinator's owner.
pub fn says_replaced(text: &str) -> bool {
    const WORDS: [&str; 3] = [
        "this process was replaced by",
        "is owned by a newer epoch",
        "was written by another owner of this data",
    ];
    WORDS.iter().any(|words| text.contains(words))
}

/// Starts a server on the content of a storage, connected as in the binary.
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
        owned: None,
        outlived: AtomicBool::new(false),
        opening: Opening::default(),
    })
}

/// The node ended before it responded, or took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// Longest time that a client waits for a response.
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

    /// Whether another node has begun to serve since. Later requests to this one never take effect.
    pub fn is_outlived(&self) -> bool {
        self.outlived.load(Ordering::Relaxed)
    }

    /// Whether any process has tried to replace it.
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
