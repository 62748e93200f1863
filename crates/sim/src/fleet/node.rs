//! One server of a cluster: a process that joins by itself.

use super::coordinator::{Coordinator, Link};
use super::host::{self, NoAnswer, PACE, Remote, Sealed, root_of};
use super::{ARCHIVE, BACKUPS, Fleet, ROOT, STREAMS};
use crate::cluster::{CACHE_BYTES, options_at};
use crate::runtime::Process;
use crate::shared::{Owned, SharedStorage};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use stele_backup::archive::{ArchiveMetrics, ArchiveSettings, Archiver};
use stele_backup::{OpenDestination, PlaceToOpen, Places};
use stele_client::{
    AccessAdmin, BackupDestination, CellsTest, EncodedTest, RowStream, ServiceError, ServiceResult, SlowCalls,
    TableAdmin, TableService, TestDecoder,
};
use stele_cluster::{Addresses, Archiving, ClusterOptions, ClusterStorage, LogRoots, MergePace, SweepPace};
use stele_coord::Coord;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tabletserver::{SealedLogs, ServerOptions};
use stele_types::{ErrorKind, ServerId, TableSchema};

/// Often enough for many rounds in a run. Servers that were given up run on for less than the grace period.
pub(super) const SWEEP: SweepPace = SweepPace {
    interval: Duration::from_secs(5),
    grace: Duration::from_secs(60),
};
/// Often enough for merges within a run.
pub(super) const MERGE: MergePace = MergePace {
    interval: Duration::from_secs(5),
    quiet: Duration::from_secs(8),
    tablet_bytes_max: 12 << 10,
};
const NO_MERGES: MergePace = MergePace {
    tablet_bytes_max: 0,
    ..MERGE
};
/// How long deleted tables are kept: they expire within a run.
pub(super) const KEEP_DELETED: Duration = Duration::from_secs(40);
/// How long a silent server keeps its tablets.
const SESSION: Duration = Duration::from_secs(10);

/// Largest difference between the wall clock of a server whose clock differs and that of the clients.
pub(super) const SKEW_MICROS_MAX: i64 = 1_000_000;
/// The time between two rounds of an archiver.
const ARCHIVED_EVERY: Duration = Duration::from_secs(3);

/// The choices of a server.
#[derive(Clone, Copy, Default)]
struct Choices {
    checks_rights: bool,
    /// It is one of a large cluster: the coordinator is quick, as a healthy one is, and the leader merges no tablets.
    is_of_many: bool,
    /// It has this much memory and a processor; if absent, everything is tiny and work takes no time.
    memory: Option<u64>,
    archives: bool,
    /// Its wall clock is ahead by this many microseconds.
    skew: i64,
    /// Answers of the coordinator are lost now and then, unless a bug is planted: its seeds are known.
    loses_answers: bool,
}

/// A server, in a process of its own.
pub(super) struct Node {
    pub(super) number: ServerId,
    pub(super) process: Process,
    env: Env,
    /// To the coordinator.
    pub(super) link: Link,
    pub(super) service: Arc<dyn TableService>,
    pub(super) admin: Arc<dyn TableAdmin>,
    pub(super) rules: Arc<dyn AccessAdmin>,
    /// Archives the log as long as the server is there.
    _archiver: Option<Arc<Archiver>>,
}

impl Node {
    /// Starts a server. Faults of the network and of the coordinator may make it fail.
    pub(super) async fn start(fleet: &Fleet, coord: Arc<dyn Coord>) -> Result<Arc<Node>, String> {
        let choices = Choices {
            loses_answers: true,
            ..Choices::default()
        };
        Node::start_with(fleet, coord, choices).await
    }

    /// The same for a server that gets every answer of the coordinator.
    pub(super) async fn start_answered(fleet: &Fleet, coord: Arc<dyn Coord>) -> Result<Arc<Node>, String> {
        Node::start_with(fleet, coord, Choices::default()).await
    }

    /// The same for a server that archives its log, and whose wall clock is not that of the others.
    pub(super) async fn start_archiving(fleet: &Fleet, coord: Arc<dyn Coord>) -> Result<Arc<Node>, String> {
        let skew = fleet.below(2 * SKEW_MICROS_MAX as u64) as i64 - SKEW_MICROS_MAX;
        let choices = Choices {
            archives: true,
            skew,
            loses_answers: true,
            ..Choices::default()
        };
        Node::start_with(fleet, coord, choices).await
    }

    /// The same for a server whose wall clock is ahead by this many microseconds.
    pub(super) async fn start_skewed(fleet: &Fleet, coord: Arc<dyn Coord>, skew: i64) -> Result<Arc<Node>, String> {
        let choices = Choices {
            skew,
            ..Choices::default()
        };
        Node::start_with(fleet, coord, choices).await
    }

    /// The same for a server whose callers need rights.
    pub(super) async fn start_checking_rights(fleet: &Fleet, coord: Arc<dyn Coord>) -> Result<Arc<Node>, String> {
        let choices = Choices {
            checks_rights: true,
            loses_answers: true,
            ..Choices::default()
        };
        Node::start_with(fleet, coord, choices).await
    }

    /// The same for a server of a large cluster, with this many bytes of memory and a processor of its own; or with tiny limits, and
    /// work that takes no time.
    pub(super) async fn start_of_many(
        fleet: &Fleet,
        coord: Arc<dyn Coord>,
        memory: Option<u64>,
    ) -> Result<Arc<Node>, String> {
        let choices = Choices {
            is_of_many: true,
            memory,
            ..Choices::default()
        };
        Node::start_with(fleet, coord, choices).await
    }

    async fn start_with(fleet: &Fleet, coord: Arc<dyn Coord>, choices: Choices) -> Result<Arc<Node>, String> {
        let process = fleet.sim.process();
        process.skew_wall_clock(choices.skew);
        if choices.memory.is_some() {
            process.give_processor();
        }
        let env = match fleet.planted {
            Some(bug) => process.env().with_planted_bug(bug),
            None => process.env(),
        };
        // Archives must be right also where every second server does not follow the clocks of others.
        let env = match choices.archives && process.id() % 2 == 1 {
            true => env,
            false => env.with_common_clock(),
        };
        let link = match choices.is_of_many {
            true => Link::quick(),
            false if choices.loses_answers && fleet.planted.is_none() => Link::lossy(),
            false => Link::default(),
        };
        let coord = Coordinator::over(link.clone(), fleet.env.clone(), coord);
        let joining = join(
            fleet.shared.clone(),
            (process.clone(), env.clone()),
            (coord, link),
            choices,
        );
        host::start(fleet, (&process, &env), joining).await.map(Arc::new)
    }

    /// The time that the server shows.
    pub(super) fn wall_micros(&self) -> i64 {
        self.env.wall_micros()
    }

    /// Runs a request in the process of the server.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        caller: &Env,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        host::call(&self.env, caller, request).await
    }

    /// Begins a read in the process of the server.
    pub(super) async fn stream(
        &self,
        caller: &Env,
        read: impl Future<Output = ServiceResult<Box<dyn RowStream>>> + Send + 'static,
    ) -> ServiceResult<Box<dyn RowStream>> {
        Remote::begin(&self.env, caller, read).await
    }
}

fn server_parts(memory: Option<u64>) -> (Arc<Cache>, ServerOptions) {
    let Some(memory) = memory else {
        let options = ServerOptions {
            log_streams: STREAMS,
            ..options_at(PACE)
        };
        return (Arc::new(Cache::with_shards(CACHE_BYTES, 1)), options);
    };
    let cache = Cache::with_shards(ServerOptions::block_cache_bytes(memory), 1);
    (Arc::new(cache), ServerOptions::for_memory(memory))
}

async fn join(
    shared: SharedStorage,
    (process, env): (Process, Env),
    (coord, link): (Arc<dyn Coord>, Link),
    choices: Choices,
) -> Result<Node, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let address = format!("server-{}:7070", process.id());
    let mut listener = env.listen(&address).await.map_err(|error| text(&error))?;
    let data = shared.share(ROOT, env.clone()).await;
    let roots = Arc::new(Roots {
        sealed: Sealed {
            shared: shared.clone(),
            env: env.clone(),
        },
        own: parking_lot::Mutex::new(None),
    });
    let storage = ClusterStorage {
        data: data.map_err(|error| text(&error))?,
        roots: roots.clone(),
    };
    let agreed = stele_cluster::agree(&*coord, &env, ROOT).await;
    let agreed = agreed.map_err(|error| text(&error))?;
    let options = ClusterOptions {
        session: SESSION,
        addresses: Addresses {
            peer: address,
            ..Addresses::default()
        },
        version: "simulated".to_owned(),
        lanes: 1,
        slow: Arc::new(SlowCalls::off()),
        tests: Arc::new(NoTests),
        agreed,
        sweep: SWEEP,
        merge: if choices.is_of_many { NO_MERGES } else { MERGE },
        keep_deleted: KEEP_DELETED,
        checks_rights: choices.checks_rights,
        forwarded: None,
        destinations: destinations(shared.clone(), env.clone()),
        archiving: archiving(shared, env.clone(), choices.archives),
    };
    let parts = server_parts(choices.memory);
    let joined = stele_cluster::join(env.clone(), coord, storage, parts, options, &Metrics::new()).await;
    let joined = joined.map_err(|error| text(&error))?;
    let (peers, accepting) = (joined.peers, env.clone());
    env.spawn("peers", async move {
        loop {
            match listener.accept().await {
                Ok(socket) => {
                    let peers = peers.clone();
                    accepting.spawn("peer", async move {
                        let _ = peers.serve(socket, std::future::pending()).await;
                    });
                }
                Err(_) => accepting.sleep(Duration::from_millis(10)).await,
            }
        }
    });
    // Half of the servers learn late that their log was sealed.
    let own = roots.own.lock().clone().filter(|_| env.random_below(2) == 0);
    let (mut given_up, ended) = (joined.given_up, process.clone());
    env.spawn("until given up", async move {
        let replaced = async {
            match own {
                Some(own) => drop(own.replaced().await),
                None => std::future::pending().await,
            }
        };
        let given_up = async {
            let _ = given_up.wait_for(|given_up| *given_up).await;
        };
        futures::future::select(Box::pin(replaced), Box::pin(given_up)).await;
        ended.kill();
    });
    Ok(Node {
        number: joined.number,
        process,
        env,
        link,
        service: joined.service,
        rules: joined.admin.clone(),
        _archiver: joined.archiver,
        admin: joined.admin,
    })
}

/// Every address is that of the one destination, in the same storage.
fn destinations(shared: SharedStorage, env: Env) -> OpenDestination {
    Arc::new(move |_| {
        let (shared, env) = (shared.clone(), env.clone());
        Box::pin(async move {
            let opened = shared.share(BACKUPS, env).await;
            let opened = opened.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
            Ok(opened.into())
        })
    })
}

/// The archive of the logs of all servers, in the same storage.
fn archiving(shared: SharedStorage, env: Env, archives: bool) -> Archiving {
    let open: OpenDestination = Arc::new(move |PlaceToOpen { place, .. }| {
        let (shared, env) = (shared.clone(), env.clone());
        Box::pin(async move {
            let opened = shared.share(&place.address, env).await;
            let opened = opened.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
            Ok(opened.into())
        })
    });
    let settings = ArchiveSettings {
        place: BackupDestination {
            address: ARCHIVE.to_owned(),
            options: Vec::new(),
        },
        interval: ARCHIVED_EVERY,
        waiting_bytes_max: 1 << 20,
    };
    Archiving {
        places: Places::new(open),
        own: archives.then_some(settings),
        metrics: ArchiveMetrics::new(&Metrics::new()),
    }
}

/// The clients have no conditions in the language of a front end.
struct NoTests;

impl TestDecoder for NoTests {
    fn decode(&self, _: &Arc<TableSchema>, _: &EncodedTest) -> ServiceResult<Arc<dyn CellsTest>> {
        Err(ServiceError::new(ErrorKind::Unimplemented, "no front end is simulated"))
    }
}

/// The log roots in the storage.
struct Roots {
    sealed: Sealed,
    /// That of this server: the first that was taken over.
    own: parking_lot::Mutex<Option<Owned>>,
}

#[async_trait]
impl SealedLogs for Roots {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        self.sealed.open(server).await
    }
}

#[async_trait]
impl LogRoots for Roots {
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let Sealed { shared, env } = &self.sealed;
        let log = shared.own(&root_of(server), env.clone()).await?;
        self.own.lock().get_or_insert_with(|| log.clone());
        Ok(log.storage())
    }
}
