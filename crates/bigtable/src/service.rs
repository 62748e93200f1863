//! The front end as one HTTP service: which way a call goes.

use crate::accounting::CallAccounting;
use crate::context::Context;
use crate::data_plane::Hot;
use bytes::Bytes;
use http_body::Body as HttpBody;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{self, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, StdError, http};
use tonic::service::Routes;

/// All calls of the API. Cloning shares it.
#[derive(Clone)]
pub struct BigtableService {
    context: Arc<Context>,
    accounting: Arc<CallAccounting>,
    /// Calls with a generated stub.
    others: Routes,
}

impl BigtableService {
    pub(crate) fn new(context: Arc<Context>, accounting: Arc<CallAccounting>, others: Routes) -> Self {
        BigtableService {
            context,
            accounting,
            others,
        }
    }
}

impl<B> Service<http::Request<B>> for BigtableService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<http::Request<B>>::poll_ready(&mut self.others, context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Some(hot) = Hot::of(request.uri().path()) else {
            return Box::pin(self.others.call(request));
        };
        match self.accounting.admit(request.uri().path()) {
            Ok(call) => {
                let served = hot.serve(Arc::clone(&self.context), call, request.map(Body::new));
                Box::pin(async move { Ok(served.await) })
            }
            Err(refusal) => Box::pin(std::future::ready(Ok(refusal))),
        }
    }
}
