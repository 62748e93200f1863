//! The service as the generated clients call it in process, without a connection.

use crate::BigtableService;
use crate::response::ResponseBody;
use bytes::Bytes;
use http_body::Body as HttpBody;
use std::convert::Infallible;
use std::task::{self, Poll};
use tonic::codegen::{BoxFuture, Service, StdError, http};

impl<B> Service<http::Request<B>> for BigtableService
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin + Send + 'static,
{
    type Response = http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let served = self.serve(request);
        Box::pin(async move { Ok(served.await) })
    }
}
