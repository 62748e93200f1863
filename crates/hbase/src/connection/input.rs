//! The bytes that a connection has received, and the requests in them.

use super::no_memory;
use crate::failure::Failure;
use bytes::{Buf, BytesMut};
use prost::encoding::decode_varint;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use stele_memory::{Consumer, Reservation};
use stele_wire::frame::{self, REQUEST_BYTES_MAX, Request};
use stele_wire::messages::RequestHeader;
use stele_wire::{WireError, exception};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of one read when no large frame is expected.
const READ_BYTES: usize = 16 << 10;

/// Frames up to this size are received before their memory is reserved: it is part of the memory of a connection.
const SMALL_FRAME_BYTES: usize = 16 << 10;

/// A request header is searched in this part of a frame that is refused.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// A request, whole or refused.
pub(super) enum Arrived {
    Request(Request, Reservation),
    /// Its number, if it was found.
    Refused(Option<u32>, Failure),
}

/// The input of a connection.
pub(super) struct Input {
    pub received: BytesMut,
    requests: Consumer,
    /// Memory of the frame that is being received.
    reserved: Option<Reservation>,
    /// Bytes still to come of a frame that is skipped.
    skipping: usize,
}

impl Input {
    pub fn new(requests: &Consumer) -> Self {
        Input {
            received: BytesMut::new(),
            requests: requests.clone(),
            reserved: None,
            skipping: 0,
        }
    }

    /// The next request. `None` if it has not arrived.
    ///
    /// # Errors
    /// Bytes that are not a frame. The connection cannot go on.
    pub fn take(&mut self) -> Result<Option<Arrived>, WireError> {
        let skipped = self.skipping.min(self.received.len());
        self.received.advance(skipped);
        self.skipping -= skipped;
        if self.skipping > 0 {
            return Ok(None);
        }
        // A frame that is longer than any request may be ends the connection: it is not worth reading on.
        let Some(length) = frame::frame_bytes(&self.received, REQUEST_BYTES_MAX)? else {
            return Ok(None);
        };
        if length > SMALL_FRAME_BYTES && self.reserved.is_none() {
            match self.requests.try_reserve(length) {
                Some(reserved) if reserved.counted() >= length => self.reserved = Some(reserved),
                _ => return Ok(self.refuse(length)),
            }
        }
        if self.received.len() < length {
            return Ok(None);
        }
        let Some(frame) = frame::take_frame(&mut self.received, REQUEST_BYTES_MAX)? else {
            return Ok(None);
        };
        let memory = match self.reserved.take() {
            Some(reserved) => reserved,
            None => {
                let reserved = self.requests.empty();
                if reserved.grow(length).is_err() {
                    let header = header(&frame);
                    return Ok(Some(Arrived::Refused(header, no_memory(length))));
                }
                reserved
            }
        };
        Ok(Some(match frame::decode_request(frame.clone()) {
            Ok(request) => Arrived::Request(request, memory),
            Err(error) => match header(&frame) {
                // The header is whole, so the client can match the error with its call.
                Some(call_id) => Arrived::Refused(Some(call_id), error.into()),
                None => return Err(error),
            },
        }))
    }

    /// Skips a frame for which there is no memory, as soon as enough of it is here to find its number.
    fn refuse(&mut self, length: usize) -> Option<Arrived> {
        if self.received.len() < length.min(HEADER_BYTES_MAX) {
            return None;
        }
        let call_id = header(self.received.get(4..).unwrap_or_default());
        let failure = if length > self.requests.limit() {
            let message = format!(
                "RPC data length of {length} received; this server spares {} for requests: send less at once, or give it \
                 more memory",
                self.requests.limit()
            );
            Failure::new(exception::REQUEST_TOO_BIG, message)
        } else {
            no_memory(length)
        };
        self.skipping = length;
        let skipped = self.skipping.min(self.received.len());
        self.received.advance(skipped);
        self.skipping -= skipped;
        Some(Arrived::Refused(call_id, failure))
    }

    /// Receives bytes. 0 at the end of the connection.
    pub fn poll_read<T: AsyncRead + Unpin>(&mut self, socket: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let expected = match frame::frame_bytes(&self.received, REQUEST_BYTES_MAX) {
            // Only memory that is reserved is allocated.
            Ok(Some(length)) if self.reserved.is_some() => length.saturating_sub(self.received.len()),
            _ => 0,
        };
        self.received.reserve(expected.max(READ_BYTES));
        let spare = self.received.len();
        let capacity = self.received.capacity();
        self.received.resize(capacity, 0);
        let mut buffer = ReadBuf::new(self.received.get_mut(spare..).unwrap_or_default());
        let read = Pin::new(socket).poll_read(cx, &mut buffer);
        let n = buffer.filled().len();
        self.received.truncate(spare + n);
        ready!(read)?;
        Poll::Ready(Ok(n))
    }
}

/// The number of the call whose frame begins so.
fn header(frame: &[u8]) -> Option<u32> {
    let mut rest = frame;
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let header: RequestHeader = prost::Message::decode(rest.get(..length)?).ok()?;
    header.call_id
}
