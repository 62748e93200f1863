//! The response of a call, as the HTTP body that the transport pulls.
//!
//! The transport polls the body only when it can send more, which is the back-pressure of all streams. A call lasts until
//! its response body is dropped. The transport keeps the body until it has written all bytes of it.

use crate::accounting::Call;
use crate::context::Context;
use crate::messages::framed;
use crate::reads::Responses;
use crate::reads::response_buffer::{Next, ResponseBuffer, deadline_exceeded};
use crate::response_memory::Registered;
use crate::stalled::Stalled;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;
use stele_env::{Env, trace};
use tonic::Status;
use tonic::codegen::http;

const GRPC: http::HeaderValue = http::HeaderValue::from_static("application/grpc");

/// Bytes of a frame after which no further message of a stream is added to it.
const STREAM_FRAME_BYTES: usize = 32 << 10;

/// The response of a handler.
pub(crate) enum Response {
    /// These pieces of messages, then the status OK.
    Whole(VecDeque<Bytes>),
    /// These messages with their prefixes, then the status OK.
    Stream(Box<dyn Iterator<Item = Result<Bytes, Status>> + Send>),
    Read(Read),
    /// A read of which all is with the transport. Others may need the memory of that.
    Sent(Read),
    Ended,
}

impl Response {
    /// A response of one message.
    pub fn unary(message: &impl prost::Message) -> Result<Self, Status> {
        Ok(Response::Whole([framed(message)?].into()))
    }

    /// A stream of messages. Each is encoded when the transport wants it.
    pub fn stream<M: prost::Message>(messages: impl Iterator<Item = M> + Send + 'static) -> Self {
        Response::Stream(Box::new(messages.map(|message| framed(&message))))
    }

    /// The response over HTTP, to a call that only reads or to another one.
    pub fn into_http(self, call: Call, is_read: bool) -> http::Response<ResponseBody> {
        let body = ResponseBody {
            response: self,
            call: Some(call),
            is_read,
            stalled: None,
        };
        let mut response = http::Response::new(body);
        response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
        response
    }
}

/// A read whose response reserves memory, or continues while it is sent.
pub(crate) struct Read {
    buffer: Arc<ResponseBuffer>,
    /// Set while more of the response is read.
    filling: Option<BoxFuture<'static, Filled>>,
    deadline: Option<Duration>,
    env: Env,
    _registered: Registered,
}

impl Read {
    pub fn new(context: &Context, responses: Responses, deadline: Option<Duration>) -> Self {
        let env = context.env.clone();
        let buffer = Arc::new(ResponseBuffer::new(Box::new(responses), deadline, env.now()));
        let weak = Arc::downgrade(&buffer);
        Read {
            buffer,
            filling: None,
            deadline,
            env,
            _registered: context.response_memory.register(weak),
        }
    }

    /// The next event for the transport; never [`Next::Read`].
    fn poll_next(&mut self, context: &mut task::Context<'_>) -> Poll<Next> {
        loop {
            if let Some(filling) = &mut self.filling {
                let (responses, filled) = ready!(filling.as_mut().poll(context));
                self.filling = None;
                self.buffer.put(responses, self.env.now());
                if let Err(status) = filled {
                    return Poll::Ready(Next::End(status));
                }
            }
            match self.buffer.take(self.env.now()) {
                Next::Read(responses) => self.filling = Some(fill(responses, self.deadline, self.env.clone())),
                next => return Poll::Ready(next),
            }
        }
    }

    /// Drops all that is not with the transport.
    fn end(&mut self) {
        self.filling = None;
        self.buffer.end();
    }
}

/// The responses after a read of more, and its outcome.
type Filled = (Box<Responses>, Result<(), Status>);

/// Reads more of a response, no longer than until the deadline of its client.
fn fill(mut responses: Box<Responses>, deadline: Option<Duration>, env: Env) -> BoxFuture<'static, Filled> {
    Box::pin(async move {
        let filled = match deadline {
            None => responses.fill().await,
            Some(deadline) => {
                let left = deadline.saturating_sub(env.now());
                let filled = env.timeout(left, responses.fill()).await;
                filled.unwrap_or_else(|_| Err(deadline_exceeded()))
            }
        };
        (responses, filled)
    })
}

/// The next messages of a stream, joined into one frame of about [`STREAM_FRAME_BYTES`].
fn next_frame(messages: &mut dyn Iterator<Item = Result<Bytes, Status>>) -> Next {
    let mut frame = BytesMut::new();
    while frame.len() < STREAM_FRAME_BYTES {
        match messages.next() {
            Some(Ok(message)) => frame.extend_from_slice(&message),
            Some(Err(status)) => return Next::End(status),
            None if frame.is_empty() => return Next::End(Status::ok("")),
            None => break,
        }
    }
    Next::Piece(frame.freeze())
}

/// The body of a response. The default has no frames: all of a refusal is in its headers.
pub struct ResponseBody {
    response: Response,
    call: Option<Call>,
    /// Its call changes nothing, so a client may repeat it.
    is_read: bool,
    /// Set while it waits for its client.
    stalled: Option<Stalled>,
}

impl Default for ResponseBody {
    fn default() -> Self {
        ResponseBody {
            response: Response::Ended,
            call: None,
            is_read: false,
            stalled: None,
        }
    }
}

impl ResponseBody {
    fn conclude(&mut self, code: tonic::Code) {
        self.response = match std::mem::replace(&mut self.response, Response::Ended) {
            Response::Read(mut read) | Response::Sent(mut read) => {
                read.end();
                Response::Sent(read)
            }
            _ => Response::Ended,
        };
        if let Some(call) = &self.call {
            call.conclude(code);
        }
    }

    /// Polled while the client takes nothing, also after the last frame. Ready if the response is given up, with the code to reset its stream with. Clients
    /// take one of them for UNAVAILABLE and repeat the call. A change has been made by now, so it gets the other.
    pub(crate) fn poll_give_up(&mut self, context: &mut task::Context<'_>) -> Poll<h2::Reason> {
        let Some(call) = &self.call else {
            return Poll::Pending;
        };
        let stalled = self.stalled.get_or_insert_with(|| call.stalled());
        ready!(stalled.poll(context));
        let (code, reason) = match self.is_read {
            true => (tonic::Code::Unavailable, h2::Reason::REFUSED_STREAM),
            false => (tonic::Code::Cancelled, h2::Reason::CANCEL),
        };
        self.conclude(code);
        Poll::Ready(reason)
    }

    /// The last frame.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.conclude(status.code());
        let mut trailers = http::HeaderMap::with_capacity(1);
        if status.add_header(&mut trailers).is_err() {
            // Its details cannot be a header; its code always can.
            trailers.insert(Status::GRPC_STATUS, http::HeaderValue::from(status.code() as i32));
        }
        Frame::trailers(trailers)
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        // The client has taken all before this.
        this.stalled = None;
        let trace = this.call.as_ref().and_then(Call::trace);
        let entered = trace::enter(trace);
        let next = match &mut this.response {
            Response::Sent(_) | Response::Ended => return Poll::Ready(None),
            Response::Whole(pieces) => pieces.pop_front().map_or(Next::End(Status::ok("")), Next::Piece),
            Response::Stream(messages) => next_frame(messages),
            Response::Read(read) => ready!(read.poll_next(context)),
        };
        drop(entered);
        if let (Some(trace), Next::Piece(piece)) = (trace, &next) {
            trace.note(|facts| facts.response_bytes += piece.len() as u64);
        }
        Poll::Ready(Some(match next {
            Next::Piece(piece) => Ok(Frame::data(piece)),
            Next::End(status) => Ok(this.end(&status)),
            Next::Reset(status) => {
                this.conclude(status.code());
                Err(status)
            }
            // Read::poll_next handles these.
            Next::Read(_) => Err(Status::internal("The response was lost")),
        }))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.response, Response::Sent(_) | Response::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn small_messages_of_a_stream_share_frames() {
        let texts: Vec<String> = (0..3_000).map(|n| format!("{n:040}")).collect();
        let Response::Stream(mut messages) = Response::stream(texts.clone().into_iter()) else {
            unreachable!("a stream was made")
        };
        let (mut sent, mut frames) = (Vec::new(), 0);
        let end = loop {
            match next_frame(&mut messages) {
                Next::Piece(frame) => {
                    assert!(frame.len() < STREAM_FRAME_BYTES + 100, "{}", frame.len());
                    sent.extend_from_slice(&frame);
                    frames += 1;
                }
                Next::End(status) => break status,
                Next::Read(_) | Next::Reset(_) => unreachable!("of a stream"),
            }
        };
        assert_eq!((end.code(), frames), (tonic::Code::Ok, 5));
        let expected: Vec<u8> = texts.iter().flat_map(|text| framed(text).unwrap()).collect();
        assert_eq!(sent, expected);
        assert_eq!(String::decode(&sent[5..47]).unwrap(), texts[0]);
    }
}
