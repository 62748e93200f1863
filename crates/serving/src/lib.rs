//! Event loops, connections and HTTP/2 for all front ends.
//!
//! One *event loop* per core owns its connections: a thread with a runtime of its own ([`EventLoops`]). The
//! [`Acceptor`] limits connections and hands each one to the loop with the fewest. A request runs on its connection's
//! loop from decode to the last byte of the response, without a task of its own ([`http2`]). The responses that are
//! ready when a loop has polled a connection leave it with one write ([`gathered_io`]).
//!
//! A connection may begin with a handshake of TLS ([`PortSecurity`]). [`Handshakes`] bounds their time and their number.
//!
//! A front end is an [`Http2Service`]: it gets requests and returns response bodies. It knows neither sockets nor
//! loops, so tests and the simulation run the same code over connections in memory.
#![forbid(unsafe_code)]

mod acceptor;
mod client_stream;
mod event_loops;
pub mod gathered_io;
mod handshakes;
pub mod http2;
mod progress;
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, clippy::unwrap_used, reason = "certificates for tests")]
pub mod testing;
mod tls;
mod warnings;

pub use acceptor::{Acceptor, connections_max};
pub use client_stream::{ClientStream, PortSecurity};
pub use event_loops::EventLoops;
pub use handshakes::{HANDSHAKE_WAIT, HANDSHAKES_MAX, Handshakes};
pub use http2::{ConnectionError, Http2Service, Http2Settings, RequestBody, serve};
pub use progress::Progress;
pub use tls::{Application, PeerConnector, PeerMaterial, PeerTls, Tls, TlsError, TlsMaterial, name_of_certificate};
