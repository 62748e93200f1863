//! The messages of HBase's protocol that clients of tables and their servers exchange.
//!
//! Written by hand from the numbers and types in the `.proto` files of HBase 2.6.4, with their names where those read
//! well in Rust. A field that is missing here is skipped by the decoder, as protobuf does with unknown fields.
//!
//! Two liberties that the encoding allows:
//! * A field that HBase declares `required` is always written here, and takes its zero value when it is missing.
//! * Strings on the path of every call (names of methods and classes of filters) are [`bytes::Bytes`]. This saves an
//!   allocation for each call and has the same encoding.

pub mod access_control;
pub mod admin;
pub mod basic;
pub mod bulk_load;
pub mod client;
pub mod cluster;
pub mod comparator;
pub mod coprocessor;
pub mod filter;
pub mod log_entries;
pub mod master;
pub mod multi;
pub mod namespace;
pub mod region_calls;
pub mod registry;
pub mod replication;
pub mod rpc;
pub mod scan;
pub mod snapshot;
pub mod switches;

pub use access_control::*;
pub use admin::*;
pub use basic::*;
pub use bulk_load::*;
pub use client::*;
pub use cluster::*;
pub use comparator::*;
pub use coprocessor::*;
pub use filter::*;
pub use log_entries::*;
pub use master::*;
pub use multi::*;
pub use namespace::*;
pub use region_calls::*;
pub use registry::*;
pub use replication::*;
pub use rpc::*;
pub use scan::*;
pub use snapshot::*;
pub use switches::*;

use crate::WireError;
use bytes::Bytes;

/// Decodes a message; `what` is its name, for the error.
///
/// # Errors
/// Bytes that are not such a message.
pub fn decode<M: prost::Message + Default>(what: &'static str, bytes: Bytes) -> Result<M, WireError> {
    M::decode(bytes).map_err(|e| WireError::message(what, &e))
}
