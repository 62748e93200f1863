//! The port for the other servers of the cluster.
//!
//! Under TLS only a server of the cluster comes past the handshake. So a call over it is one of a server, and the caller that it
//! names is believed.

use std::sync::Arc;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_peer::PeerServer;
use stele_serving::{Acceptor, EventLoops, Handshakes, PeerTls, PortSecurity};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Connections of other servers: each has as many as it has cores, and one for control.
const CONNECTIONS_MAX: usize = 16_384;

/// The port, before it serves.
pub struct PeerPort {
    listener: TcpListener,
    tls: Option<Arc<PeerTls>>,
    handshakes: Arc<Handshakes>,
    env: Env,
}

impl PeerPort {
    /// Over a listening socket; plain text without TLS.
    pub fn new(listener: TcpListener, tls: Option<Arc<PeerTls>>, env: Env, metrics: &Metrics) -> Self {
        PeerPort {
            listener,
            tls,
            handshakes: Arc::new(Handshakes::of_peers(env.clone(), metrics)),
            env,
        }
    }

    /// Accepts connections of other servers from now on: they must find this one before it answers clients. They end when the
    /// sender is dropped, or sends true.
    pub fn serve(self, server: PeerServer, loops: Arc<EventLoops>) -> watch::Sender<bool> {
        let (stop, stopped) = watch::channel(false);
        // Its gauges are those of clients, which are counted elsewhere.
        let acceptor = Acceptor::new(CONNECTIONS_MAX, self.env, &Metrics::new());
        let (tls, handshakes, listener) = (self.tls, self.handshakes, self.listener);
        tokio::spawn(async move {
            let mut ended = stopped.clone();
            let serve = move |socket: TcpStream| {
                let connection = Connection {
                    server: server.clone(),
                    tls: tls.clone(),
                    handshakes: Arc::clone(&handshakes),
                    stopped: stopped.clone(),
                };
                connection.serve(socket)
            };
            tokio::select! {
                () = acceptor.accept(&listener, &loops, serve) => {}
                _ = ended.wait_for(|stop| *stop) => {}
            }
        });
        stop
    }
}

/// A connection that was accepted.
struct Connection {
    server: PeerServer,
    tls: Option<Arc<PeerTls>>,
    handshakes: Arc<Handshakes>,
    stopped: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(self, socket: TcpStream) {
        let mut stopped = self.stopped;
        let stop = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let outcome = match self.tls {
            None => self.server.serve(socket, stop).await,
            Some(tls) => {
                // From before the handshake on: it may still trust an authority that is replaced meanwhile.
                let changed = tls.trust_changed();
                let Some(socket) = PortSecurity::peers(tls, self.handshakes).begin(socket).await else {
                    return;
                };
                let drain = async {
                    futures::future::select(Box::pin(stop), Box::pin(changed)).await;
                };
                self.server.proven().serve(socket, drain).await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a connection of another server ended early");
        }
    }
}

#[cfg(test)]
mod tests;
