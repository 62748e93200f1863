//! One request and its response.

use super::Http2Service;
use bytes::Bytes;
use futures::future::BoxFuture;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http_body::Body;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request that is served. It ends when its response has been handed to the transport, or when the client has reset
/// the stream.
pub(super) struct Exchange<S: Http2Service> {
    respond: SendResponse<Bytes>,
    state: State<S::Body>,
}

enum State<B> {
    /// The front end works on the response.
    Serving(BoxFuture<'static, http::Response<B>>),
    /// The body is sent as the client takes it.
    Sending(SendStream<Bytes>, B),
}

impl<S: Http2Service> Exchange<S> {
    pub fn new(response: BoxFuture<'static, http::Response<S::Body>>, respond: SendResponse<Bytes>) -> Self {
        Exchange {
            respond,
            state: State::Serving(response),
        }
    }
}

impl<S: Http2Service> Future for Exchange<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Serving(response) => {
                    let Poll::Ready(response) = response.as_mut().poll(cx) else {
                        return this.respond.poll_reset(cx).map(drop);
                    };
                    let (head, body) = response.into_parts();
                    let ended = body.is_end_stream();
                    let head = http::Response::from_parts(head, ());
                    match this.respond.send_response(head, ended) {
                        Ok(stream) if !ended => this.state = State::Sending(stream, body),
                        // Sent, or the client is gone.
                        _ => return Poll::Ready(()),
                    }
                }
                State::Sending(stream, body) => return poll_send::<S>(stream, body, cx),
            }
        }
    }
}

/// Sends a body, no further ahead of the client than one piece.
fn poll_send<S: Http2Service>(stream: &mut SendStream<Bytes>, body: &mut S::Body, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        // One byte of capacity asks for the next piece; the transport queues the rest of it.
        stream.reserve_capacity(1);
        while stream.capacity() == 0 {
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    if let Poll::Ready(reason) = S::poll_give_up(body, cx) {
                        stream.send_reset(reason);
                        return Poll::Ready(());
                    }
                    return stream.poll_reset(cx).map(drop);
                }
            }
        }
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
            return stream.poll_reset(cx).map(drop);
        };
        let sent = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => stream
                    .send_data(data, body.is_end_stream())
                    .map(|()| body.is_end_stream()),
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => stream.send_trailers(trailers).map(|()| true),
                    Err(_) => Ok(false),
                },
            },
            Some(Err(error)) => {
                stream.send_reset(reason(&error));
                return Poll::Ready(());
            }
            None => stream.send_data(Bytes::new(), true).map(|()| true),
        };
        match sent {
            Ok(false) => {}
            // All is sent, or the client is gone.
            Ok(true) | Err(_) => return Poll::Ready(()),
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
