//! Ports that the server listens on.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

use anyhow::Context;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Listens on an address; `what` is the setting that names it.
pub async fn bind(what: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{what}: cannot listen on {address}"))
}
