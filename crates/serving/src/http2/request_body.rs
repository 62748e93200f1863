//! The body of a request as it arrives.

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of a request. A frame that was taken makes space for the next in the client's window.
pub struct RequestBody(RecvStream);

impl RequestBody {
    pub(super) fn new(stream: RecvStream) -> Self {
        RequestBody(stream)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.0.poll_data(cx)) {
            Some(Ok(data)) => {
                let released = self.0.flow_control().release_capacity(data.len());
                Poll::Ready(Some(released.map(|()| Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            // Trailers of requests mean nothing to any front end.
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
