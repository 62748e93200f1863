//! Decides which server serves which tablet. Bigtable §5.2 gives this job to the master.
//!
//! Terms:
//! * a *server* is one life of a process. A restarted process is another server, so its number also names its commit log;
//! * the *leader* is the server whose master is elected;
//! * an *order* is one step for the leader to carry out: a catalog transaction, or a request to a server;
//! * a server is *dead* if its session has ended, or on evidence ([`Suspicions`]).
//!
//! [`decide`] compares the catalog with the servers' reports and returns orders. It keeps no state between calls. So a new
//! leader continues where the former one stopped. An order that was lost, repeated or half done is decided again from the
//! state that it left, and no state needs a tool that repairs it.
//!
//! Invariants of the orders:
//! * A tablet gets another owner only if the former one has closed it, if the former one has not opened it and will not, or if the
//!   log of the former one is sealed.
//! * An assignment names every log that may hold records which the tablet's files lack.
//! * A log is deleted only if it is sealed and no tablet names it or its server.
//! * No tablet goes to a server that is dead, drains, or does not answer the leader.
//!
//! Pure: no I/O and no clock. The caller passes the time as a duration since any fixed moment.
#![forbid(unsafe_code)]

mod attempts;
mod balance;
mod cost;
mod decide;
mod homes;
mod order;
mod sizes;
mod suspicion;
mod view;

pub use attempts::Attempts;
pub use decide::decide;
pub use order::Order;
pub use sizes::{MergeCandidate, limit_divisor, merges, splits_for_load};
pub use suspicion::{Condemned, Suspicions};
pub use view::{
    Assignment, Attempted, FailedClosing, LogState, Owner, Report, ServedState, ServerView, Session, TableView,
    TabletView, View,
};
