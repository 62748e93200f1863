//! A client of HBase's native RPC, version 2.6, without ZooKeeper.
//!
//! The load generator and the migration are built on it. Like HBase's own client it has one socket to each service of a
//! server, sends requests together, and takes responses in any order.
//!
//! Modules, from the bottom up: [`failure`] decides about retries. [`dial`] makes sockets, plain or under TLS. `slots` and [`socket`] carry calls. [`servers`],
//! [`locations`] and [`cluster`] find servers. [`batch`], [`scan`] and [`master`] are calls of tables.
//!
//! Invariants:
//! * A call ends: each attempt has a time limit, and all attempts together have one too.
//! * Calls in progress, unsent bytes, cached locations and sockets are bounded.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a client, outside the server's determinism seam"
)]

pub mod batch;
pub mod cluster;
pub mod dial;
pub mod failure;
pub mod locations;
pub mod master;
pub mod nonces;
pub mod scan;
pub mod servers;
pub mod settings;
mod slots;
pub mod socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use cluster::Cluster;
pub use failure::{BackOff, Failure, Remedy};
pub use settings::{Settings, Token};
