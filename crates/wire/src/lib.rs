//! The HBase wire protocol, version 2.6: messages, frames, cell blocks, names of regions. Pure: bytes in, bytes out; no
//! sockets, no time.
//!
//! Rooms: [`frame`] cuts a stream of bytes into requests and responses; [`messages`] are the protobuf messages in them;
//! [`cell`] reads and writes the cells that travel behind a message; [`region`] and [`meta`] are what a client must know
//! to find the server of a row; [`exception`] names the errors that servers answer.
//!
//! Both sides are here: a client encodes requests and decodes responses, a server the other way round.
//!
//! Invariants:
//! * No decoder panics, whatever the bytes. A refusal says what was read, what was expected and what was found.
//! * Nothing is allocated for a length that was only claimed: lengths are compared with the bytes there are first.
//! * What is decoded refers to the frame that it came from; values are never copied.
//!
//! `docs/protocols/hbase-wire.md` describes the bytes.
#![forbid(unsafe_code)]

pub mod cell;
pub mod exception;
pub mod frame;
pub mod messages;
pub mod meta;
pub mod region;

mod error;

pub use error::WireError;
