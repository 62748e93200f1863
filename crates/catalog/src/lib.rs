//! The catalog records the namespaces, tables and tablets. Bigtable uses a METADATA table for this (§5.1).
//!
//! Records live in the coordinator, one key each; a change is one transaction, or, when it has more records than a
//! transaction may have, several of which the last is the commit point:
//!
//! * a table exists when its table record does; tablet records without one are left over and ignored;
//! * a tablet exists when its record does and its table's; the tablets of a table cover all rows without overlap, which
//!   [`view::TableEntry`] checks whenever it is built.
//! * a snapshot exists when its record does; its files in storage are made before and deleted after.
//!
//! * the access rules of a resource are one record, which goes with the resource.
//!
//! [`Catalog`] keeps the whole in memory as an immutable [`CatalogView`] that readers share.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod error;
mod following;
pub mod record;
pub mod view;

pub use catalog::{ArchivedChain, Catalog, EPOCHS, Follower, IDS, Reassignment, ViewObserver, block_of, draw_epoch};
pub use catalog::{decode_moment, next_moment, note_moment, noted_moment};
pub use error::CatalogError;
pub use following::{Homes, SchemaListener};
pub use view::{AccessView, CatalogView, ResourceRules, SnapshotEntry, TableEntry, TabletEntry, check_joined};
