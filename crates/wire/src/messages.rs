//! The messages of HBase's protocol that a client of tables needs and a server of them must answer.
//!
//! Written by hand from the numbers and types in the `.proto` files of HBase 2.6.4; names are theirs where that reads well
//! in Rust. A field that is not here is skipped when read, as protobuf does with unknown ones.
//!
//! Two liberties that the encoding allows: what HBase declares `required` is required here too, which means that it is
//! always written, and takes its zero value when it is missing; and strings on the path of every call (names of methods
//! and classes of filters) are [`bytes::Bytes`], which saves an allocation for each call, and looks the same on the wire.

pub mod admin;
pub mod basic;
pub mod client;
pub mod master;
pub mod multi;
pub mod registry;
pub mod rpc;
pub mod scan;

pub use admin::*;
pub use basic::*;
pub use client::*;
pub use master::*;
pub use multi::*;
pub use registry::*;
pub use rpc::*;
pub use scan::*;

use crate::WireError;
use bytes::Bytes;

/// Decodes a message; `what` is its name, for the error.
///
/// # Errors
/// Bytes that are not such a message.
pub fn decode<M: prost::Message + Default>(what: &'static str, bytes: Bytes) -> Result<M, WireError> {
    M::decode(bytes).map_err(|e| WireError::message(what, &e))
}
