//! Frames of a connection that wait to be written.
//!
//! Small frames are copied together, so that many leave with one write. Large values are not copied: they leave with their
//! neighbours in one gathered write. Each frame may have a mark, which comes back when the socket has taken all of the frame.

use crate::frame::Encoded;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Parts up to this size are copied together.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// A buffer of copied parts is closed when it has this size.
const BUFFER_BYTES: usize = 64 << 10;

/// Parts of one write.
const PARTS_MAX: usize = 16;

/// Frames in the order in which they will be written.
pub(crate) struct Output<M> {
    /// Closed parts, none empty.
    parts: VecDeque<Bytes>,
    /// Follows the parts.
    open: BytesMut,
    /// Ends of frames with marks, ascending, counted from the beginning of the connection.
    marks: VecDeque<(u64, M)>,
    /// Bytes that wait.
    waiting: usize,
    /// Bytes that the socket has taken.
    sent: u64,
    /// A stream under TLS may have taken bytes that its socket has not.
    is_unflushed: bool,
    /// Set if some waited when [`Output::has_moved`] was called last: the bytes that the socket had taken then.
    waited_at: Option<u64>,
}

impl<M> Output<M> {
    pub fn new() -> Self {
        Output {
            parts: VecDeque::new(),
            open: BytesMut::new(),
            marks: VecDeque::new(),
            waiting: 0,
            sent: 0,
            is_unflushed: false,
            waited_at: None,
        }
    }

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

    /// Whether the other end has received some of the output since the last call of this function. A socket that takes bytes
    /// proves nothing: they may be in its buffer still. But if some had to wait, the buffer was full, and the other end has made
    /// space in it. A stream under TLS takes bytes while its socket does not, up to a limit: so those that only wait for a flush
    /// prove nothing either.
    pub fn has_moved(&mut self) -> bool {
        let has_moved = self.waited_at.is_some_and(|at| at != self.sent);
        self.waited_at = (self.waiting > 0).then_some(self.sent);
        has_moved
    }

    /// Adds a frame.
    pub fn push(&mut self, frame: Encoded, mark: Option<M>) {
        self.add(frame.head());
        for part in frame.body {
            if part.len() <= COPIED_BYTES_MAX {
                self.add(&part);
            } else {
                self.close();
                self.waiting += part.len();
                self.parts.push_back(part);
            }
        }
        let end = self.sent + self.waiting as u64;
        self.marks.extend(mark.map(|mark| (end, mark)));
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.open.len() + bytes.len() > BUFFER_BYTES {
            self.close();
        }
        self.open.extend_from_slice(bytes);
        self.waiting += bytes.len();
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.parts.push_back(self.open.split().freeze());
        }
    }

    /// The next mark whose frame the socket has taken.
    pub fn take_mark(&mut self) -> Option<M> {
        match self.marks.front() {
            Some((end, _)) if *end <= self.sent => self.marks.pop_front().map(|(_, mark)| mark),
            _ => None,
        }
    }

    /// Writes all that waits. Ready when the socket has taken it.
    pub fn poll_write<T: AsyncWrite + Unpin>(&mut self, socket: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.waiting > 0 {
            let written = ready!(self.poll_some(socket, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_unflushed = true;
            self.took(written);
        }
        ready!(Pin::new(socket).poll_flush(cx))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn poll_some<T: AsyncWrite + Unpin>(&self, socket: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.parts.is_empty() {
            return Pin::new(socket).poll_write(cx, &self.open);
        }
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        let rest = self.parts.iter().map(|part| &part[..]).chain([&self.open[..]]);
        let mut used = 0;
        for (slice, part) in slices.iter_mut().zip(rest) {
            *slice = IoSlice::new(part);
            used += 1;
        }
        Pin::new(socket).poll_write_vectored(cx, slices.get(..used).unwrap_or_default())
    }

    /// Drops bytes that the socket has taken.
    fn took(&mut self, mut bytes: usize) {
        assert!(bytes <= self.waiting, "a socket takes no more than it was given");
        self.waiting -= bytes;
        self.sent += bytes as u64;
        while let Some(first) = self.parts.front_mut() {
            if bytes < first.len() {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.parts.pop_front();
        }
        self.open.advance(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameKind;
    use crate::segments::Segments;

    /// Takes all bytes, as a stream under TLS does, and passes them on with the second flush.
    #[derive(Default)]
    struct Sealing {
        taken: usize,
        flushes: usize,
    }

    impl AsyncWrite for Sealing {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.taken += bytes.len();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            match self.flushes {
                1 => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn bytes_that_a_stream_under_tls_retains_are_flushed_later() {
        let mut output: Output<()> = Output::new();
        let frame = Encoded::new(FrameKind::Ping, 0, 0, &[], Segments::default());
        output.push(frame.unwrap(), None);
        let mut socket = Sealing::default();
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert!(output.poll_write(&mut socket, cx).is_pending());
        assert!(socket.taken > 0 && output.sent() > 0 && !output.is_empty());
        assert!(!output.has_moved());
        socket.flushes = 0;
        output.push(Encoded::bare(FrameKind::Ping, 0, &[]), None);
        assert!(output.poll_write(&mut socket, cx).is_pending());
        assert!(!output.has_moved(), "no byte has left the machine");
        assert!(output.poll_write(&mut socket, cx).is_ready());
        assert!(output.is_empty());
    }

    #[tokio::test]
    async fn bytes_in_the_buffer_of_a_socket_are_no_sign_of_life() {
        use tokio::io::AsyncReadExt;
        let (mut socket, mut other) = tokio::io::duplex(64);
        let mut output: Output<()> = Output::new();
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        for has_space in [true, true, false, false] {
            output.push(Encoded::bare(FrameKind::Ping, 0, &[]), None);
            assert_eq!(output.poll_write(&mut socket, cx).is_ready(), has_space);
            assert!(!output.has_moved());
        }
        other.read_exact(&mut [0; 8]).await.unwrap();
        assert!(output.poll_write(&mut socket, cx).is_pending());
        assert_eq!([(); 2].map(|()| output.has_moved()), [true, false]);
        other.read_exact(&mut [0; 56]).await.unwrap();
        assert!(output.poll_write(&mut socket, cx).is_ready());
        assert_eq!([(); 2].map(|()| output.has_moved()), [true, false]);
    }
}
