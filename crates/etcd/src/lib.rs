//! Coordination of many processes on etcd, an external service with a majority of members.
//!
//! Terms:
//! * a *member* is one server of etcd; every member serves every request;
//! * the *name* of a coordinator is the prefix of all its keys, so that one etcd can serve several;
//! * the *guard* is a key of one coordinator object, which every transaction of that object changes;
//! * the *lease* is etcd's name of a session.
//!
//! Invariants:
//! * A write transaction is conditioned on the revision of the guard, and writes the guard. So a request that a network
//!   delays cannot take effect once another transaction of this object succeeded ([`guard`], ADR 27).
//! * One write transaction of an object is in flight at a time. The next one waits until the outcome is known.
//! * A session is over by this process's clock before etcd ends its lease ([`leases`]).
//! * Every request has a deadline, and every list, table and retry is bounded.
//!
//! The requests use tokio's sockets and timers inside `tonic`: this is the one place of coordination outside of the
//! seam, and the simulation uses the embedded coordinator. Deadlines, retries and sessions use [`stele_env::Env`].
//!
//! `docs/coordination.md` states the requirements on etcd, the layout of the keys, and the errors.
#![forbid(unsafe_code)]

mod address;
mod calls;
mod coord;
mod failure;
pub mod fuzzing;
mod guard;
mod keys;
mod leases;
mod listing;
mod members;
mod messages;
mod position;
mod security;
mod transaction;
mod watching;
mod writer;

pub use address::{AddressError, EtcdAddress};
pub use coord::{EtcdCoord, REQUEST_LIMIT};
pub use security::{EtcdSecurity, EtcdUser};
