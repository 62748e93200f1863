//! The HBase API of a server: its port, its identity and its connections.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

use crate::config::Config;
use crate::listen;
use crate::node::Node;
use anyhow::Context;
use std::future::pending;
use std::net::SocketAddr;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_hbase::{HBaseFrontEnd, Identity};
use stele_serving::{Acceptor, EventLoops};
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

/// The front end over a node.
pub async fn front_end(
    config: &Config,
    node: &Node,
    env: Env,
    at: SocketAddr,
    metrics: &Metrics,
) -> anyhow::Result<HBaseFrontEnd> {
    let cluster_id = stele_hbase::cluster_id(&*node.admin, &env)
        .await
        .context("HBase cluster id")?;
    let identity = Identity {
        host: host(config, at),
        port: at.port(),
        start_code: u64::try_from(env.wall_micros() / 1_000).unwrap_or(0),
        cluster_id,
    };
    let (service, admin) = (node.service.clone(), node.admin.clone());
    Ok(HBaseFrontEnd::new(
        service,
        admin,
        env,
        identity,
        metrics,
        node.server.pool(),
    ))
}

/// The host that clients are told.
fn host(config: &Config, at: SocketAddr) -> String {
    if !config.hbase_host.is_empty() {
        return config.hbase_host.clone();
    }
    if at.ip().is_unspecified() {
        return rustix::system::uname().nodename().to_string_lossy().into_owned();
    }
    at.ip().to_string()
}

/// Accepts connections, if the API is served.
pub async fn accept(
    acceptor: &Acceptor,
    served: Option<(&TcpListener, HBaseFrontEnd)>,
    loops: &EventLoops,
    stopped: watch::Receiver<bool>,
) {
    let Some((listener, front_end)) = served else {
        return pending().await;
    };
    let serve = move |socket: TcpStream| {
        let (front_end, mut stopped) = (front_end.clone(), stopped.clone());
        async move {
            let drain = async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            if let Err(error) = front_end.serve(socket, drain).await {
                tracing::debug!(%error, "a connection ended early");
            }
        }
    };
    acceptor.accept(listener, loops, serve).await;
}
