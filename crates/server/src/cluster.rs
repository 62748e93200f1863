//! Starts a server of a cluster: storage, coordinator, port for other servers.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

mod port;
mod roots;

use crate::backup_destination;
use crate::data_dir::{self, Data};
use crate::encryption::Keys;
use crate::listen;
use crate::node::{self, Node, OfCluster};
use crate::security::{self, EtcdCredentials};
use anyhow::Context;
use port::PeerPort;
use roots::RootsOfPlace;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stele_access::Forwarded;
use stele_backup::Places;
use stele_backup::archive::ArchiveMetrics;
use stele_client::{ServiceError, SlowCalls, TableAdmin};
use stele_cluster::{
    Addresses, Agreed, Archiving, ClusterNode, ClusterOptions, ClusterStorage, Connections, MergePace, SweepPace,
};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_etcd::EtcdCoord;
use stele_hbase::ConditionTests;
use stele_serving::{EventLoops, PeerConnector, PeerTls};
use stele_settings::{Cluster, Config, Place};
use stele_storage::Storage;
use stele_storage::remote::cache::CacheOptions;
use stele_tabletserver::RecoveryReport;
use tokio::sync::watch;

/// Pause between two checks that all tablets have moved.
const LEAVE_PAUSE: Duration = Duration::from_millis(20);
/// Longest wait until this server does not lead. Without it others find its process gone, a moment after it has ended.
const RETIRE_WAIT: Duration = Duration::from_secs(5);

/// A server that has joined its cluster.
pub struct Joined {
    /// The node, as the front ends need it.
    pub node: Node,
    /// Its storage, and the end of its ownership.
    pub data: Data,
    /// Ends the connections of other servers when it is dropped, or sends true.
    pub stop_peers: watch::Sender<bool>,
}

/// The addresses of the other ports, as they are bound.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Bigtable.
    pub bigtable: SocketAddr,
    /// HBase, if it is served.
    pub hbase: Option<SocketAddr>,
    /// HTTP.
    pub http: SocketAddr,
}

/// Joins the cluster of the settings. `forwarded` writes the calls that other servers forward to the audit log.
pub async fn join(
    config: &Config,
    cluster: &Cluster,
    env: Env,
    (bound, loops, forwarded): (Bound, &Arc<EventLoops>, Option<Arc<Forwarded>>),
    metrics: &Metrics,
) -> anyhow::Result<Joined> {
    let listener = listen::bind("peer", cluster.peer).await?;
    let at = listener.local_addr()?;
    let tls = security::of_peers(cluster.connections.peers.as_ref(), &env, metrics)?;
    let env = match &tls {
        None => env,
        Some(tls) => env.clone().connecting_by(PeerConnector::new(Arc::clone(tls), env)),
    };
    let port = PeerPort::new(listener, tls.clone(), env.clone(), metrics);
    let coord = connect(cluster, &env, metrics).await?;
    let place = cluster.commit_log.as_ref().unwrap_or(&config.data);
    let agreed = stele_cluster::agree(&*coord, &env, &place.to_string()).await?;
    let keys = Keys::open(&config.security.encryption, &env).await?;
    let data = share(&config.data, &agreed, config.cache.clone(), (&env, metrics)).await?;
    let (data, data_keys) = keys.over_shared(data, &config.data.to_string()).await?;
    if let Some(place) = &cluster.commit_log {
        // Its format alone is of interest: each server opens its own root below.
        share(place, &agreed, None, (&env, &Metrics::new())).await?;
    }
    let roots = Arc::new(RootsOfPlace::new(place.clone(), env.clone(), data_keys));
    let storage = ClusterStorage {
        data,
        roots: roots.clone(),
    };
    let mut parts = node::server_parts(config);
    // Two survivors replay it with a quarter of their memtables each. More is flushed before it is served.
    parts.1.log_bytes_max = parts.1.log_bytes_max.min(parts.1.memtables.bytes_max() / 2);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let slow = Arc::new(SlowCalls::new(config.slow_call));
    let options = ClusterOptions {
        slow: slow.clone(),
        session: cluster.session,
        addresses: addresses(config, cluster, at, bound),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lanes: cores,
        tests: Arc::new(ConditionTests::new(env.clone(), &parts.1.pool)),
        agreed,
        sweep: SweepPace::default(),
        merge: MergePace::of_tablets(config.tablet_size),
        keep_deleted: config.keep_deleted,
        checks_rights: config.security.access.is_some(),
        forwarded,
        destinations: backup_destination::opener_of_cluster(env.clone(), keys.clone()),
        archiving: archiving(config, (&env, keys), metrics),
    };
    let joined = stele_cluster::join(env.clone(), coord, storage, parts, options, metrics).await?;
    let ClusterNode {
        service,
        admin,
        server,
        peers,
        number,
        given_up,
        started_micros,
        cluster,
        archiver,
        connections,
        ..
    } = joined;
    if let Some(tls) = tls {
        env.spawn("connections to other servers", follow_trust(tls, connections));
    }
    tracing::info!(server = %number, "this server has joined its cluster");
    let stop_peers = port.serve(peers, loops.clone());
    let log = roots.own().context("the server has no log")?;
    Ok(Joined {
        node: Node {
            backups: None,
            archiver,
            service,
            admin: admin.clone(),
            rules: admin.clone(),
            server,
            recovery: RecoveryReport::default(),
            slow,
            cluster: Some(OfCluster {
                admin,
                number,
                cluster,
                started_micros,
            }),
        },
        data: Data::of_cluster(log, given_up),
        stop_peers,
    })
}

/// Has connections replaced when other servers are trusted than before.
async fn follow_trust(tls: Arc<PeerTls>, connections: Connections) {
    let mut changed = Box::pin(tls.trust_changed());
    loop {
        changed.await;
        // Before the connections are replaced: of a change meanwhile there would be no word.
        changed = Box::pin(tls.trust_changed());
        connections.renew();
    }
}

/// The archive of the logs, if the settings have one, and how others are read.
fn archiving(config: &Config, (env, keys): (&Env, Keys), metrics: &Metrics) -> Archiving {
    let own = config.archive_log.as_ref().map(node::archive_settings);
    Archiving {
        places: Places::new(backup_destination::opener_of_cluster_archives(env.clone(), keys)),
        metrics: match &own {
            Some(_) => ArchiveMetrics::new(metrics),
            None => ArchiveMetrics::new(&Metrics::new()),
        },
        own,
    }
}

/// Opens a place of the cluster, which must not be that of another one.
async fn share(
    place: &Place,
    agreed: &Agreed,
    cache: Option<CacheOptions>,
    (env, metrics): (&Env, &Metrics),
) -> anyhow::Result<Arc<dyn Storage>> {
    let shared = data_dir::share(place, &agreed.cluster, cache, env.clone(), metrics).await;
    shared.with_context(|| place.to_string())
}

/// Connects to the coordinator.
async fn connect(cluster: &Cluster, env: &Env, metrics: &Metrics) -> anyhow::Result<Arc<EtcdCoord>> {
    let (credentials, security) = EtcdCredentials::read(&cluster.connections.etcd)?;
    let coord = EtcdCoord::connect(&cluster.coordinator, security, env.clone()).await;
    let coord = coord.with_context(|| cluster.coordinator.to_string())?;
    credentials.follow(Arc::clone(&coord), env, metrics)?;
    Ok(coord)
}

/// The addresses that others are told.
fn addresses(config: &Config, cluster: &Cluster, peer: SocketAddr, bound: Bound) -> Addresses {
    let told = |address: SocketAddr| cluster.told(address);
    Addresses {
        peer: told(peer),
        bigtable: told(bound.bigtable),
        hbase: bound.hbase.map(|at| config.hbase_told(at)).unwrap_or_default(),
        http: told(bound.http),
    }
}

/// Has the tablets of a server that stops move to others, as far as there is time: they need no replay then. Afterwards another server
/// leads, if this one did.
pub async fn leave(node: &Node, env: &Env, wait: Duration) {
    let Some(OfCluster { admin, number, .. }) = &node.cluster else {
        return;
    };
    let moved = async {
        let status = admin.cluster_status().await?;
        let others = status.servers.iter().filter(|server| server.server != *number);
        if !others.clone().any(|server| server.lives && !server.drains) {
            return Ok(());
        }
        admin.drain_server(*number, true).await?;
        // One that is closed here is not served elsewhere before the leader has heard of it.
        while !node.server.all_served().is_empty() || admin.has_tablets() {
            env.sleep(LEAVE_PAUSE).await;
        }
        Ok::<(), ServiceError>(())
    };
    match env.timeout(wait, moved).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "tablets do not move before the stop; others replay their log"),
        Err(_) => tracing::warn!("tablets were left after {wait:?}; others replay their log"),
    }
    if env.timeout(RETIRE_WAIT, admin.retire()).await.is_err() {
        tracing::warn!("the coordinator does not answer; others elect a leader when they find this process gone");
    }
}
