//! `stele migrate`: copies tables of a live HBase into Stele, and compares both.
//!
//! Both ends speak HBase's native RPC. The copy is a raw scan of all versions: cells keep their timestamps, and
//! tombstones are copied as such. So the copy may run next to a replication peer that writes the same cells, and may be
//! repeated. `docs/migrating-from-hbase.md` has the order of steps.
//!
//! Terms: the *source* is the HBase cluster, the *target* is Stele. A *range* is the rows of a region of the source when
//! the copy began; it is the unit of parallel work and of the progress file.
//!
//! Layers, pure first: [`address`], [`changes`], [`digest`], [`late`] know no network; [`journal`] knows files; [`ends`],
//! [`tables`], [`workers`] know the network; [`copy`], [`compare`], [`recheck`],
//! [`extra`] and [`verify`] do the work.
//!
//! Invariants:
//! * A range's position moves only over rows whose cells the target has acknowledged.
//! * Memory is bounded by the number of ranges copied at a time, and by the largest cell.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command-line client, outside the server's determinism seam"
)]

pub mod address;
pub mod args;
pub mod changes;
pub mod compare;
pub mod copy;
pub mod digest;
pub mod ends;
pub mod extra;
pub mod journal;
pub mod late;
pub mod pace;
pub mod recheck;
pub mod run;
pub mod tables;
pub mod verify;
pub mod workers;

pub use args::MigrateArgs;
pub use run::run;
