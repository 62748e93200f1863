//! What media that several processes reach over a network have in common: object stores and HDFS.
//!
//! * A data root has one *owner*, the process that came last; the one before can acknowledge nothing any more ([`owner`]).
//! * Once a process knows that it was replaced it is refused everything ([`Fence`]).
//! * What was read stays in a bounded folder of the local disk, which may vanish at any time ([`cache`]).

pub mod cache;
mod fence;
pub mod owner;

pub use fence::Fence;
