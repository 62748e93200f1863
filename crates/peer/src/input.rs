//! The bytes that a connection has received, and the frames in them.
//!
//! A frame is taken in two steps: its head first, with which the owner of the connection decides whether there is memory for the
//! rest; then the frame, or its bytes are skipped.

use crate::cursor::Decoded;
use crate::frame::{Frame, Head};
use crate::limits::SMALL_FRAME_BYTES;
use bytes::{Buf, BytesMut};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of one read when no large frame is expected.
const READ_BYTES: usize = 32 << 10;

/// The input of a connection.
#[derive(Default)]
pub(crate) struct Input {
    received: BytesMut,
    /// Head of the first frame.
    head: Option<Head>,
    /// Bytes still to come of a frame that is skipped.
    skipping: usize,
}

impl Input {
    /// The head of the next frame; `None` if it has not arrived.
    ///
    /// # Errors
    /// Bytes that are not a frame. The connection cannot go on.
    pub fn head(&mut self) -> Decoded<Option<Head>> {
        self.skip_received();
        if self.skipping > 0 {
            return Ok(None);
        }
        if self.head.is_none() {
            self.head = Head::peek(&self.received)?;
        }
        Ok(self.head)
    }

    /// The frame of that head; `None` if it has not arrived. The next read allocates memory for it.
    pub fn take(&mut self) -> Decoded<Option<Frame>> {
        let Some(head) = &self.head else {
            return Ok(None);
        };
        let frame = Frame::take(&mut self.received, head)?;
        if frame.is_some() {
            self.head = None;
        }
        Ok(frame)
    }

    /// Drops the frame of that head, as far as it arrives.
    pub fn skip(&mut self) {
        if let Some(head) = self.head.take() {
            self.skipping = head.length;
            self.skip_received();
        }
    }

    fn skip_received(&mut self) {
        let skipped = self.skipping.min(self.received.len());
        self.received.advance(skipped);
        self.skipping -= skipped;
    }

    /// Receives bytes; 0 at the end of the connection.
    pub fn poll_read<T: AsyncRead + Unpin>(&mut self, socket: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // A head that was looked at and not skipped has its memory.
        let missing = self
            .head
            .map_or(0, |head| head.length.saturating_sub(self.received.len()));
        let wanted = match missing <= SMALL_FRAME_BYTES {
            true => READ_BYTES,
            false => missing,
        };
        if self.received.capacity() - self.received.len() < wanted.min(READ_BYTES / 4).max(missing) {
            self.received.reserve(wanted);
        }
        // Nothing is lost when the future is dropped: it reads in one poll or not at all.
        pin!(socket.read_buf(&mut self.received)).poll(cx)
    }
}
