//! The responses of a connection that wait to be written.

use crate::call::Reply;
use bytes::{Buf, BytesMut};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use stele_memory::Reservation;
use tokio::io::AsyncWrite;

/// Responses up to this size are copied together, so that many leave with one write.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// A gathered buffer is closed when it has this size.
const BUFFER_BYTES: usize = 64 << 10;

thread_local! {
    /// A buffer of the full size that no connection of this thread uses.
    static SPARE: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Responses in the order in which they will be written.
#[derive(Default)]
pub(super) struct Output {
    buffers: VecDeque<Buffer>,
    /// Bytes that wait.
    waiting: usize,
    /// Bytes that the socket has taken.
    sent: u64,
    /// A stream under TLS may have taken bytes that its socket has not.
    is_unflushed: bool,
}

#[derive(Default)]
struct Buffer {
    bytes: BytesMut,
    /// Memory of its responses, until they are written.
    memory: Vec<Reservation>,
}

impl Buffer {
    /// Moves to a buffer of the full size, so that more responses are added without copying it again.
    fn gather(&mut self) {
        let mut full = SPARE.take().unwrap_or_default();
        full.reserve(BUFFER_BYTES);
        full.extend_from_slice(&self.bytes);
        self.bytes = full;
    }

    /// Gives the memory back once all is written.
    fn recycle(mut self) {
        // Not the buffer of a large response.
        if self.bytes.try_reclaim(BUFFER_BYTES) && self.bytes.capacity() < 2 * BUFFER_BYTES {
            self.bytes.clear();
            SPARE.set(Some(self.bytes));
        }
    }
}

impl Output {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0 && !self.is_unflushed
    }

    /// Bytes that the socket has taken since the connection began.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Adds a response. A small one joins the last buffer; one that is alone is not copied.
    pub fn push(&mut self, reply: Reply) {
        let Reply { frame, memory, .. } = reply;
        self.waiting += frame.len();
        let fits = |last: &Buffer| last.bytes.len() + frame.len() <= BUFFER_BYTES;
        match self.buffers.back_mut() {
            Some(last) if frame.len() <= GATHERED_BYTES_MAX && fits(last) => {
                if last.bytes.capacity() < last.bytes.len() + frame.len() {
                    last.gather();
                }
                last.bytes.extend_from_slice(&frame);
                last.memory.extend(memory);
            }
            _ => self.buffers.push_back(Buffer {
                bytes: frame,
                memory: memory.into_iter().collect(),
            }),
        }
    }

    /// Writes all that waits. Ready when the socket has taken it.
    pub fn poll_write<T: AsyncWrite + Unpin>(&mut self, socket: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(first) = self.buffers.front_mut() {
            while !first.bytes.is_empty() {
                let written = ready!(Pin::new(&mut *socket).poll_write(cx, &first.bytes))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.is_unflushed = true;
                first.bytes.advance(written);
                self.waiting -= written;
                self.sent += written as u64;
            }
            let written = self.buffers.pop_front();
            written.into_iter().for_each(Buffer::recycle);
        }
        ready!(Pin::new(socket).poll_flush(cx))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn small_responses_are_gathered_in_one_buffer() {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        let mut output = Output::default();
        let mut expected = Vec::new();
        for round in 0..3 {
            for n in 0..200 {
                let len = if n == 150 { 100_000 } else { 1 + n };
                let frame = vec![n as u8; len];
                expected.extend_from_slice(&frame);
                output.push(Reply {
                    frame: BytesMut::from(&frame[..]),
                    memory: None,
                    unpacked: None,
                });
            }
            assert_eq!(output.buffers.len(), 3, "before the large one, it, and behind it");
            let first = output.buffers.front().unwrap();
            assert!((BUFFER_BYTES..BUFFER_BYTES * 2).contains(&first.bytes.capacity()));
            poll_fn(|cx| output.poll_write(&mut server, cx)).await.unwrap();
            assert!(output.is_empty() && SPARE.take().is_some_and(|spare| spare.capacity() >= BUFFER_BYTES));
            let mut received = vec![0; expected.len()];
            client.read_exact(&mut received).await.unwrap();
            assert!(received == expected, "round {round}");
            expected.clear();
        }
    }
}
