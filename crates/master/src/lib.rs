//! The master: changes of tables as a whole (Bigtable §5.2).
//!
//! [`master::Master`] carries out one change after the other. [`admin`] implements the administrative half of the service
//! interface. Each change is one commit point in the catalog: the manifests of new tablets are written before it, and the
//! files of dropped ones are deleted after it. [`split`] carries out splits, which no client asks for. The master has no
//! state of its own that must survive: the catalog and the manifests have all of it.
#![forbid(unsafe_code)]

pub mod admin;
mod error;
pub mod master;
pub mod schema;
pub mod split;

pub use master::Master;
