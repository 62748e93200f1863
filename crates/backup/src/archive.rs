//! The archive of the commit log of a server, for restores to a moment.
//!
//! Bytes: `docs/formats/log-archive.md`. For users: `docs/backups.md`. The decision: `docs/adr/0046-archived-logs.md`.
//!
//! Modules, from the bottom up: [`format`]: bytes and names. [`store`]: parts in their storage, and ranges. `changes`: tables over
//! time. `changes_of`: reads these back. `round`: one part on its way. [`archiver`]: the loop. [`pieces`], `memory`: reading within bounds. [`replay`]: reads records back. `orphans`: writes of unknown tablets.
//! [`prune`]: deletes old parts.

pub mod archiver;
mod changes;
pub(crate) mod changes_of;
pub mod format;
pub(crate) mod history;
pub(crate) mod memory;
pub(crate) mod merged;
pub mod metrics;
pub mod notes;
pub(crate) mod orphans;
pub(crate) mod pieces;
pub mod prune;
pub(crate) mod replay;
pub(crate) mod rest;
mod round;
pub(crate) mod site;
pub mod store;

pub use archiver::{ArchiveSettings, Archiver, LifeOf, TablesOf};
pub use format::Life;
pub use metrics::ArchiveMetrics;
pub use notes::{Chain, Lives, Notes, new_chain};
pub use rest::{Rest, archive_rest};
pub use site::{AnyArchive, ClusterArchive};
pub use store::{Archive, Range};
