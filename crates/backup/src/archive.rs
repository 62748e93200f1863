//! The archive of the commit log of a server, for restores to a moment.
//!
//! Bytes: `docs/formats/log-archive.md`. For users: `docs/backups.md`. The decision: `docs/adr/0046-archived-logs.md`.
//!
//! Modules, from the bottom up: [`format`]: bytes and names. [`store`]: parts in their storage, and ranges. `changes`: tables over
//! time. `changes_of`: reads these back. `round`: one part on its way. [`archiver`]: the loop. [`replay`]: reads records back. `orphans`: writes of unknown tablets.
//! [`prune`]: deletes old parts.

pub mod archiver;
mod changes;
pub(crate) mod changes_of;
pub mod format;
pub(crate) mod history;
pub mod metrics;
pub(crate) mod orphans;
pub mod prune;
pub mod replay;
mod round;
pub mod store;

pub use archiver::{ArchiveSettings, Archiver};
pub use metrics::ArchiveMetrics;
pub use store::{Archive, Range};
