//! Gathers the output of a connection, so that many small frames leave with one write.
//!
//! The HTTP/2 layer writes each DATA frame and flushes by itself, and each would be a system call. [`GatheredIo`] keeps
//! the bytes, and ignores flushes. The owner of the connection calls [`Output::poll_write_out`] when nothing is left to
//! poll. A full buffer is written immediately, so a connection keeps at most [`BUFFER_BYTES`].
//!
//! An empty buffer returns to its thread, where the next connection takes it. So idle connections have none.

use parking_lot::Mutex;
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a connection gathers at most: as much as a socket takes in a few microseconds.
pub const BUFFER_BYTES: usize = 64 << 10;

thread_local! {
    /// A buffer that no connection of this thread uses.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The side of a connection for its protocol: reads are those of the socket, writes are gathered.
pub struct GatheredIo<T>(Arc<Mutex<Gathered<T>>>);

/// The side of a connection for its owner.
pub struct Output<T>(Arc<Mutex<Gathered<T>>>);

struct Gathered<T> {
    socket: T,
    buffer: Vec<u8>,
    /// Bytes of the buffer that the socket has taken.
    taken: usize,
    /// Something was read since the owner last asked.
    has_read: bool,
}

/// Both sides of a socket.
pub fn gathered<T>(socket: T) -> (GatheredIo<T>, Output<T>) {
    let shared = Arc::new(Mutex::new(Gathered {
        socket,
        buffer: Vec::new(),
        taken: 0,
        has_read: false,
    }));
    (GatheredIo(Arc::clone(&shared)), Output(shared))
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    /// Writes all gathered bytes.
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.buffer.get(self.taken..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.taken += written,
            }
        }
        if self.buffer.capacity() > 0 {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            SPARE.set(buffer);
        }
        self.taken = 0;
        // A stream under TLS may have taken bytes that its socket has not.
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Makes space, which may need the socket. Returns the number of bytes that fit.
    fn poll_space(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.len() >= BUFFER_BYTES {
            ready!(self.poll_write_out(cx))?;
        }
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.take();
            self.buffer.reserve_exact(BUFFER_BYTES);
        }
        Poll::Ready(Ok(BUFFER_BYTES - self.buffer.len()))
    }
}

impl<T: AsyncWrite + Unpin> Output<T> {
    /// Writes all gathered bytes to the socket. Ready when it has taken them.
    pub fn poll_write_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_write_out(cx)
    }

    /// Whether something was read since the last call.
    pub fn take_has_read(&self) -> bool {
        std::mem::take(&mut self.0.lock().has_read)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GatheredIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        let read = Pin::new(&mut gathered.socket).poll_read(cx, into);
        gathered.has_read |= read.is_ready();
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GatheredIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut gathered = self.0.lock();
        let mut space = ready!(gathered.poll_space(cx))?;
        let mut written = 0;
        for slice in slices {
            let fits = slice.get(..space).unwrap_or(slice);
            gathered.buffer.extend_from_slice(fits);
            written += fits.len();
            space -= fits.len();
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Bytes leave when the owner of the connection says so.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        ready!(gathered.poll_write_out(cx))?;
        Pin::new(&mut gathered.socket).poll_shutdown(cx)
    }
}
