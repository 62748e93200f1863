//! One request and its response.

use super::Http2Service;
use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http_body::Body;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A piece of a body that the transport holds. The transport drops it when it has written it, or when the stream is reset.
pub(super) struct Piece {
    bytes: Bytes,
    _of_body: Arc<()>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// A request that is served. It ends when all of its response has been handed to the transport, or when the stream is reset. Its
/// result is the body of which the transport may still hold pieces.
pub(super) struct Exchange<S: Http2Service> {
    respond: SendResponse<Piece>,
    state: State<S>,
}

enum State<S: Http2Service> {
    /// The front end works on the response.
    Serving(BoxFuture<'static, http::Response<S::Body>>),
    /// The body is sent as the client takes it.
    Sending(Sending<S>),
    Ended,
}

impl<S: Http2Service> Exchange<S> {
    pub fn new(response: BoxFuture<'static, http::Response<S::Body>>, respond: SendResponse<Piece>) -> Self {
        Exchange {
            respond,
            state: State::Serving(response),
        }
    }
}

impl<S: Http2Service> Future for Exchange<S> {
    type Output = Option<Sending<S>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Sending<S>>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Serving(response) => {
                    let Poll::Ready(response) = response.as_mut().poll(cx) else {
                        return this.respond.poll_reset(cx).map(|_| None);
                    };
                    let (head, body) = response.into_parts();
                    let ended = body.is_end_stream();
                    let head = http::Response::from_parts(head, ());
                    match this.respond.send_response(head, ended) {
                        Ok(stream) if !ended => this.state = State::Sending(Sending::new(stream, body)),
                        // Sent, or the client is gone.
                        _ => return Poll::Ready(None),
                    }
                }
                State::Sending(sending) => {
                    if sending.poll_send(cx).is_pending() {
                        return Poll::Pending;
                    }
                    match std::mem::replace(&mut this.state, State::Ended) {
                        State::Sending(sending) => return Poll::Ready(Some(sending)),
                        // It was sending a moment ago.
                        other => this.state = other,
                    }
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

/// A body that is sent.
pub(super) struct Sending<S: Http2Service> {
    stream: SendStream<Piece>,
    body: S::Body,
    /// Shared with the pieces that the transport holds.
    pieces: Arc<()>,
}

impl<S: Http2Service> Sending<S> {
    fn new(stream: SendStream<Piece>, body: S::Body) -> Self {
        Sending {
            stream,
            body,
            pieces: Arc::default(),
        }
    }

    /// Whether the transport holds nothing of the body.
    pub fn is_written(&self) -> bool {
        Arc::strong_count(&self.pieces) == 1
    }

    /// For a body of which all has been handed to the transport, or whose stream is reset: ready when the transport holds nothing of
    /// it. Its client may take nothing until then, so the front end may give it up.
    pub fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The transport drops its pieces with the reset, except for one that it has begun to write.
        if self.is_written() || (self.poll_give_up(cx).is_ready() && self.is_written()) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn poll_give_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let given_up = S::poll_give_up(&mut self.body, cx);
        given_up.map(|reason| self.stream.send_reset(reason))
    }

    fn send_data(&mut self, bytes: Bytes, ended: bool) -> Result<(), h2::Error> {
        let piece = Piece {
            bytes,
            _of_body: Arc::clone(&self.pieces),
        };
        self.stream.send_data(piece, ended)
    }

    /// Sends the body, no further ahead of the client than one piece.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // One byte of capacity asks for the next piece; the transport queues the rest of it.
            self.stream.reserve_capacity(1);
            while self.stream.capacity() == 0 {
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending if self.poll_give_up(cx).is_ready() => return Poll::Ready(()),
                    Poll::Pending => return self.stream.poll_reset(cx).map(drop),
                }
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return self.stream.poll_reset(cx).map(drop);
            };
            let ended = self.body.is_end_stream();
            let sent = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.send_data(data, ended).map(|()| ended),
                    Err(frame) => match frame.into_trailers() {
                        Ok(trailers) => self.stream.send_trailers(trailers).map(|()| true),
                        Err(_) => Ok(false),
                    },
                },
                Some(Err(error)) => {
                    self.stream.send_reset(reason(&error));
                    return Poll::Ready(());
                }
                None => self.send_data(Bytes::new(), true).map(|()| true),
            };
            match sent {
                Ok(false) => {}
                // All is sent, or the client is gone.
                Ok(true) | Err(_) => return Poll::Ready(()),
            }
        }
    }
}

/// The code to reset a stream with.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(reason) = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return reason;
        }
        cause = error.source();
    }
    Reason::INTERNAL_ERROR
}
