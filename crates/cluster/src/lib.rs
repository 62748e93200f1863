//! Makes a process one server of a cluster (Bigtable §5).
//!
//! Terms:
//! * a *member* is a server with a record in the coordinator that is bound to its session;
//! * the *leader* is the member that won the election. It assigns tablets and makes all changes of the catalog;
//! * a *control call* goes from one member to another over the protocol between servers, and concerns the cluster.
//!
//! Each server follows the catalog, serves the tablets that are assigned to it, and answers every client: calls about rows go
//! to the owner of the tablet ([`stele_peer::Dispatcher`]), administrative calls to the leader ([`ClusterAdmin`]).
//!
//! The leader compares the catalog with the reports of the members, and carries out the orders of [`stele_assignment::decide`]
//! (`leader`). Nothing that serves rows depends on it.
//!
//! Invariants:
//! * Only the leader changes the catalog; each of its transactions carries the fence of its election.
//! * The log of a server is sealed before its tablets get another owner.
//! * A read is answered while the session of the server certainly lives, or after storage has confirmed that its log is not
//!   sealed (`lease`).
#![forbid(unsafe_code)]

mod access;
mod admin;
mod admin_calls;
mod archiving;
mod backup_calls;
mod candidacy;
mod checking;
mod clocks;
mod codec;
mod control;
mod election;
pub mod fuzzing;
mod gate;
mod leader;
mod lease;
mod local;
mod members;
mod merging;
mod messages;
mod node;
mod openings;
mod pace;
mod peers;
mod promotion;
mod records;
mod reporting;
mod retirement;
mod roots;
mod rules;
mod session;
mod status;
mod sweeping;
mod tablet_answers;
mod tablet_calls;
mod term;
#[cfg(test)]
mod testing;

pub use admin::ClusterAdmin;
pub use archiving::Archiving;
pub use checking::CHECK_FINDINGS;
pub use leader::TABLETS_UNSERVED_SECONDS;
pub use members::{Addresses, Members};
pub use merging::MergePace;
pub use node::{Agreed, ClusterNode, ClusterOptions, ClusterStorage, Connections, JoinError, agree, join};
pub use promotion::{Begun, KnownPromotion, PromotedRoot, Promotion, PromotionError, carried_records, promotion_of};
pub use roots::LogRoots;
pub use rules::RULES_AGE_MAX;
pub use sweeping::SweepPace;
