//! Gathers bytes of a connection: many small frames need one read and one write.
//!
//! The HTTP/2 layer writes each DATA frame and flushes by itself, and each would be a system call. [`GatheredIo`] keeps
//! the bytes, and ignores flushes. The owner of the connection calls [`Output::poll_write_out`] when nothing is left to
//! poll. A full buffer is written immediately, so a connection keeps at most [`BUFFER_BYTES`]. Frames as large as
//! [`DIRECT_BYTES_MIN`] are not copied: they go to the socket together with the bytes that wait.
//!
//! It also reads small pieces for which the socket is asked once: the socket's bytes go through a buffer of [`INPUT_BYTES`]. Bytes
//! that the layer does not take are kept for its next read. A read as large as the buffer goes to the socket directly.
//!
//! An empty buffer returns to its thread, where the next connection takes it. So idle connections have none.

use parking_lot::Mutex;
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a connection gathers at most: as much as a socket takes in a few microseconds.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of a write that are worth a system call of their own: a copy of them takes as long.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;

/// Parts of a write that go to the socket directly: the bytes that wait, the head of a frame and its payload.
const DIRECT_PARTS_MAX: usize = 4;

/// Bytes that are read with one call at most: the requests of 32 callers with values of a kilobyte. A client that sends and takes
/// nothing keeps as much memory.
pub const INPUT_BYTES: usize = 32 << 10;

thread_local! {
    /// A buffer that no connection of this thread uses.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// The same for input. It has its whole length.
    static SPARE_INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The side of a connection for its protocol.
pub struct GatheredIo<T>(Arc<Mutex<Gathered<T>>>);

/// The side of a connection for its owner.
pub struct Output<T>(Arc<Mutex<Gathered<T>>>);

struct Gathered<T> {
    socket: T,
    buffer: Vec<u8>,
    /// Bytes of the buffer that the socket has taken.
    taken: usize,
    /// How often the socket has taken output.
    takes: u64,
    input: Input,
    /// Something was read since the owner last asked.
    has_read: bool,
}

/// Bytes that were read and not taken.
#[derive(Default)]
struct Input {
    /// Empty, or of [`INPUT_BYTES`].
    buffer: Vec<u8>,
    /// The bytes of the buffer that are left.
    left: Range<usize>,
}

impl Input {
    /// Reads by way of the buffer.
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        socket: &mut T,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            if into.remaining() >= INPUT_BYTES {
                return Pin::new(socket).poll_read(cx, into);
            }
            self.buffer = SPARE_INPUT.take();
            // Only a new buffer is cleared.
            self.buffer.resize(INPUT_BYTES, 0);
            let mut read = ReadBuf::new(&mut self.buffer);
            let polled = Pin::new(socket).poll_read(cx, &mut read);
            self.left = 0..read.filled().len();
            if !matches!(polled, Poll::Ready(Ok(()))) {
                self.left = 0..0;
                SPARE_INPUT.set(std::mem::take(&mut self.buffer));
                return polled;
            }
        }
        let count = self.left.len().min(into.remaining());
        let (begin, end) = (self.left.start, self.left.start + count);
        into.put_slice(self.buffer.get(begin..end).unwrap_or_default());
        self.left.start = end;
        if self.left.is_empty() {
            SPARE_INPUT.set(std::mem::take(&mut self.buffer));
        }
        Poll::Ready(Ok(()))
    }
}

/// Both sides of a socket.
pub fn gathered<T>(socket: T) -> (GatheredIo<T>, Output<T>) {
    let shared = Arc::new(Mutex::new(Gathered {
        socket,
        buffer: Vec::new(),
        taken: 0,
        takes: 0,
        input: Input::default(),
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
                written => {
                    self.taken += written;
                    self.takes += 1;
                }
            }
        }
        if self.buffer.capacity() > 0 {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            SPARE.set(buffer);
        }
        self.taken = 0;
        // A stream under TLS may have taken bytes that its socket has not.
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.takes += 1;
        Poll::Ready(Ok(()))
    }

    /// Writes a large frame behind the gathered bytes, without a copy. Returns how much of it the socket has taken, which may be
    /// nothing.
    fn poll_write_direct(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let waiting = self.buffer.get(self.taken..).unwrap_or_default();
        let waiting_bytes = waiting.len();
        let mut parts = [IoSlice::new(waiting); DIRECT_PARTS_MAX];
        let count = slices.len().min(DIRECT_PARTS_MAX - 1);
        for (part, slice) in parts[1..].iter_mut().zip(slices) {
            *part = IoSlice::new(slice);
        }
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, &parts[..=count]))?;
        self.takes += 1;
        match written {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written if written < waiting_bytes => {
                self.taken += written;
                Poll::Ready(Ok(0))
            }
            written => {
                self.buffer.clear();
                self.taken = 0;
                Poll::Ready(Ok(written - waiting_bytes))
            }
        }
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
}

impl<T> Output<T> {
    /// A number that grows whenever the socket takes output.
    pub fn takes(&self) -> u64 {
        self.0.lock().takes
    }

    /// Whether something was read since the last call.
    pub fn take_has_read(&self) -> bool {
        std::mem::take(&mut self.0.lock().has_read)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GatheredIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        let Gathered { socket, input, .. } = &mut *gathered;
        let read = input.poll_read(socket, cx, into);
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
        if slices.iter().map(|slice| slice.len()).sum::<usize>() >= DIRECT_BYTES_MIN
            && gathered.socket.is_write_vectored()
            && let Poll::Ready(written) = gathered.poll_write_direct(cx, slices)
            && !matches!(written, Ok(0))
        {
            return Poll::Ready(written);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// Gives its pieces one by one, then nothing, and at last the end; counts the calls.
    struct Socket {
        pieces: VecDeque<Vec<u8>>,
        is_open: bool,
        calls: usize,
    }

    impl AsyncRead for Socket {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.calls += 1;
            match self.pieces.pop_front() {
                Some(mut piece) => {
                    let rest = piece.split_off(piece.len().min(into.remaining()));
                    into.put_slice(&piece);
                    if !rest.is_empty() {
                        self.pieces.push_front(rest);
                    }
                    Poll::Ready(Ok(()))
                }
                None if self.is_open => Poll::Pending,
                None => Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads up to `bytes`; `None` for nothing now.
    fn read(io: &mut GatheredIo<Socket>, bytes: usize) -> Option<Vec<u8>> {
        let mut space = vec![0; bytes];
        let mut into = ReadBuf::new(&mut space);
        let polled = Pin::new(io).poll_read(&mut Context::from_waker(Waker::noop()), &mut into);
        polled.is_ready().then(|| into.filled().to_vec())
    }

    #[test]
    fn small_reads_need_few_calls() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut io, output) = gathered(Socket {
            pieces: VecDeque::from([bytes.clone()]),
            is_open: true,
            calls: 0,
        });
        let mut found = Vec::new();
        while let Some(piece) = read(&mut io, 70) {
            assert!(output.take_has_read() && !piece.is_empty());
            found.extend(piece);
        }
        assert!(found == bytes && !output.take_has_read());
        assert_eq!(io.0.lock().socket.calls, 5, "three full buffers, the rest, and nothing");
        assert!(io.0.lock().input.buffer.is_empty(), "an idle connection has no buffer");
        io.0.lock().socket.pieces = VecDeque::from([bytes.clone()]);
        let large = read(&mut io, bytes.len()).unwrap();
        assert!(
            large == bytes && io.0.lock().socket.calls == 6,
            "a large read is direct"
        );
        io.0.lock().socket.is_open = false;
        assert_eq!(read(&mut io, 70), Some(Vec::new()), "the end");
    }

    /// Takes some bytes with each call, or none.
    #[derive(Default)]
    struct Slow {
        written: Vec<u8>,
        /// How many bytes the next calls take.
        takes: VecDeque<usize>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let Some(most) = self.takes.pop_front() else {
                return Poll::Pending;
            };
            let bytes: Vec<u8> = slices
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .take(most)
                .collect();
            self.written.extend_from_slice(&bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Bytes leave in their order, however few the socket takes at a time.
    #[test]
    fn large_frames_follow_the_bytes_that_wait() {
        let large: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let mut cx = Context::from_waker(Waker::noop());
        for takes in [
            vec![],
            vec![7],
            vec![300],
            vec![40_000],
            vec![usize::MAX],
            vec![300, 5, 70_000, 1],
        ] {
            let (mut io, output) = gathered(Slow::default());
            let mut sent = Vec::new();
            for frame in 0..4 {
                let head = [frame; 300];
                let mut rest: Vec<u8> = if frame % 2 == 0 {
                    head.to_vec()
                } else {
                    [&head[..], &large].concat()
                };
                io.0.lock().socket.takes.extend(&takes);
                while !rest.is_empty() {
                    let (head, payload) = rest.split_at(rest.len().min(9));
                    let slices = [IoSlice::new(head), IoSlice::new(payload)];
                    match Pin::new(&mut io).poll_write_vectored(&mut cx, &slices) {
                        Poll::Ready(written) => {
                            let written = written.unwrap();
                            assert!(written > 0, "zero would end the connection");
                            sent.extend(rest.drain(..written));
                        }
                        Poll::Pending => io.0.lock().socket.takes.push_back(10_000),
                    }
                    assert!(io.0.lock().buffer.len() <= BUFFER_BYTES);
                }
            }
            while output.poll_write_out(&mut cx).is_pending() {
                io.0.lock().socket.takes.push_back(50_000);
            }
            assert!(io.0.lock().socket.written == sent, "takes {takes:?}");
        }
    }

    #[test]
    fn a_large_frame_is_not_copied() {
        let (mut io, _) = gathered(Slow::default());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut io).poll_write(&mut cx, &[1; 300]).is_ready());
        io.0.lock().socket.takes.push_back(usize::MAX);
        let written = Pin::new(&mut io).poll_write(&mut cx, &[2; DIRECT_BYTES_MIN]);
        assert!(matches!(written, Poll::Ready(Ok(DIRECT_BYTES_MIN))));
        assert_eq!(io.0.lock().socket.written.len(), 300 + DIRECT_BYTES_MIN);
    }
}
