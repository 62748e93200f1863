//! The body of a request, charged to its call while it arrives.
//!
//! Every request is read through [`RequestBody`], before anything of it is decoded. It checks the announced size of the
//! message once the prefix has arrived, charges each frame, and fails a request that arrives too slowly. It does so earlier while
//! other calls are refused ([`crate::stalled`]).

use crate::accounting::Call;
use crate::messages::{self, PREFIX_BYTES, check_encoding};
use crate::stalled::Stalled;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::codegen::{StdError, http};

/// Reads the message of a call's request.
pub(crate) async fn read_message<B>(call: &Call, headers: &http::HeaderMap, body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    check_encoding(headers)?;
    messages::message(&mut RequestBody::new(body, call)).await
}

struct RequestBody<'c, B> {
    body: B,
    call: &'c Call,
    /// The first bytes, which announce the size.
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    /// Fires when the request may have become too slow. Set once the body has been waited for.
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Set while the body is waited for.
    stalled: Option<Stalled>,
    /// No more of the request is read before this ends: caches shrink meanwhile to make space for it.
    settles: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<'c, B> RequestBody<'c, B> {
    fn new(body: B, call: &'c Call) -> Self {
        RequestBody {
            body,
            call,
            prefix: [0; PREFIX_BYTES],
            prefix_len: 0,
            alarm: None,
            stalled: None,
            settles: None,
        }
    }

    /// Charges data that has arrived.
    fn arrived(&mut self, data: &[u8]) -> Result<(), Status> {
        if let Some(rest) = self.prefix.get_mut(self.prefix_len..).filter(|rest| !rest.is_empty()) {
            let copied = rest.len().min(data.len());
            rest.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
            self.prefix_len += copied;
            if self.prefix_len == PREFIX_BYTES {
                let [_, len @ ..] = self.prefix;
                let wait = self.call.check_message_len(u32::from_be_bytes(len) as usize)?;
                if !wait.is_zero() {
                    let env = self.call.env().clone();
                    self.settles = Some(Box::pin(async move { env.sleep(wait).await }));
                }
            }
        }
        self.call.charge(data.len())
    }

    /// Waits no longer than a request may take to arrive, which is less while other calls are refused.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let call = self.call;
        let stalled = self.stalled.get_or_insert_with(|| call.awaits_request());
        if stalled.poll(cx).is_ready() {
            return Poll::Ready(Status::unavailable(
                "Too many calls are in flight, and the request arrives slowly; retry after backing off",
            ));
        }
        loop {
            if let Some(alarm) = &mut self.alarm {
                ready!(alarm.as_mut().poll(cx));
            }
            match self.call.arrival_left() {
                Ok(left) => {
                    let env = self.call.env().clone();
                    self.alarm = Some(Box::pin(async move { env.sleep(left).await }));
                }
                Err(status) => return Poll::Ready(status),
            }
        }
    }
}

impl<B> HttpBody for RequestBody<'_, B>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(settles) = &mut self.settles {
            ready!(settles.as_mut().poll(cx));
            self.settles = None;
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_late(cx).map(|status| Some(Err(status)));
        };
        self.stalled = None;
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.arrived(data)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
