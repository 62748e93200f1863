//! The HBase wire protocol, version 2.6: messages, frames, cell blocks, names of regions.
//!
//! The crate is pure: bytes in, bytes out; no sockets, no time.
//!
//! Modules: [`frame`] splits a stream of bytes into requests and responses. [`messages`] are the protobuf messages in
//! them. [`cell`] reads and writes the cells that follow a message, [`tags`] reads their tags. [`region`] and [`meta`] hold the names and rows by
//! which a client finds the server of a row. [`exception`] names the errors in responses. [`zookeeper`] is the protocol of
//! clients that look the cluster up in ZooKeeper. [`decoded_size`] estimates the memory of a request before it is decoded.
//!
//! Both sides are here: a client encodes requests and decodes responses, a server does the reverse.
//!
//! Invariants:
//! * No decoder panics on any bytes. An error names the value being read, the expected bytes and the found bytes.
//! * No memory is allocated for a claimed length: lengths are first compared with the bytes that exist.
//! * Decoded parts are slices of the frame that they were read from. Values are never copied.
//!
//! `docs/protocols/hbase-wire.md` describes the bytes.
#![forbid(unsafe_code)]

pub mod cell;
pub mod decoded_size;
pub mod exception;
pub mod frame;
pub mod messages;
pub mod meta;
pub mod region;
pub mod tags;
pub mod zookeeper;

mod error;

pub use error::WireError;
