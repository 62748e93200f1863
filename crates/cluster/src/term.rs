//! Terms of leadership: from an election to its end.
//!
//! Each ends in the same way, whether the place is lost or given up: calls to the leader are refused, and its tasks learn of it. Those under
//! way may end later. Each change is conditional on the term, and servers refuse orders of an earlier term than the newest.

use crate::admin_calls;
use crate::archiving::{Archiving, Rests, TermArchives};
use crate::backup_calls;
use crate::checking::{CheckMetrics, Checks};
use crate::codec;
use crate::control::{ClusterControl, NewTablets};
use crate::election;
use crate::leader::{Leader, Patience, Waiting, WaitingMetrics};
use crate::local::{LeaderCalls, Local};
use crate::merging::{self, MergePace};
use crate::messages::{ClusterCall, Request};
use crate::records::{self, DRAINING};
use crate::roots::LogRoots;
use crate::status::status;
use crate::sweeping::{self, SweepPace};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stele_backup::{Archives, Backups, DataRoot, OpenDestination};
use stele_catalog::Catalog;
use stele_client::{ServiceError, ServiceResult, TabletService, cancellation};
use stele_coord::{Condition, Coord, Leadership, Write};
use stele_env::metrics::Metrics;
use stele_master::Master;
use stele_storage::Storage;
use stele_types::ErrorKind;
use tokio::sync::oneshot;

/// Pause between two checks that the term goes on.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The storage of a cluster, and how it is tidied.
pub(crate) struct Places {
    pub(crate) roots: Arc<dyn LogRoots>,
    /// The shared data root.
    pub(crate) data: Arc<dyn Storage>,
    pub(crate) sweep: SweepPace,
    pub(crate) merge: MergePace,
    /// How long deleted tables are kept.
    pub(crate) keep_deleted: Duration,
    /// Opens destinations of backups.
    pub(crate) destinations: OpenDestination,
    pub(crate) metrics: TermMetrics,
    /// Archives of logs.
    pub(crate) archiving: Archiving,
    /// The tablets of all servers.
    pub(crate) tablets: Arc<dyn TabletService>,
}

/// Instruments of all terms of this server.
pub(crate) struct TermMetrics {
    check: CheckMetrics,
    waiting: WaitingMetrics,
}

impl TermMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        TermMetrics {
            check: CheckMetrics::new(metrics),
            waiting: WaitingMetrics::new(metrics),
        }
    }
}

/// The calls to the leader during one term.
struct Term {
    master: Arc<Master>,
    control: Arc<ClusterControl>,
    leader: Arc<Leader>,
    backups: Arc<Backups>,
}

#[async_trait]
impl LeaderCalls for Term {
    async fn answer(&self, request: Request) -> ServiceResult<Bytes> {
        if matches!(
            &request,
            Request::Admin(_) | Request::Cluster(ClusterCall::Move { .. } | ClusterCall::Drain { .. })
        ) {
            self.leader.confirm_term().await?;
            // The coordinator may have answered late, and the caller have made the call again.
            cancellation::turn(std::future::ready(())).await?;
        }
        match request {
            Request::Admin(call) => {
                let changes_catalog = call.changes_catalog();
                let answer = admin_calls::answer(&self.master, call).await?;
                if changes_catalog {
                    self.control.barrier(self.leader.local.catalog.applied()).await?;
                }
                Ok(answer)
            }
            Request::Cluster(ClusterCall::Status) => codec::encode(&status(&self.leader)),
            Request::Cluster(ClusterCall::Move { tablet, to }) => {
                self.expect_server(to)?;
                let moves = self.control.moves_to(&[tablet], to);
                let catalog = self.leader.local.catalog.view();
                if catalog.tablets_among(&BTreeSet::from([tablet])).is_empty() {
                    return Err(ServiceError::not_found(format!("there is no tablet {tablet}")));
                }
                let moved = self.leader.catalog.reassign(&moves).await;
                moved.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
                codec::encode(&())
            }
            Request::Cluster(ClusterCall::Drain { server, drains }) => {
                self.expect_server(server)?;
                let key = records::key(DRAINING, server);
                let write = match drains {
                    true => Write::Put {
                        key,
                        value: Bytes::new(),
                    },
                    false => Write::Delete { key },
                };
                self.leader.commit(vec![write]).await?;
                codec::encode(&())
            }
            Request::Backups(call) => backup_calls::answer(&self.backups, call).await,
            _ => Err(ServiceError::new(ErrorKind::Internal, "not a call to a leader")),
        }
    }
}

impl Term {
    fn expect_server(&self, server: stele_types::ServerId) -> ServiceResult<()> {
        match self.leader.local.members.view().servers.contains_key(&server) {
            true => Ok(()),
            false => Err(ServiceError::not_found(format!("there is no server {server}"))),
        }
    }
}

/// The reason for which a term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Another server leads, or nobody.
    Over,
    /// This server does not reach the others.
    CutOff,
    /// It is about to stop.
    Retired,
}

/// Leads until the term is over. An error is that of a term that did not begin.
pub(crate) async fn lead(
    local: &Arc<Local>,
    coord: &Arc<dyn Coord>,
    places: &Places,
    (leadership, patience): (&Leadership, Patience),
) -> Result<End, String> {
    let (fence, homes) = (leadership.fence(), Arc::new(NewTablets::default()));
    let catalog = local.catalog.lead(fence.clone(), homes.clone()).await;
    let catalog = catalog.map_err(|error| error.to_string())?;
    let control = ClusterControl::new(
        local.clone(),
        coord.clone(),
        places.data.clone(),
        (catalog.clone(), homes, leadership.version()),
    );
    let of_term = (coord, &catalog);
    let archives = TermArchives::begin(local, of_term, fence.clone(), &places.archiving).await?;
    tracing::info!(server = %local.peers.own(), term = leadership.version(), "this server leads the cluster");
    let master = Master::new(local.env.clone(), catalog.clone(), control.clone());
    master.keep_deleted_for(places.keep_deleted);
    master.start_splitting();
    let backups = backups(local, places, (&catalog, &control, &master), leadership.version());
    let rests = rests(local, (coord, &catalog, &fence), &places.archiving).await?;
    let leader = Leader::new(
        local.clone(),
        (coord.clone(), catalog),
        control.clone(),
        (places.roots.clone(), places.data.clone(), rests),
        (fence, leadership.version(), patience),
        (
            Checks::new(places.metrics.check.clone()),
            Waiting::new(places.metrics.waiting.clone()),
        ),
    );
    let (tell, ended) = oneshot::channel::<()>();
    let ended = ended.map(drop).boxed().shared();
    let rounds = leader.clone().lead(ended.clone());
    local.env.spawn("leader", rounds);
    local.env.spawn_background(
        "sweep of shared files",
        sweeping::run(leader.clone(), places.sweep, ended.clone()),
    );
    local.env.spawn_background(
        "merges of small tablets",
        merging::run(leader.clone(), master.clone(), places.merge, ended),
    );
    local.set_leader(Some(Arc::new(Term {
        master,
        control: control.clone(),
        leader: leader.clone(),
        backups: backups.clone(),
    })));
    let end = until_over(&leader, leadership).await;
    backups.end_term();
    archives.end();
    control.end_term();
    leader.waiting.end_term();
    leader.checks.end_term();
    let _ = tell.send(());
    Ok(end)
}

/// Backups of the cluster, made by this leader.
fn backups(
    local: &Arc<Local>,
    places: &Places,
    (catalog, control, master): (&Arc<Catalog>, &Arc<ClusterControl>, &Arc<Master>),
    term: u64,
) -> Arc<Backups> {
    let (following, control) = (local.catalog.clone(), control.clone());
    let leveled = control.clone();
    let barrier = move || {
        let (following, control) = (following.clone(), control.clone());
        async move { control.barrier(following.applied()).await }.boxed()
    };
    let root = DataRoot::new(local.env.clone(), catalog.clone(), master.clone(), local.server.clone());
    let mut root = root
        .with_barrier(Arc::new(barrier))
        .with_tablets(places.tablets.clone());
    if let Some(clock) = &local.clock {
        let times = clock.clone();
        master.take_times_from(Arc::new(move || times.now()));
        let level = move |micros| {
            let control = leveled.clone();
            async move { control.level(micros).await }.boxed()
        };
        root = root.with_clock(clock.clone()).with_leveling(Arc::new(level));
    }
    let archives = Archives {
        places: places.archiving.places.clone(),
        own: places.archiving.place(),
    };
    Backups::of_term(root, places.destinations.clone(), term).with_archives(archives)
}

/// Logs of servers that have ended, in this term.
async fn rests(
    local: &Local,
    (coord, catalog, fence): (&Arc<dyn Coord>, &Catalog, &Condition),
    archiving: &Archiving,
) -> Result<Rests, String> {
    let env = local.env.clone();
    let root = match &archiving.own {
        Some(_) => {
            let root = catalog.root_id([env.random_u64(), env.random_u64()]).await;
            Some(root.map_err(|error| error.to_string())?)
        }
        None => None,
    };
    Ok(Rests::new(
        env,
        (coord.clone(), fence.clone()),
        (archiving.clone(), local.clock.clone()),
        (local.peers.own(), root),
    ))
}

/// Completes when another leads, or nobody, or this server shall not lead any more.
async fn until_over(leader: &Leader, leadership: &Leadership) -> End {
    let Leader { local, coord, .. } = leader;
    loop {
        tokio::select! {
            biased;
            () = leader.cut_off() => return End::CutOff,
            () = local.retirement.is_asked() => return End::Retired,
            () = local.env.sleep(CHECK_INTERVAL) => {}
        }
        match election::leads(&**coord, leadership.version()).await {
            Ok(true) => {}
            Ok(false) => return End::Over,
            // Without the coordinator nobody leads, and nothing changes: the term may go on afterwards.
            Err(error) => tracing::debug!(%error, "the term of this leader cannot be checked"),
        }
    }
}
