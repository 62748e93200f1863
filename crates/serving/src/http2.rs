//! Serves HTTP/2 connections (RFC 9113) for front ends, over the `h2` crate.
//!
//! One task drives a connection and all of its requests. In each poll it reads the frames that have arrived, starts and
//! continues requests, and encodes the frames of their responses. When none of these makes progress, it writes the
//! gathered output to the socket. Many wake-ups of requests wake the task once.
//!
//! A request that is ready when it is first polled costs no allocation for a task. Others wait in a set of the
//! connection ([`Exchange`]).
//!
//! The transport queues frames while a client or its socket takes none. The body of a response exists until all of its bytes are
//! written, also after its last frame is queued. So a front end that limits its bodies limits the bytes of them that are queued. A
//! connection whose socket takes nothing for [`OUTPUT_WAIT`] ends.

mod exchange;
mod keepalive;
mod request_body;

pub use request_body::RequestBody;

use crate::gathered_io::{GatheredIo, Output, gathered};
use crate::progress::Progress;
use bytes::Bytes;
use exchange::{Exchange, Piece, Sending};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use keepalive::Keepalive;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stele_env::Env;
use tokio::io::{AsyncRead, AsyncWrite};

/// A front end that serves requests over HTTP/2.
pub trait Http2Service: Clone + Send + 'static {
    /// The body of a response. An error resets the stream, with the code of an [`h2::Error`] among its sources.
    type Body: http_body::Body<Data = Bytes, Error: std::error::Error + 'static> + Send + Unpin + 'static;

    /// Serves one request. The returned future is dropped when the client resets the stream or is gone.
    fn call(
        &self,
        request: http::Request<RequestBody>,
    ) -> impl Future<Output = http::Response<Self::Body>> + Send + 'static;

    /// Polled while the client takes nothing of a body, or the transport cannot write the rest. Ready if the stream must be reset, with
    /// the code for it. It may be polled again after that.
    fn poll_give_up(body: &mut Self::Body, cx: &mut Context<'_>) -> Poll<h2::Reason> {
        let _ = (body, cx);
        Poll::Pending
    }
}

/// Bytes of a response that the transport queues before it asks for more. It queues them even while the socket takes nothing, for each
/// stream of the connection. The last piece may exceed it, so a stream costs two pieces.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Time in which a socket must take some of the output that waits.
const OUTPUT_WAIT: Duration = Duration::from_secs(60);

/// Bodies that a connection has space for when the transport has written all of them.
const UNWRITTEN_KEPT: usize = 4;

/// How long a connection starts requests, and how long it continues others, before the other tasks of its event loop have a turn.
/// One request may take longer.
const TURN: Duration = Duration::from_millis(1);

/// Limits and windows of connections.
#[derive(Clone, Copy, Debug)]
pub struct Http2Settings {
    /// Flow-control window of a request body in bytes.
    pub stream_window: u32,
    /// Flow-control window of all request bodies of a connection in bytes.
    pub connection_window: u32,
    /// Bytes of the largest frame that clients may send.
    pub frame_bytes_max: u32,
    /// Bytes of the largest header list of a request.
    pub header_bytes_max: u32,
    /// Concurrent requests of one connection.
    pub streams_max: u32,
    /// Streams that may be reset because of a client's mistakes, over the life of a connection; then it ends. The
    /// transport keeps some hundreds of bytes of each until the client has read the reset.
    pub broken_streams_max: usize,
    /// Time in which a connection must begin.
    pub begin_wait: Duration,
    /// How often a silent connection is probed.
    pub probe_interval: Duration,
    /// How long a probe may remain unanswered.
    pub probe_wait: Duration,
}

/// The reason for which a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It did not begin within [`Http2Settings::begin_wait`].
    #[error("the connection did not begin within {0:?}")]
    NotBegun(Duration),
    /// A probe was not answered.
    #[error("the client did not answer a probe")]
    Silent,
    /// The client takes no output.
    #[error("the client took no response for {OUTPUT_WAIT:?}")]
    NotTaken,
    /// The client broke the protocol, or the socket failed.
    #[error(transparent)]
    Protocol(#[from] h2::Error),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves a connection to its end. Once `drain` completes no more requests are accepted, and the connection ends when
/// those in flight have ended.
pub async fn serve<T, S>(
    socket: T,
    service: S,
    settings: Http2Settings,
    env: Env,
    drain: impl Future<Output = ()>,
) -> Result<(), ConnectionError>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Http2Service,
{
    let (io, output) = gathered(socket);
    let mut handshake = pin!(builder(&settings).handshake(io));
    let begun = poll_fn(|cx| {
        let begun = handshake.as_mut().poll(cx);
        match output.poll_write_out(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(ConnectionError::Io(error))),
            _ => begun.map_err(ConnectionError::Protocol),
        }
    });
    let mut h2 = match env.timeout(settings.begin_wait, begun).await {
        Ok(begun) => begun?,
        Err(_) => return Err(ConnectionError::NotBegun(settings.begin_wait)),
    };
    let keepalive = h2
        .ping_pong()
        .map(|probe| Keepalive::new(probe, &settings, env.clone()));
    let mut connection = Connection {
        h2,
        output,
        service,
        exchanges: FuturesUnordered::new(),
        unwritten: Vec::new(),
        keepalive,
        takes: Progress::within(OUTPUT_WAIT),
        env,
    };
    let mut drain = pin!(drain);
    let mut draining = false;
    poll_fn(|cx| {
        if !draining && drain.as_mut().poll(cx).is_ready() {
            draining = true;
            connection.h2.graceful_shutdown();
        }
        connection.poll(cx)
    })
    .await
}

fn builder(settings: &Http2Settings) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(settings.stream_window)
        .initial_connection_window_size(settings.connection_window)
        .max_frame_size(settings.frame_bytes_max)
        .max_header_list_size(settings.header_bytes_max)
        .max_concurrent_streams(settings.streams_max)
        // As many uploads can be refused at one time. The rest of an upload that is forgotten counts as a broken stream.
        .max_concurrent_reset_streams(settings.streams_max as usize)
        // Calls that are cancelled before they were taken, when their deadlines pass in a pause of the machine. With more of them the
        // connection ends, and with it the calls that were not cancelled. The client may begin others for those that it has cancelled.
        .max_pending_accept_reset_streams(4 * settings.streams_max as usize)
        .max_local_error_reset_streams(Some(settings.broken_streams_max))
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    builder
}

/// A connection that has begun.
struct Connection<T, S: Http2Service> {
    h2: h2::server::Connection<GatheredIo<T>, Piece>,
    output: Output<T>,
    service: S,
    /// The requests that were not ready when they were first polled.
    exchanges: FuturesUnordered<Exchange<S>>,
    /// Bodies of which all has been handed to the transport, and some may not have been written.
    unwritten: Vec<Sending<S>>,
    keepalive: Option<Keepalive>,
    /// Ends the connection if its socket takes no output.
    takes: Progress,
    env: Env,
}

/// How far reading frames has come.
enum Frames {
    /// More must arrive.
    Waiting,
    /// The turn is over, and there may be more.
    TurnOver,
    /// The connection has ended.
    Ended(Result<(), ConnectionError>),
}

impl<T, S> Connection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Http2Service,
{
    /// Makes the progress that is possible within a turn. Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let turn_end = self.env.now().saturating_add(TURN);
        loop {
            let mut turn_over = match self.poll_frames(turn_end, cx) {
                Frames::Waiting => false,
                Frames::TurnOver => true,
                Frames::Ended(ended) => return Poll::Ready(ended),
            };
            let mut progress = false;
            // They have as much time again: requests that arrive all the time would take the turns of those that wait.
            let exchanges_end = self.env.now().saturating_add(TURN);
            while let Poll::Ready(Some(sending)) = self.exchanges.poll_next_unpin(cx) {
                self.unwritten.extend(sending);
                progress = true;
                let now = self.env.now();
                turn_over |= now >= turn_end;
                if now >= exchanges_end {
                    break;
                }
            }
            if turn_over {
                // Wakes the task when the loop has asked for events, so other connections come first.
                let _ = pin!(self.env.yield_now()).poll(cx);
            }
            if turn_over || !progress {
                break;
            }
        }
        if let Some(keepalive) = &mut self.keepalive
            && keepalive.poll(cx, &self.output).is_ready()
        {
            return Poll::Ready(Err(ConnectionError::Silent));
        }
        self.unwritten
            .retain_mut(|sending| sending.poll_written(cx).is_pending());
        if self.unwritten.is_empty() {
            self.unwritten.shrink_to(UNWRITTEN_KEPT);
        }
        self.poll_output(cx)
    }

    /// Writes the output. Ready when the socket has failed, or has taken nothing for too long.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        // Either way a waker is registered: of the frames to read, or of the socket.
        let waits = match self.output.poll_write_out(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            written => written.is_pending(),
        };
        let takes = self.output.takes();
        let stalled = self.takes.poll_stalled(takes, waits, &self.env, cx);
        stalled.map(|()| Err(ConnectionError::NotTaken))
    }

    /// Reads the frames that have arrived, starts their requests, and encodes the frames to send.
    fn poll_frames(&mut self, turn_end: Duration, cx: &mut Context<'_>) -> Frames {
        loop {
            let accepted = self.h2.poll_accept(cx);
            // The one before has been written by now if the client and its socket take it. Otherwise the rest is not checked.
            while self.unwritten.pop_if(|sending| sending.is_written()).is_some() {}
            let (request, respond) = match accepted {
                Poll::Pending => return Frames::Waiting,
                Poll::Ready(None) => return Frames::Ended(Ok(())),
                Poll::Ready(Some(Err(error))) => return Frames::Ended(Err(error.into())),
                Poll::Ready(Some(Ok(accepted))) => accepted,
            };
            let response = self.service.call(request.map(RequestBody::new));
            let mut exchange = Exchange::new(Box::pin(response), respond);
            // If it is not ready, the set polls it again when it is next polled, and then it registers the set's waker.
            let mut unwoken = Context::from_waker(Waker::noop());
            match Pin::new(&mut exchange).poll(&mut unwoken) {
                Poll::Pending => self.exchanges.push(exchange),
                Poll::Ready(sending) => self.unwritten.extend(sending),
            }
            if self.env.now() >= turn_end {
                return Frames::TurnOver;
            }
        }
    }
}

#[cfg(test)]
mod tests;
