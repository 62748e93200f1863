//! The task of a socket: sends the appended requests, and distributes responses.

use super::Shared;
use crate::dial::Wire;
use crate::failure::Failure;
use bytes::BytesMut;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use stele_wire::frame::{self, Response};
use tokio::io::{AsyncReadExt, AsyncWrite};

/// Buffer for each read: hundreds of point reads, a tenth of a scan's response.
const READ_BYTES: usize = 256 << 10;

/// With less free space than this, another buffer is taken before reading.
const READ_BYTES_MIN: usize = 32 << 10;

/// Largest response: a scan's is 2 MiB unless one row is larger, which HBase allows.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Sent buffers that are kept for later requests: two batches being sent and one being filled.
const SPARES_MAX: usize = 3;

/// Largest buffer that is kept. A rare larger one is freed.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// The task that sends and receives.
pub struct Task {
    stream: Wire,
    incoming: BytesMut,
    /// The buffer being sent, and the number of its bytes that were sent.
    writing: Option<BytesMut>,
    written: usize,
}

impl Task {
    /// On a connection just made.
    pub fn new(stream: Wire) -> Self {
        Self {
            stream,
            incoming: BytesMut::new(),
            writing: None,
            written: 0,
        }
    }

    /// Sends and receives until neither is possible; ready only when the socket is dead.
    pub fn run(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Failure> {
        {
            let mut state = shared.state.lock();
            if let Some(dead) = &state.dead {
                return Poll::Ready(dead.clone());
            }
            state.task = Some(cx.waker().clone());
        }
        if let Err(failure) = self.send(shared, cx) {
            return Poll::Ready(failure);
        }
        match self.receive(shared, cx) {
            Err(failure) => Poll::Ready(failure),
            Ok(()) => Poll::Pending,
        }
    }

    fn send(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            if self.writing.is_none() {
                let mut state = shared.state.lock();
                self.writing = state.unsent.pop_front();
                let taken = self.writing.as_ref().map_or(0, BytesMut::len);
                state.unsent_bytes -= taken;
                self.written = 0;
            }
            let Some(buffer) = &self.writing else {
                return self.flush(shared, cx);
            };
            let rest = buffer.get(self.written..).unwrap_or_default();
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(e)) => return Err(shared.lost(&e.to_string())),
                Poll::Ready(Ok(0)) => return Err(shared.lost("the connection takes no more")),
                Poll::Ready(Ok(n)) => self.written += n,
            }
            if self.written == buffer.len() {
                self.keep_spare(shared);
            }
        }
    }

    /// Sends bytes that TLS has taken and holds.
    fn flush(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Result<(), Failure> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(e)) => Err(shared.lost(&e.to_string())),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Keeps the sent buffer for later requests.
    fn keep_spare(&mut self, shared: &Shared) {
        let Some(mut buffer) = self.writing.take() else { return };
        buffer.clear();
        let mut state = shared.state.lock();
        if state.spares.len() < SPARES_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            state.spares.push(buffer);
        }
    }

    fn receive(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            self.make_room()?;
            let read = pin!(self.stream.read_buf(&mut self.incoming)).poll(cx);
            match read {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(e)) => return Err(shared.lost(&e.to_string())),
                Poll::Ready(Ok(0)) => return Err(shared.lost("closed by the server")),
                Poll::Ready(Ok(_)) => self.hand_out(shared)?,
            }
        }
    }

    /// Provides space for a read. For the rest of a large response it grows step by step, so that a claimed length
    /// alone allocates little.
    fn make_room(&mut self) -> Result<(), Failure> {
        let have = self.incoming.len();
        let frame = frame::frame_bytes(&self.incoming, ANSWER_BYTES_MAX)?.unwrap_or_default();
        let missing = frame.saturating_sub(have);
        if self.incoming.capacity() - have < READ_BYTES_MIN.max(missing.min(READ_BYTES)) {
            let step = missing.min(have.max(4 << 20));
            self.incoming.reserve(step.max(READ_BYTES));
        }
        Ok(())
    }

    /// Gives all whole responses to their callers.
    fn hand_out(&mut self, shared: &Shared) -> Result<(), Failure> {
        let mut state = shared.state.lock();
        while let Some(frame) = frame::take_frame(&mut self.incoming, ANSWER_BYTES_MAX)? {
            let response = frame::decode_response(frame)?;
            // Ids of calls are positive in Java. Others mark a response to the whole connection.
            let id = response.header.call_id.unwrap_or_default();
            if id == 0 || i32::try_from(id).is_err() {
                return Err(refusal(shared, &response));
            }
            if let Some(waker) = state.slots.answer(id, response) {
                waker.wake();
            }
        }
        Ok(())
    }
}

/// A response to the whole connection: the server refuses it.
fn refusal(shared: &Shared, response: &Response) -> Failure {
    match &response.header.exception {
        Some(e) => shared.lost(&Failure::exception(e).to_string()),
        None => shared.lost("a response to no call"),
    }
}
