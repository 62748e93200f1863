//! Starts a server of a cluster: storage, coordinator, port for other servers.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

mod port;

use crate::backup_destination;
use crate::config::{Cluster, Config, Place};
use crate::data_dir::{self, Data};
use crate::listen;
use crate::node::{self, Node, OfCluster};
use crate::security::{self, EtcdCredentials};
use anyhow::{Context, bail};
use async_trait::async_trait;
use port::PeerPort;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stele_access::Forwarded;
use stele_client::{ServiceError, SlowCalls, TableAdmin};
use stele_cluster::{Addresses, ClusterNode, ClusterOptions, ClusterStorage, LogRoots, SweepPace};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_etcd::EtcdCoord;
use stele_hbase::ConditionTests;
use stele_objects::{Address, ObjectMetrics, ObjectStorage};
use stele_serving::{EventLoops, PeerConnector};
use stele_storage::Storage;
use stele_storage::servers::log_root;
use stele_tabletserver::{RecoveryReport, SealedLogs};
use stele_types::ServerId;
use tokio::sync::watch;

/// Bytes of a log that count as much as one of its parts. After a failure rows wait until the log is read, so a log of 256 MiB
/// has at most a thousand parts, which take about a second.
const LOG_PART_COST: u64 = 256 << 10;

/// Pause between two checks that all tablets have moved.
const LEAVE_PAUSE: Duration = Duration::from_millis(20);

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
    let port = PeerPort::new(listener, tls, env.clone(), metrics);
    let Place::Objects(address) = &config.data else {
        bail!("data: the servers of a cluster share an object store; give s3://, gs:// or az:// with --data");
    };
    let coord = connect(cluster, &env, metrics).await?;
    let objects = data_dir::share_objects(address, config.cache.clone(), env.clone(), metrics).await;
    let objects = objects.with_context(|| address.to_string())?;
    let roots = Arc::new(ObjectRoots {
        address: address.clone(),
        env: env.clone(),
        own: tokio::sync::OnceCell::new(),
    });
    let storage = ClusterStorage {
        data: objects,
        roots: roots.clone(),
    };
    let parts = node::server_parts(config);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let slow = Arc::new(SlowCalls::new(config.slow_call));
    let options = ClusterOptions {
        slow: slow.clone(),
        session: cluster.session,
        addresses: addresses(cluster, at, bound),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lanes: cores,
        tests: Arc::new(ConditionTests::new(env.clone(), &parts.1.pool)),
        sweep: SweepPace::default(),
        checks_rights: config.security.access.is_some(),
        forwarded,
        destinations: backup_destination::opener_of_cluster(env.clone()),
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
        ..
    } = joined;
    tracing::info!(server = %number, "this server has joined its cluster");
    let stop_peers = port.serve(peers, loops.clone());
    let log = roots.own.get().cloned().context("the server has no log")?;
    Ok(Joined {
        node: Node {
            backups: None,
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

/// Connects to the coordinator.
async fn connect(cluster: &Cluster, env: &Env, metrics: &Metrics) -> anyhow::Result<Arc<EtcdCoord>> {
    let (credentials, security) = EtcdCredentials::read(&cluster.connections.etcd)?;
    let coord = EtcdCoord::connect(&cluster.coordinator, security, env.clone()).await;
    let coord = coord.with_context(|| cluster.coordinator.to_string())?;
    credentials.follow(Arc::clone(&coord), env, metrics)?;
    Ok(coord)
}

/// The addresses that others are told.
fn addresses(cluster: &Cluster, peer: SocketAddr, bound: Bound) -> Addresses {
    let told = |address: SocketAddr| match cluster.advertise.as_str() {
        "" => address.to_string(),
        host => format!("{host}:{}", address.port()),
    };
    Addresses {
        peer: told(peer),
        bigtable: told(bound.bigtable),
        hbase: bound.hbase.map(told).unwrap_or_default(),
        http: told(bound.http),
    }
}

/// Has the tablets of a server that stops move to others, as far as there is time: they need no replay then.
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
        while !node.server.all_served().is_empty() {
            env.sleep(LEAVE_PAUSE).await;
        }
        Ok::<(), ServiceError>(())
    };
    match env.timeout(wait, moved).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "tablets do not move before the stop; others replay their log"),
        Err(_) => tracing::warn!("tablets were left after {wait:?}; others replay their log"),
    }
}

/// The log roots in an object store.
struct ObjectRoots {
    address: Address,
    env: Env,
    /// That of this server: the first that was taken over.
    own: tokio::sync::OnceCell<Arc<ObjectStorage>>,
}

#[async_trait]
impl SealedLogs for ObjectRoots {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let root = self.address.below(&log_root(server));
        Ok(ObjectStorage::look(&root, self.env.clone()).await?)
    }
}

#[async_trait]
impl LogRoots for ObjectRoots {
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let root = self.address.below(&log_root(server));
        let log = ObjectStorage::open(&root, self.env.clone(), None, ObjectMetrics::default()).await?;
        log.set_part_cost(LOG_PART_COST);
        let _ = self.own.set(log.clone());
        Ok(log)
    }
}
