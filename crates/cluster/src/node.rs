//! Builds a server of a cluster from its parts.

use crate::admin::ClusterAdmin;
use crate::archiving::{Archiving, CoordMoments, OwnLife};
use crate::candidacy;
use crate::election;
use crate::gate::Gate;
use crate::lease::{Lease, Leased};
use crate::local::{Control, Local};
use crate::members::{self, Addresses, Member, Members};
use crate::merging::MergePace;
use crate::peers::Peers;
use crate::promotion::{self, PromotionError};
use crate::records::ServerRecord;
use crate::roots::LogRoots;
use crate::rules::{self, RulesAge};
use crate::session::{self, CurrentSession};
use crate::sweeping::SweepPace;
use crate::term::{Places, TermMetrics};
use std::sync::Arc;
use std::time::Duration;
use stele_access::Forwarded;
use stele_backup::OpenDestination;
use stele_backup::archive::Archiver;
use stele_catalog::{Catalog, CatalogError};
use stele_client::{Router, ServerPlace, Servers, SlowCalls, TableService, TabletService, TestDecoder};
use stele_coord::{Coord, CoordError};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_peer::{Dispatcher, Owner, Owners, PeerServer, RemoteOptions};
use stele_sstable::Cache;
use stele_storage::{Storage, StorageError};
use stele_tabletserver::{Moments, ServerError, ServerOptions, SharedRoots, TabletServer};
use stele_types::{ServerId, TabletId};
use tokio::sync::watch;

/// Choices of a server.
#[derive(Clone)]
pub struct ClusterOptions {
    /// How long the session of a silent server lives.
    pub session: Duration,
    /// The addresses that others are told.
    pub addresses: Addresses,
    /// The version of the program.
    pub version: String,
    /// Connections to each other server: one for each event loop.
    pub lanes: usize,
    /// Notes calls that are slow.
    pub slow: Arc<SlowCalls>,
    /// Decodes conditions of front ends of other servers.
    pub tests: Arc<dyn TestDecoder>,
    /// The result of [`agree`].
    pub agreed: Agreed,
    /// How the leader deletes files that nothing needs.
    pub sweep: SweepPace,
    /// How the leader merges small tablets.
    pub merge: MergePace,
    /// How long the leader keeps deleted tables, and tables before drops. Zero for not at all.
    pub keep_deleted: Duration,
    /// Callers need rights, so the access rules are confirmed by the coordinator all the time.
    pub checks_rights: bool,
    /// Writes the calls that other servers forward to the audit log.
    pub forwarded: Option<Arc<Forwarded>>,
    /// Opens destinations of backups, while the server leads. Every server must reach them.
    pub destinations: OpenDestination,
    /// Archives the log, and reads archives.
    pub archiving: Archiving,
}

/// The storage of a server.
pub struct ClusterStorage {
    /// Tablets of all servers.
    pub data: Arc<dyn Storage>,
    /// The logs.
    pub roots: Arc<dyn LogRoots>,
}

/// The reason for which a server does not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The coordinator failed.
    #[error("coordination: {0}")]
    Coord(#[from] CoordError),
    /// The catalog cannot be read.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// Storage failed.
    #[error("storage: {0}")]
    Storage(#[from] StorageError),
    /// The logs of the other servers are elsewhere.
    #[error("the servers of this cluster have their logs at {found}, not at {own}: give commit-log as they do")]
    LogPlace {
        /// The place of the cluster.
        found: String,
        /// That of this server's settings.
        own: String,
    },
    /// The data of a single server are being made those of the cluster.
    #[error("{0}")]
    Promotion(#[from] PromotionError),
    /// The tablet server does not start.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// The agreement of all servers of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The number of the cluster.
    pub cluster: [u8; 16],
}

/// A server that is a member of a cluster.
pub struct ClusterNode {
    /// The service for data of all tablets.
    pub service: Arc<dyn TableService>,
    /// Administration.
    pub admin: Arc<ClusterAdmin>,
    /// Its tablets.
    pub server: Arc<TabletServer>,
    /// Serves other servers.
    pub peers: PeerServer,
    /// The connections to other servers.
    pub connections: Connections,
    /// The servers of the cluster.
    pub members: Arc<Members>,
    /// The number of the cluster.
    pub cluster: [u8; 16],
    /// Its number.
    pub number: ServerId,
    /// Wall-clock microseconds of its start, as others know it.
    pub started_micros: i64,
    /// Archives its log, if it is archived.
    pub archiver: Option<Arc<Archiver>>,
    /// Completes with true when the server was given up.
    pub given_up: watch::Receiver<bool>,
}

/// The connections of a server to the others.
pub struct Connections {
    dispatcher: Arc<Dispatcher>,
    local: Arc<Local>,
}

impl Connections {
    /// Has later calls use new connections, because other servers are trusted now. Calls under way end on the present ones.
    pub fn renew(&self) {
        self.dispatcher.renew();
        self.local.peers.renew();
    }
}

/// Finds owners in the catalog, and their addresses.
struct CatalogOwners {
    own: ServerId,
    catalog: Arc<Catalog>,
    members: Arc<Members>,
}

impl Owners for CatalogOwners {
    fn owner_of(&self, tablet: TabletId) -> Option<Owner> {
        let owner = self.catalog.owner_of(tablet)?;
        match owner.server == self.own {
            true => Some(Owner::Here),
            false => self.members.peer(owner.server).map(|peer| Owner::There(Arc::new(peer))),
        }
    }

    fn is_member(&self, server: u64) -> bool {
        let members = self.members.view();
        u32::try_from(server).is_ok_and(|server| members.servers.contains_key(&ServerId(server)))
    }
}

/// The servers as HBase clients know them.
struct HbaseServers {
    own: ServerId,
    members: Arc<Members>,
}

impl Servers for HbaseServers {
    fn place_of(&self, server: ServerId) -> Option<Arc<ServerPlace>> {
        match server == self.own {
            true => None,
            false => self.members.hbase_place(server),
        }
    }

    fn others(&self) -> Vec<Arc<ServerPlace>> {
        let view = self.members.view();
        let others = view.servers.keys().filter(|server| **server != self.own);
        others.filter_map(|server| self.members.hbase_place(*server)).collect()
    }
}

/// Agrees with the other servers of a cluster on its number and on the place of the logs; the first server chooses. The number
/// tells whether a shared place belongs to this cluster. The caller checks that before it joins.
pub async fn agree(coord: &dyn Coord, env: &Env, log_place: &str) -> Result<Agreed, JoinError> {
    let promotion = promotion::before_joining(coord).await?;
    let found = members::agree_on_logs(coord, log_place, promotion.as_ref()).await?;
    let found = found.ok_or(PromotionError::Superseded)?;
    if found != log_place {
        let own = log_place.to_owned();
        return Err(JoinError::LogPlace { found, own });
    }
    let cluster = members::cluster_number(coord, env).await?;
    Ok(Agreed { cluster })
}

/// Joins a cluster: the server serves its peers from now on, and gets tablets. The caller listens at the addresses already, or
/// others take the silence for a death.
pub async fn join(
    env: Env,
    coord: Arc<dyn Coord>,
    storage: ClusterStorage,
    (cache, server_options): (Arc<Cache>, ServerOptions),
    options: ClusterOptions,
    metrics: &Metrics,
) -> Result<ClusterNode, JoinError> {
    let member = members::begin(&*coord, options.session, options.agreed.cluster).await?;
    let joining = session::keep_while_joining(&env, &member.session);
    let life = OwnLife::begin(&env, &*coord, &options.archiving).await?;
    let server_options = ServerOptions {
        log_clock: life.as_ref().map(|life| life.clock.clone()),
        ..server_options
    };
    let log = storage.roots.take_over(member.server).await?;
    let lease = Lease::new(env.clone(), log.clone());
    let roots = SharedRoots {
        data: storage.data.clone(),
        log,
        sealed: Arc::new(Sealed(storage.roots.clone())),
        moments: life
            .is_some()
            .then(|| Arc::new(CoordMoments(coord.clone())) as Arc<dyn Moments>),
    };
    let server = TabletServer::join(env.clone(), roots, member.server, cache, server_options, metrics).await?;
    let record = record(&options, &env);
    let of_log = (server.log_streams(), life.as_ref().map(|life| &life.record));
    members::announce(&*coord, &member, &record, of_log).await?;
    if let Some(life) = &life {
        life.noted(&*coord).await?;
    }
    let members = Members::follow(coord.clone(), &env, member.cluster).await?;
    let listed = env.now();
    let (catalog, follower) = Catalog::follow(coord.clone()).await?;
    let archiver = match &life {
        Some(life) => {
            let of = (&coord, &*catalog);
            life.archive(&env, of, &server, member.server, &options.archiving)
                .await?
        }
        None => None,
    };
    let rules_age = RulesAge::new(env.clone(), listed);
    if options.checks_rights {
        env.spawn("access rules", rules::confirm(rules_age.clone(), catalog.clone()));
    }
    let peers = Peers::new(
        env.clone(),
        server.pool().clone(),
        member.identity(),
        members.clone(),
        metrics,
    );
    let local = Local::new(env.clone(), (catalog.clone(), members.clone()), peers, server.clone());
    env.spawn("catalog", follower.run(env.clone(), local.clone()));
    let started_micros = record.started_micros;
    let given_up = keep_session(&env, &coord, &member, (record, &lease));
    drop(joining);
    let leased: Arc<dyn TabletService> = Arc::new(Leased {
        tablets: server.clone(),
        lease,
    });
    let (sweep, merge, keep_deleted) = (options.sweep, options.merge, options.keep_deleted);
    let (destinations, archiving) = (options.destinations.clone(), options.archiving.clone());
    let node = assemble(&env, &member, &local, (leased, options));
    let session = given_up.1;
    env.spawn("leader's watch", election::watch_leader(local.clone(), coord.clone()));
    let places = Places {
        roots: storage.roots,
        data: storage.data,
        sweep,
        merge,
        keep_deleted,
        destinations,
        archiving,
        tablets: node.2.clone(),
        metrics: TermMetrics::new(metrics),
    };
    env.spawn(
        "election",
        candidacy::lead_when_elected(local.clone(), coord.clone(), places, session),
    );
    Ok(ClusterNode {
        service: node.0,
        peers: node.1,
        connections: Connections {
            dispatcher: node.2,
            local: local.clone(),
        },
        admin: ClusterAdmin::new(local, coord, rules_age),
        server,
        members,
        cluster: member.cluster,
        number: member.server,
        started_micros,
        archiver,
        given_up: given_up.0,
    })
}

fn record(options: &ClusterOptions, env: &Env) -> ServerRecord {
    let Addresses {
        peer,
        bigtable,
        hbase,
        http,
    } = options.addresses.clone();
    ServerRecord {
        peer,
        bigtable,
        hbase,
        http,
        started_micros: env.wall_micros(),
        version: options.version.clone(),
    }
}

/// Keeps the session; the receiver tells when the server was given up.
fn keep_session(
    env: &Env,
    coord: &Arc<dyn Coord>,
    member: &Member,
    (record, lease): (ServerRecord, &Arc<Lease>),
) -> (watch::Receiver<bool>, Arc<CurrentSession>) {
    let session = CurrentSession::new(member.session.clone());
    let (tell, told) = watch::channel(false);
    let keep = session::keep(
        env.clone(),
        coord.clone(),
        member.clone(),
        record,
        (session.clone(), lease.clone()),
    );
    env.spawn("session", async move {
        keep.await;
        let _ = tell.send(true);
    });
    (told, session)
}

fn assemble(
    env: &Env,
    member: &Member,
    local: &Arc<Local>,
    (leased, options): (Arc<dyn TabletService>, ClusterOptions),
) -> (Arc<dyn TableService>, PeerServer, Arc<Dispatcher>) {
    let owners = CatalogOwners {
        own: member.server,
        catalog: local.catalog.clone(),
        members: local.members.clone(),
    };
    let pool = local.server.pool().clone();
    let remote = RemoteOptions {
        lanes: options.lanes,
        ..RemoteOptions::default()
    };
    let dispatcher = Dispatcher::new(
        (env.clone(), pool.clone()),
        member.identity(),
        leased.clone(),
        Arc::new(owners),
        remote,
    );
    let dispatcher = Arc::new(dispatcher.noting(local.peers.losses().clone()));
    let servers = Arc::new(HbaseServers {
        own: member.server,
        members: local.members.clone(),
    });
    let router = Router::of_cluster(
        (env.clone(), local.catalog.clone()),
        dispatcher.clone(),
        servers,
        options.slow,
    );
    let gate = Gate {
        tablets: leased,
        server: local.server.clone(),
        tests: options.tests,
    };
    let peers = PeerServer::new(env.clone(), &pool, member.identity(), Arc::new(gate));
    let control = Arc::new(Control {
        local: local.clone(),
        forwarded: options.forwarded.clone(),
    });
    let peers = peers.with_control(control).forwarded_to(options.forwarded);
    (Arc::new(router), peers, dispatcher)
}

/// The logs of other servers, for a tablet server that replays them.
struct Sealed(Arc<dyn LogRoots>);

#[async_trait::async_trait]
impl stele_tabletserver::SealedLogs for Sealed {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        self.0.open(server).await
    }
}

#[cfg(test)]
mod tests;
