//! ZooKeeper's client protocol: the part that a client which only reads needs.
//!
//! HBase clients and replication sources look a cluster up in ZooKeeper. A server of [`Request`] and [`Response`] can be
//! looked up by them without one. Records are in ZooKeeper's Jute encoding ([`jute`]).
//!
//! ```text
//! i32 length of the rest | connection: ConnectRequest, then requests: i32 xid, i32 operation, record
//! i32 length of the rest | connection: ConnectResponse, then responses: i32 xid, i64 zxid, i32 error, record unless error
//! ```
//!
//! `docs/protocols/zookeeper-facade.md` describes the bytes.

pub mod jute;
pub mod nodes;
mod request;
mod response;

pub use request::{ConnectRequest, Request, RequestHeader, Watches};
pub use response::{Body, ConnectResponse, Response, Stat};

use crate::WireError;
use bytes::{Buf, Bytes, BytesMut};

/// Longest frame that is read. The longest request of a client that reads lists the nodes that it watches, of which
/// HBase has a few; ZooKeeper's own limit is 1 MiB.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// The question of a monitor, sent in the place of a first frame.
pub const ARE_YOU_OK: &[u8; 4] = b"ruok";

/// The answer to it.
pub const I_AM_OK: &[u8; 4] = b"imok";

/// Number of a ping, which is not a request that the client waits for.
pub const PING_XID: i32 = -2;

/// Outcomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Carried out.
    Ok = 0,
    /// The server does not have the operation.
    Unimplemented = -6,
    /// An argument is none that the operation takes.
    BadArguments = -8,
    /// There is no such node.
    NoNode = -101,
    /// The server only answers reads.
    NotReadOnly = -119,
}

/// Takes the next frame off the received bytes. `None` if it has not arrived.
///
/// # Errors
/// A length below 0 or above [`FRAME_BYTES_MAX`].
pub fn take_frame(received: &mut BytesMut) -> Result<Option<Bytes>, WireError> {
    let Some(length) = received.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*length);
    let found = usize::try_from(length).map_err(|_| {
        let expected = "a length of 0 or more";
        WireError::unexpected("length of a frame", expected, length.to_string())
    })?;
    if found > FRAME_BYTES_MAX {
        return Err(WireError::TooLong {
            what: "frame",
            limit: FRAME_BYTES_MAX as u64,
            found: found as u64,
        });
    }
    if received.len() < 4 + found {
        return Ok(None);
    }
    received.advance(4);
    Ok(Some(received.split_to(found).freeze()))
}

#[cfg(test)]
mod tests;
