//! The common part of storages over a network: object stores and HDFS.
//!
//! * A data root has one *owner*, the process that came last. The previous owner can acknowledge nothing any more
//!   ([`owner`]).
//! * A process that knows that it was replaced is refused everything ([`Fence`]).
//! * Chunks that were read are cached in a bounded folder of the local disk, which may vanish at any time ([`cache`]).

mod access;
pub mod cache;
mod fence;
pub mod owner;

pub use access::Access;
pub use fence::Fence;
