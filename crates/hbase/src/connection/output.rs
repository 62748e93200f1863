//! The responses of a connection that wait to be written.

use crate::call::Reply;
use bytes::{Buf, BytesMut};
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

/// Responses in the order in which they will be written.
#[derive(Default)]
pub(super) struct Output {
    buffers: VecDeque<Buffer>,
    /// Bytes that wait.
    waiting: usize,
    /// Bytes that the socket has taken.
    sent: u64,
}

#[derive(Default)]
struct Buffer {
    bytes: BytesMut,
    /// Memory of its responses, until they are written.
    memory: Vec<Reservation>,
}

impl Output {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Bytes that the socket has taken since the connection began.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Adds a response.
    pub fn push(&mut self, reply: Reply) {
        let Reply { frame, memory, .. } = reply;
        self.waiting += frame.len();
        let fits = |last: &Buffer| last.bytes.len() + frame.len() <= BUFFER_BYTES;
        match self.buffers.back_mut() {
            Some(last) if frame.len() <= GATHERED_BYTES_MAX && fits(last) => {
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
                first.bytes.advance(written);
                self.waiting -= written;
                self.sent += written as u64;
            }
            self.buffers.pop_front();
        }
        Pin::new(socket).poll_flush(cx)
    }
}
