//! A tablet server serves tablets and owns their commit log. It keeps memory and disk within bounds (Bigtable
//! §5.2–5.4).
//!
//! * [`server`] assembles the services below over shared `parts`; [`service`] gives the router and the master their faces.
//! * [`write`] is the way of a write from request to acknowledgement: [`admission`] refuses or delays it when memory or disk
//!   run out, [`latch`] makes a [`row_operation`] atomic, `commit` takes it through the `log` into memtables.
//!   [`waits`] says how long writers wait, and why.
//! * [`read`] answers reads, of hot rows from the [`row_cache`].
//! * `tablets` are the tablets that are served; `lifecycle` makes and removes them, and `replacement` and [`split`]
//!   replace them by others. `snapshots` lists their files, and makes tablets over such lists.
//! * `archived_log` shows the log to its archive.
//! * `loads` takes sorted cells into tablets without the log.
//! * `assignments` opens and closes tablets while the server runs, where several servers share the data ([`roots`]).
//! * [`maintenance`] decides when tablets are flushed and compacted; `work` is how it is told.
//! * [`governor`] divides memory.
//! * [`heat`] samples which rows are read and written, and [`status`] describes tablets, for people who watch the server.
//! * [`recovery`] turns a data root into tablets that can be served; [`offline`] does the same without serving them.
#![forbid(unsafe_code)]

pub mod admission;
mod archived_log;
mod assignments;
mod commit;
pub mod error;
pub mod governor;
pub mod heat;
mod imports;
pub mod latch;
mod lifecycle;
mod loads;
mod log;
pub mod maintenance;
mod memory;
pub mod metrics;
pub mod offline;
pub mod options;
mod parts;
pub mod read;
mod read_for_write;
pub mod recovery;
mod replacement;
pub mod roots;
pub mod row_cache;
pub mod row_operation;
mod schemas;
pub mod server;
pub mod service;
pub mod snapshots;
mod split;
pub mod status;
mod stopping;
mod tablets;
mod times;
pub mod waits;
mod work;
pub mod write;

pub use archived_log::ArchivedLog;
pub use error::ServerError;
pub use imports::SnapshotImport;
pub use offline::flush_all;
pub use options::{MemoryBudget, MemtableLimits, ServerOptions};
pub use read::OneRow;
pub use recovery::{RecoveryReport, last_epoch};
pub use roots::{Moments, SealedLogs, SharedRoots, delete_log, settle_log};
pub use server::TabletServer;
pub use tablets::{DropNumber, Served};
pub use waits::{Cause, WriteWaits};
