//! The HBase API of a server: its ports, its identity and its connections.
//!
//! One port is the API's, and the other that of the façade of ZooKeeper.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

use crate::listen;
use crate::node::Node;
use crate::security::Security;
use anyhow::Context;
use futures::future::BoxFuture;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_hbase::{HBaseFrontEnd, Identity};
use stele_hdfs::ForeignDirectory;
use stele_objects::ForeignObjects;
use stele_serving::{Acceptor, Application, ClientStream, EventLoops};
use stele_settings::{Config, Place};
use stele_storage::foreign::{ForeignFiles, ForeignRoot};
use stele_storage::local::ForeignFolder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The port of the HBase API.
pub enum Port {
    /// `--hbase off`.
    Off,
    /// Bound.
    Bound(TcpListener),
    /// The default address is taken. Another server on the same machine is no reason to fail.
    Taken(anyhow::Error),
}

impl Port {
    /// Listens on the address of the HBase API.
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let Some(address) = config.hbase else {
            return Ok(Port::Off);
        };
        match listen::bind("hbase", address).await {
            Ok(listener) => Ok(Port::Bound(listener)),
            Err(error) if config.hbase_is_given => Err(error),
            Err(error) => Ok(Port::Taken(error)),
        }
    }

    /// The address that it is bound to.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Port::Bound(listener) => listener.local_addr().ok(),
            Port::Off | Port::Taken(_) => None,
        }
    }

    /// The listener, if there is one. A taken port is logged here and not earlier, so that a start that fails for another
    /// reason names that reason only.
    pub fn listener(self) -> Option<TcpListener> {
        match self {
            Port::Off => None,
            Port::Bound(listener) => Some(listener),
            Port::Taken(error) => {
                tracing::warn!(
                    "{error:#}; the HBase API is not served: give it an address with --hbase, or turn it off"
                );
                None
            }
        }
    }
}

/// The listeners of both ports, as far as they are served.
pub struct Listeners {
    hbase: Option<TcpListener>,
    facade: Option<TcpListener>,
}

impl Listeners {
    /// Of a bound port, and of the façade.
    pub fn new(port: Port, facade: Option<TcpListener>) -> Self {
        let hbase = port.listener();
        if hbase.is_none() && facade.is_some() {
            tracing::warn!(
                "zookeeper_facade names the HBase API, which is not served: clients of the facade find nothing"
            );
        }
        Listeners { hbase, facade }
    }

    /// The addresses of the API and of the façade.
    pub fn addresses(&self) -> std::io::Result<[Option<SocketAddr>; 2]> {
        let address = |listener: &Option<TcpListener>| listener.as_ref().map(TcpListener::local_addr).transpose();
        Ok([address(&self.hbase)?, address(&self.facade)?])
    }
}

/// Listens on the address of the façade, if there is one.
pub async fn bind_facade(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    match config.zookeeper_facade {
        Some(address) => listen::bind("zookeeper_facade", address).await.map(Some),
        None => Ok(None),
    }
}

/// The front end over a node, if the API is served.
pub async fn front_end(
    config: &Config,
    node: &Node,
    env: Env,
    at: Option<SocketAddr>,
    metrics: &Metrics,
) -> anyhow::Result<Option<HBaseFrontEnd>> {
    let Some(at) = at else {
        return Ok(None);
    };
    let cluster_id = match &node.cluster {
        Some(of) => stele_hbase::uuid_of(of.cluster),
        None => stele_hbase::cluster_id(&*node.admin, &env)
            .await
            .context("HBase cluster id")?,
    };
    let started_micros = node.cluster.as_ref().map(|of| of.started_micros);
    let identity = Identity {
        host: host(config, at),
        port: at.port(),
        start_code: u64::try_from(started_micros.unwrap_or_else(|| env.wall_micros()) / 1_000).unwrap_or(0),
        cluster_id,
    };
    let files = files_of_loads(config, &env).context("bulk_load_root")?;
    let (service, admin) = (node.service.clone(), node.admin.clone());
    let pool = node.server.pool();
    Ok(Some(HBaseFrontEnd::new(
        service,
        admin,
        env,
        (identity, files),
        metrics,
        pool,
    )))
}

/// The files that bulk loads may read.
fn files_of_loads(config: &Config, env: &Env) -> anyhow::Result<ForeignFiles> {
    let root = |place: &Place| -> anyhow::Result<Arc<dyn ForeignRoot>> {
        Ok(match place {
            Place::Folder(folder) => Arc::new(ForeignFolder::new(folder, env.clone())?),
            Place::Objects(address) => Arc::new(ForeignObjects::new(address, env.clone())),
            Place::Hdfs(address) => Arc::new(ForeignDirectory::new(address, env.clone())?),
        })
    };
    let roots = config.bulk_load_roots.iter().map(root);
    Ok(ForeignFiles::new(roots.collect::<anyhow::Result<_>>()?))
}

/// The host that clients are told.
fn host(config: &Config, at: SocketAddr) -> String {
    if let Some(host) = config.hbase_told_host() {
        return host.to_owned();
    }
    if at.ip().is_unspecified() {
        return rustix::system::uname().nodename().to_string_lossy().into_owned();
    }
    at.ip().to_string()
}

/// Accepts connections of both ports.
pub async fn accept(
    acceptor: &Acceptor,
    listeners: &Listeners,
    front_end: Option<HBaseFrontEnd>,
    security: &Security,
    loops: &EventLoops,
    stopped: watch::Receiver<bool>,
) {
    let facade = accept_on(
        acceptor,
        listeners.facade.as_ref().zip(front_end.clone()),
        (loops, stopped.clone(), security),
        |front_end, socket, drain| async move {
            if let Err(error) = front_end.serve_zookeeper(socket, drain).await {
                tracing::debug!(%error, "a connection of the ZooKeeper facade ended early");
            }
        },
    );
    let api = accept_on(
        acceptor,
        listeners.hbase.as_ref().zip(front_end),
        (loops, stopped, security),
        |front_end, socket, drain| async move {
            if let Err(error) = front_end.serve(socket, drain).await {
                tracing::debug!(%error, "a connection ended early");
            }
        },
    );
    tokio::join!(api, facade);
}

/// Accepts connections of a port, if it is served. `serve` gets a future that completes when the server stops.
async fn accept_on<F: Future<Output = ()> + Send + 'static>(
    acceptor: &Acceptor,
    served: Option<(&TcpListener, HBaseFrontEnd)>,
    (loops, stopped, security): (&EventLoops, watch::Receiver<bool>, &Security),
    serve: impl Fn(HBaseFrontEnd, ClientStream, BoxFuture<'static, ()>) -> F + Clone + Send + Sync + 'static,
) {
    let Some((listener, front_end)) = served else {
        return pending().await;
    };
    let port = security.port(Application::Unnamed);
    let serve = move |socket: TcpStream| {
        let (serve, front_end, port, mut stopped) = (serve.clone(), front_end.clone(), port.clone(), stopped.clone());
        async move {
            let Some(socket) = port.begin(socket).await else { return };
            let drain = async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let front_end = front_end.for_connection(socket.certificate_name());
            serve(front_end, socket, Box::pin(drain)).await;
        }
    };
    acceptor.accept(listener, loops, serve).await;
}
