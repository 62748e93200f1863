//! Servers of a cluster in one process, for tests.
//!
//! The coordinator and the storages are in memory, connections are pipes, and the clock goes on when all tasks wait: a test begins with
//! `tokio::test(start_paused = true)`.
#![allow(clippy::disallowed_methods, reason = "this is a runtime")]

use crate::archiving::{Archiving, Rests};
use crate::checking::{CheckMetrics, Checks};
use crate::control::{ClusterControl, NewTablets};
use crate::election;
use crate::leader::{Leader, Patience, Waiting, WaitingMetrics};
use crate::local::{Control, Local};
use crate::members::{self, Addresses, Members};
use crate::merging::MergePace;
use crate::node::{Agreed, ClusterNode, ClusterOptions, ClusterStorage, join};
use crate::peers::Peers;
use crate::records::{self, ELECTION, SERVERS, ServerRecord};
use crate::roots::LogRoots;
use crate::sweeping::SweepPace;
use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_backup::archive::ArchiveMetrics;
use stele_backup::{OpenDestination, Places};
use stele_catalog::Catalog;
use stele_client::{CellsTest, EncodedTest, ServiceError, ServiceResult, SlowCalls, TabletService, TestDecoder};
use stele_coord::{Coord, CoordError, EmbeddedCoord, Session, Txn, TxnOutcome, Versioned, Write, campaign};
use stele_env::metrics::Metrics;
use stele_env::network::Connection;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use stele_peer::{ControlService, PeerServer};
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tabletserver::{SealedLogs, ServerOptions, SharedRoots, TabletServer};
use stele_types::{ErrorKind, ServerId, TableSchema};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The number of the cluster.
pub(crate) const CLUSTER: [u8; 16] = [7; 16];

/// How long a silent server keeps its tablets.
pub(crate) const SESSION: Duration = Duration::from_secs(10);

/// Processes by their addresses.
type Listening = Arc<Mutex<BTreeMap<String, Process>>>;

/// A process that answers others.
struct Process {
    server: Arc<PeerServer>,
    /// The tasks of its connections.
    connections: Vec<AbortHandle>,
}

impl Process {
    fn of(server: PeerServer) -> Process {
        Process {
            server: Arc::new(server),
            connections: Vec::new(),
        }
    }
}

/// Connections by their addresses, each with whether it holds back its bytes.
#[derive(Clone, Default)]
pub(crate) struct Wires(Arc<Mutex<Vec<Wire>>>);

type Wire = (String, watch::Sender<bool>);

impl Wires {
    /// Holds back the bytes of all connections to an address that there are, as a network does that loses packets. Later connections pass.
    pub(crate) fn hold(&self, address: &str) {
        for (_, held) in self.0.lock().iter().filter(|(to, _)| to == address) {
            held.send_replace(true);
        }
    }

    /// Delivers all bytes that were held back.
    pub(crate) fn release(&self) {
        for (_, held) in self.0.lock().iter() {
            held.send_replace(false);
        }
    }

    /// The two ends of a new connection.
    fn connect(&self, address: &str) -> (DuplexStream, DuplexStream) {
        let (here, near) = tokio::io::duplex(64 << 10);
        let (far, there) = tokio::io::duplex(64 << 10);
        let (near, far) = (tokio::io::split(near), tokio::io::split(far));
        let held = watch::Sender::new(false);
        tokio::spawn(carry(near.0, far.1, held.subscribe()));
        tokio::spawn(carry(far.0, near.1, held.subscribe()));
        self.0.lock().push((address.to_owned(), held));
        (here, there)
    }
}

/// Carries the bytes of one direction.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut held: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut bytes).await?;
        held.wait_for(|held| !held).await.map_err(io::Error::other)?;
        match bytes.get(..read) {
            Some(read) if !read.is_empty() => to.write_all(read).await?,
            _ => return to.shutdown().await,
        }
    }
}

/// The runtime of all servers.
struct Pipes {
    origin: Instant,
    random: AtomicU64,
    listening: Listening,
    wires: Wires,
}

impl Runtime for Pipes {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall_micros(&self) -> i64 {
        i64::try_from(self.now().as_micros()).unwrap_or(i64::MAX)
    }

    fn random_u64(&self) -> u64 {
        self.random.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, _: Priority, _: &'static str, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>> {
        let (listening, wires, address) = (self.listening.clone(), self.wires.clone(), address.to_owned());
        Box::pin(async move {
            let mut listening = listening.lock();
            let process = listening.get_mut(&address).ok_or(io::ErrorKind::ConnectionRefused)?;
            let (here, there) = wires.connect(&address);
            let server = process.server.clone();
            // It ends with an error when the caller goes away.
            let serving = tokio::spawn(async move { drop(server.serve(there, futures::future::pending()).await) });
            process.connections.push(serving.abort_handle());
            Ok(Box::new(here) as Connection)
        })
    }
}

/// A coordinator that can be out of reach.
pub(crate) struct Reached {
    inner: Arc<dyn Coord>,
    pub(crate) is_away: AtomicBool,
    /// Answers to readings of one key wait while this is set.
    pub(crate) is_slow: watch::Sender<bool>,
}

impl Reached {
    fn check(&self) -> Result<(), CoordError> {
        match self.is_away.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(CoordError::Unavailable {
                message: "it is away".to_owned(),
            }),
        }
    }
}

#[async_trait]
impl stele_coord::Layer for Reached {
    fn below(&self) -> &dyn Coord {
        &*self.inner
    }

    async fn get(&self, key: &str) -> Result<Option<Versioned>, CoordError> {
        self.check()?;
        let _ = self.is_slow.subscribe().wait_for(|is_slow| !is_slow).await;
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>, CoordError> {
        self.check()?;
        self.inner.list(prefix).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, CoordError> {
        self.check()?;
        self.inner.txn(txn).await
    }

    async fn session(&self, ttl: Duration) -> Result<Session, CoordError> {
        self.check()?;
        self.inner.session(ttl).await
    }
}

/// The logs of all servers, which take some time to be claimed.
pub(crate) struct Roots {
    env: Env,
    wait: Duration,
    all: Mutex<BTreeMap<ServerId, Arc<MemoryStorage>>>,
}

impl Roots {
    pub(crate) fn new(env: Env, wait: Duration) -> Arc<Roots> {
        Arc::new(Roots {
            env,
            wait,
            all: Mutex::default(),
        })
    }

    /// Takes away the root of a log, if it was opened since the last time; whether it was.
    pub(crate) fn forget(&self, server: ServerId) -> bool {
        self.all.lock().remove(&server).is_some()
    }
}

#[async_trait]
impl SealedLogs for Roots {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        Ok(self.all.lock().entry(server).or_default().clone())
    }
}

#[async_trait]
impl LogRoots for Roots {
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        self.env.sleep(self.wait).await;
        self.open(server).await
    }
}

/// There are no backups.
pub(crate) fn no_destinations() -> OpenDestination {
    Arc::new(|_| Box::pin(async { Err(ServiceError::new(ErrorKind::Unimplemented, "no backups")) }))
}

/// No log is archived.
pub(crate) fn no_archive() -> Archiving {
    Archiving {
        places: Places::new(no_destinations()),
        own: None,
        metrics: ArchiveMetrics::new(&Metrics::new()),
    }
}

struct NoTests;

impl TestDecoder for NoTests {
    fn decode(&self, _: &Arc<TableSchema>, _: &EncodedTest) -> ServiceResult<Arc<dyn CellsTest>> {
        Err(ServiceError::new(ErrorKind::Unimplemented, "no front end"))
    }
}

/// The choices of a server.
pub(crate) fn options(session: Duration) -> ClusterOptions {
    ClusterOptions {
        session,
        addresses: Addresses::default(),
        version: "test".to_owned(),
        lanes: 1,
        slow: Arc::new(SlowCalls::off()),
        tests: Arc::new(NoTests),
        agreed: Agreed { cluster: CLUSTER },
        sweep: SweepPace::default(),
        merge: MergePace::of_tablets(1 << 20),
        keep_deleted: Duration::ZERO,
        checks_rights: false,
        forwarded: None,
        destinations: no_destinations(),
        archiving: no_archive(),
    }
}

/// A cluster.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) reached: Arc<Reached>,
    pub(crate) coord: Arc<dyn Coord>,
    pub(crate) data: Arc<dyn Storage>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) wires: Wires,
    listening: Listening,
}

impl World {
    pub(crate) async fn new() -> World {
        let (listening, wires) = (Listening::default(), Wires::default());
        let env = Env::new(Arc::new(Pipes {
            origin: Instant::now(),
            random: AtomicU64::new(1),
            listening: listening.clone(),
            wires: wires.clone(),
        }));
        let inner = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
        let reached = Arc::new(Reached {
            inner: inner.expect("opened"),
            is_away: AtomicBool::new(false),
            is_slow: watch::Sender::new(false),
        });
        World {
            coord: reached.clone(),
            reached,
            data: MemoryStorage::new(),
            roots: Roots::new(env.clone(), Duration::ZERO),
            wires,
            listening,
            env,
        }
    }

    /// Puts a record into the coordinator.
    pub(crate) async fn put(&self, key: String, value: bytes::Bytes) {
        let put = Txn {
            conditions: Vec::new(),
            writes: vec![Write::Put { key, value }],
        };
        let _ = self.coord.txn(put).await.expect("put");
    }

    /// Has a server known as a member, whose process is there only if it is [served](World::serve).
    pub(crate) async fn note_member(&self, server: u32) {
        let record = ServerRecord {
            peer: format!("server-{server}"),
            ..ServerRecord::default()
        };
        let key = records::key(SERVERS, ServerId(server));
        self.put(key, records::encode(&record)).await;
    }

    /// A whole server, which answers others and may lead.
    pub(crate) async fn join(&self, process: u32) -> ClusterNode {
        let address = format!("process-{process}");
        let storage = ClusterStorage {
            data: self.data.clone(),
            roots: self.roots.clone(),
        };
        let parts = (Arc::new(Cache::new(1 << 20)), ServerOptions::for_memory(64 << 20));
        let mut options = options(SESSION);
        options.addresses.peer.clone_from(&address);
        let joined = join(
            self.env.clone(),
            self.coord.clone(),
            storage,
            parts,
            options,
            &Metrics::new(),
        )
        .await;
        let node = joined.expect("joined");
        self.listening.lock().insert(address, Process::of(node.peers.clone()));
        node
    }

    /// A server that follows the coordinator.
    pub(crate) async fn follow(&self, server: u32) -> Arc<Local> {
        self.follow_over(server, self.data.clone()).await
    }

    /// The same with this storage of the tablets.
    pub(crate) async fn follow_over(&self, server: u32, data: Arc<dyn Storage>) -> Arc<Local> {
        let roots = SharedRoots {
            data,
            log: MemoryStorage::new(),
            sealed: self.roots.clone(),
            moments: None,
        };
        let (env, cache, metrics) = (self.env.clone(), Arc::new(Cache::new(1 << 20)), Metrics::new());
        let options = ServerOptions::for_memory(64 << 20);
        let tablets = TabletServer::join(env.clone(), roots, ServerId(server), cache, options, &metrics).await;
        let tablets = tablets.expect("started");
        let members = Members::follow(self.coord.clone(), &env, CLUSTER)
            .await
            .expect("listed");
        let (catalog, follower) = Catalog::follow(self.coord.clone()).await.expect("listed");
        let own = members::identity(CLUSTER, ServerId(server));
        let peers = Peers::new(env.clone(), tablets.pool().clone(), own, members.clone(), &metrics);
        let local = Local::new(env.clone(), (catalog, members), peers, tablets);
        env.spawn("catalog", follower.run(env.clone(), local.clone()));
        local
    }

    /// Has a server answer others.
    pub(crate) fn serve(&self, server: u32, local: &Arc<Local>) {
        let control = Control {
            local: local.clone(),
            forwarded: None,
        };
        self.serve_by(server, local, Arc::new(control));
    }

    /// The same with answers by another service.
    pub(crate) fn serve_by(&self, server: u32, local: &Arc<Local>, control: Arc<dyn ControlService>) {
        let own = members::identity(CLUSTER, ServerId(server));
        let tablets: Arc<dyn TabletService> = local.server.clone();
        let peers = PeerServer::new(self.env.clone(), local.server.pool(), own, tablets);
        let peers = peers.with_control(control);
        self.listening
            .lock()
            .insert(format!("server-{server}"), Process::of(peers));
    }

    /// Closes the connections that a server has.
    pub(crate) fn disconnect(&self, server: u32) {
        let mut listening = self.listening.lock();
        let process = listening.get_mut(&format!("server-{server}"));
        let connections = std::mem::take(&mut process.expect("it is served").connections);
        connections.iter().for_each(AbortHandle::abort);
    }

    /// Ends the process of a server: its port refuses connections, and those that are open are closed. Its session lives on.
    pub(crate) fn kill(&self, server: u32) {
        let killed = self.listening.lock().remove(&format!("server-{server}"));
        let killed = killed.expect("it was served");
        killed.connections.iter().for_each(AbortHandle::abort);
    }

    /// A term of a server, whose rounds have not begun.
    pub(crate) async fn elect(&self, local: &Arc<Local>) -> Arc<Leader> {
        let session = self.coord.session(Duration::from_secs(3600)).await.expect("begun");
        let own = local.peers.own();
        let elected = campaign(&*self.coord, ELECTION, &session, election::value(own)).await;
        let leadership = elected.expect("elected");
        let (fence, term) = (leadership.fence(), leadership.version());
        let homes = Arc::new(NewTablets::default());
        let catalog = local
            .catalog
            .lead(fence.clone(), homes.clone())
            .await
            .expect("it leads");
        let of_term = (catalog.clone(), homes, term);
        let control = ClusterControl::new(local.clone(), self.coord.clone(), self.data.clone(), of_term);
        let of_coord = (self.coord.clone(), fence.clone());
        let rests = Rests::new(self.env.clone(), of_coord, (no_archive(), None), (own, None));
        Leader::new(
            local.clone(),
            (self.coord.clone(), catalog),
            control,
            (self.roots.clone(), self.data.clone(), rests),
            (fence, term, Patience::of_session(SESSION)),
            (
                Checks::new(CheckMetrics::new(&Metrics::new())),
                Waiting::new(WaitingMetrics::new(&Metrics::new())),
            ),
        )
    }
}
