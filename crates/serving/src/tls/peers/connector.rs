//! Connections to other servers under TLS.

use super::{PeerTls, check_protocol};
use futures::future::BoxFuture;
use std::io;
use std::sync::Arc;
use stele_env::Env;
use stele_env::network::{Connection, Connector};
use tokio_rustls::TlsConnector;

/// Connects to servers, and performs the caller's part of a handshake. It never falls back to plain text.
pub struct PeerConnector {
    tls: Arc<PeerTls>,
    /// Connects without TLS.
    env: Env,
}

impl PeerConnector {
    /// Over the connections of an environment.
    pub fn new(tls: Arc<PeerTls>, env: Env) -> Arc<Self> {
        Arc::new(PeerConnector { tls, env })
    }
}

impl Connector for PeerConnector {
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>> {
        let (tls, env, address) = (Arc::clone(&self.tls), self.env.clone(), address.to_owned());
        Box::pin(async move {
            let (config, name) = tls.client_config(&address)?;
            // Its errors pass as they are: a refused connection tells that there is no process.
            let socket = env.connect(&address).await?;
            match TlsConnector::from(config).connect(name, socket).await {
                Ok(stream) => {
                    check_protocol(stream.get_ref().1.alpn_protocol())?;
                    Ok(Box::new(stream) as Connection)
                }
                Err(error) => {
                    let event = format!("the TLS handshake with the server at {address} failed");
                    tls.warnings.tell(&event, &error);
                    Err(error)
                }
            }
        })
    }
}
