//! The bytes that a connection has received, and the requests in them.
//!
//! A large frame is received piece by piece. Each piece is reserved before it is allocated, and is at most as large as
//! the part that has arrived. So the length that a client announces costs nothing until its bytes come.

use super::no_memory;
use crate::failure::Failure;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use stele_memory::{Consumer, Reservation};
use stele_wire::frame::{self, FRAME_BYTES_MAX, REQUEST_BYTES_MAX, Request};
use stele_wire::{WireError, exception};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of one read when no large frame is expected.
const READ_BYTES: usize = 16 << 10;

/// This much of a frame is received before its memory is reserved: it is part of the memory of a connection.
const SMALL_FRAME_BYTES: usize = 16 << 10;

/// Longest frame of a request, with its length.
const REQUEST_FRAME_BYTES_MAX: usize = size_of::<u32>() + REQUEST_BYTES_MAX;

/// The number of a call is searched in this part of a frame that is refused. Clients write it first.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// A request, whole or refused.
pub(super) enum Arrived {
    Request(Request, Reservation),
    /// The number of its call, and the reason.
    Refused(u32, Failure),
}

/// The input of a connection.
pub(super) struct Input {
    pub received: BytesMut,
    requests: Consumer,
    /// Memory of the large frame that is being received: at least of its bytes that are here.
    reserved: Option<Reservation>,
    /// Bytes still to come of a frame that is skipped.
    skipping: usize,
    /// Bytes that the socket has given.
    taken: u64,
    /// Bytes of a frame that is received.
    frame_bytes_max: usize,
}

impl Input {
    pub fn new(requests: &Consumer) -> Self {
        Input {
            received: BytesMut::new(),
            requests: requests.clone(),
            reserved: None,
            skipping: 0,
            taken: 0,
            frame_bytes_max: REQUEST_FRAME_BYTES_MAX,
        }
    }

    /// Refuses and skips requests that take more than the memory of a connection, from now on.
    pub fn take_small_frames_only(&mut self) {
        self.frame_bytes_max = SMALL_FRAME_BYTES;
    }

    /// Bytes that the socket has given since the connection began.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether a frame has begun and the rest of it is still to come, provided that [`Input::take`] found nothing.
    pub fn is_within_frame(&self) -> bool {
        self.skipping > 0 || !self.received.is_empty()
    }

    /// The next request. `None` if it has not arrived.
    ///
    /// # Errors
    /// Bytes that are not a frame, or a request that cannot be served and has no number to answer to. The connection
    /// cannot go on.
    pub fn take(&mut self) -> Result<Option<Arrived>, WireError> {
        let skipped = self.skipping.min(self.received.len());
        self.received.advance(skipped);
        self.skipping -= skipped;
        if self.skipping > 0 {
            return Ok(None);
        }
        // A longer one has a length that no client can write.
        let Some(length) = frame::frame_bytes(&self.received, FRAME_BYTES_MAX)? else {
            return Ok(None);
        };
        if !self.reserve_next(length) {
            return self.refuse(length);
        }
        if self.received.len() < length {
            return Ok(None);
        }
        let Some(frame) = self.take_frame(length)? else {
            return Ok(None);
        };
        let memory = match self.reserved.take() {
            Some(reserved) => reserved,
            None => {
                let reserved = self.requests.empty();
                if reserved.grow(length).is_err() {
                    return refused(&frame, no_memory(length)).map(Some);
                }
                reserved
            }
        };
        match frame::decode_request(frame.clone()) {
            Ok(request) => Ok(Some(Arrived::Request(request, memory))),
            // If the header is good, the client can match the error with its call.
            Err(error) => match call_id(&frame) {
                Some(call_id) => Ok(Some(Arrived::Refused(call_id, error.into()))),
                None => Err(error),
            },
        }
    }

    /// Bytes of the longest frame that is received: of any request, and of those that memory is there for.
    fn limit(&self) -> usize {
        self.frame_bytes_max.min(self.requests.limit())
    }

    /// Reserves the next piece of a large frame, once the last one is full. Whether there was memory.
    fn reserve_next(&mut self, length: usize) -> bool {
        if length <= SMALL_FRAME_BYTES {
            return true;
        }
        if length > self.limit() {
            return false;
        }
        let here = self.received.len().min(length);
        if here < SMALL_FRAME_BYTES {
            return true;
        }
        let reserved = self.reserved.get_or_insert_with(|| self.requests.empty());
        if here < length && here < reserved.counted() {
            return true;
        }
        let wanted = here.saturating_mul(2).min(length);
        if reserved.try_grow(wanted.saturating_sub(reserved.counted())).is_err() {
            return false;
        }
        if self.received.capacity() < wanted {
            // Not more than this, as a buffer that grows by itself would take.
            let mut larger = BytesMut::with_capacity(wanted);
            larger.extend_from_slice(&self.received);
            self.received = larger;
        }
        true
    }

    /// Takes a frame that is here. The buffer of a large one goes with it, or it would stay for the next frames.
    fn take_frame(&mut self, length: usize) -> Result<Option<Bytes>, WireError> {
        let frame = frame::take_frame(&mut self.received, REQUEST_BYTES_MAX)?;
        if length > SMALL_FRAME_BYTES {
            self.received = BytesMut::from(&*self.received);
        }
        Ok(frame)
    }

    /// Skips a frame that is too long or for which there is no memory, as soon as enough of it is here to find its number. The
    /// connection goes on: if it ended with bytes unread, the client would lose the response, and repeat the request.
    fn refuse(&mut self, length: usize) -> Result<Option<Arrived>, WireError> {
        if self.received.len() < length.min(HEADER_BYTES_MAX) {
            return Ok(None);
        }
        let failure = if length > REQUEST_FRAME_BYTES_MAX {
            let message =
                format!("RPC data length of {length} received; the limit is {REQUEST_BYTES_MAX}: send less at once");
            Failure::new(exception::REQUEST_TOO_BIG, message)
        } else if length > self.requests.limit() {
            let message = format!(
                "RPC data length of {length} received; this server spares {} for requests: send less at once, or give it \
                 more memory",
                self.requests.limit()
            );
            Failure::new(exception::REQUEST_TOO_BIG, message)
        } else {
            no_memory(length)
        };
        let arrived = refused(self.received.get(4..).unwrap_or_default(), failure)?;
        self.skipping = length;
        let skipped = self.skipping.min(self.received.len());
        // The buffer may be large, and its memory is given back.
        self.received = BytesMut::from(self.received.get(skipped..).unwrap_or_default());
        self.skipping -= skipped;
        self.reserved = None;
        Ok(Some(arrived))
    }

    /// Receives bytes. 0 at the end of the connection.
    pub fn poll_read<T: AsyncRead + Unpin>(&mut self, socket: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Only memory that is reserved is allocated.
        let piece = self.reserved.as_ref().map_or(0, Reservation::counted);
        let room = match piece.saturating_sub(self.received.len()) {
            0 => READ_BYTES,
            room => room,
        };
        self.received.reserve(room);
        // The future has no state, and the spare bytes are not written before the socket does.
        let mut buffer = (&mut self.received).limit(room);
        let n = ready!(pin!(socket.read_buf(&mut buffer)).poll(cx))?;
        self.taken += n as u64;
        Poll::Ready(Ok(n))
    }
}

/// The answer to a request that is not served.
fn refused(frame: &[u8], failure: Failure) -> Result<Arrived, WireError> {
    // Without an answer the client would wait until its timeout, so then the connection ends.
    let unnumbered = || WireError::Unexpected {
        what: "header of a request that is refused",
        expected: "the number of the call",
        found: format!("none; {}", failure.message),
    };
    let call_id = call_id(frame).ok_or_else(unnumbered)?;
    Ok(Arrived::Refused(call_id, failure))
}

/// The number of the call whose frame begins so. The header may be cut off behind the number.
fn call_id(frame: &[u8]) -> Option<u32> {
    let mut rest = frame;
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let mut header = rest.get(..length).unwrap_or(rest);
    while !header.is_empty() {
        let (field, wire_type) = decode_key(&mut header).ok()?;
        if field == 1 && wire_type == WireType::Varint {
            return u32::try_from(decode_varint(&mut header).ok()?).ok();
        }
        skip_field(wire_type, field, &mut header, DecodeContext::default()).ok()?;
    }
    None
}

#[cfg(test)]
mod tests;
