//! The master: changes of tables as a whole (Bigtable §5.2).
//!
//! [`master::Master`] carries out one change after the other. [`admin`] implements the administrative half of the service
//! interface. Each change is one commit point in the catalog: the manifests of new tablets are written before it, and the
//! files of dropped ones are deleted after it. `replacement` replaces tablets by others: `split`, `merge`
//! and `truncation` say which. `snapshots` takes snapshots and makes tables of them. `access` changes access rules. `files` passes on requests for flushes and compactions. The master has no
//! state of its own that must survive: the catalog and the manifests have all of it.
#![forbid(unsafe_code)]

mod access;
pub mod admin;
mod automated;
mod backups;
mod due;
mod error;
mod files;
mod kept;
pub mod master;
mod merge;
mod replacement;
mod restored;
pub mod schema;
mod snapshots;
mod split;
mod switches;
mod truncation;

pub use kept::kept_in;
pub use master::Master;
pub use snapshots::snapshots_in;
