//! A connection that gathers its output and writes it once for each poll.
//!
//! tonic flushes after every poll of a connection, and a busy connection is polled for nearly every response. Here
//! bytes are buffered, and the connection's task is woken once. It runs behind the tasks that are ready now, whose
//! responses join the buffer. The system call is made when the task next reads.
//!
//! Invariants:
//! * While bytes are buffered, the task is due to be woken: by itself or by the socket.
//! * At most [`BUFFER_BYTES_MAX`] bytes are buffered; a full buffer is written before it takes more.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::server::Connected;

/// 200 responses of 1 kB, which is more than a connection usually has in flight.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// A socket with a buffer for output.
pub struct Coalesced {
    socket: TcpStream,
    buffer: BytesMut,
    /// The task was woken for the buffered bytes and has not read since.
    woken: bool,
    /// The socket took no more bytes at the last write.
    blocked: bool,
}

impl Coalesced {
    /// Takes a socket into the current runtime.
    pub fn new(socket: std::net::TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Coalesced {
            socket: TcpStream::from_std(socket)?,
            buffer: BytesMut::with_capacity(BUFFER_BYTES_MAX),
            woken: false,
            blocked: false,
        })
    }

    /// Writes the buffer as far as the socket takes it.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffer.is_empty() {
            match Pin::new(&mut self.socket).poll_write(cx, &self.buffer) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.buffer.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.blocked = true;
                    return Poll::Pending;
                }
            }
        }
        self.blocked = false;
        Poll::Ready(Ok(()))
    }

    /// Appends as much as fits the buffer.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(BUFFER_BYTES_MAX - self.buffer.len());
        self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        taken
    }

    fn wake_once(&mut self, cx: &Context<'_>) {
        if !self.woken {
            self.woken = true;
            cx.waker().wake_by_ref();
        }
    }
}

impl AsyncRead for Coalesced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.woken = false;
        if let Poll::Ready(Err(error)) = self.drain(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.socket).poll_read(cx, into)
    }
}

impl AsyncWrite for Coalesced {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.buffer.len() >= BUFFER_BYTES_MAX {
            ready!(self.drain(cx))?;
        }
        let taken = slices.iter().map(|slice| self.append(slice)).sum();
        self.wake_once(cx);
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves the bytes to the next read, unless the socket is full. Then the caller must wait with further output.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.blocked {
            return self.drain(cx);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Connected for Coalesced {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}
