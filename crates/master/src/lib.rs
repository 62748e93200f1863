//! The master: what happens to tables as a whole.
//!
//! [`master::Master`] carries out one change after the other. [`admin`] implements the administrative half of the waist: each change is one commit point in the catalog, preceded by
//! what it needs (manifests of new tablets) and followed by what it makes superfluous (files of dropped ones). [`split`]
//! carries out splits, the one change nobody asks for. Bigtable §5.2; here the master holds no state of its own: all truth
//! is in the catalog and the manifests.

pub mod admin;
mod error;
pub mod master;
pub mod schema;
pub mod split;

pub use master::Master;
