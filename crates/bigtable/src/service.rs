//! The front end as one HTTP service: every call takes the same path.
//!
//! 1. The router finds the route of the method; a path without one is UNIMPLEMENTED.
//! 2. Call accounting admits the call.
//! 3. The message of the request is read, and charged while it arrives.
//! 4. The handler decodes it, does the work, and returns a [`Response`].
//! 5. The transport pulls the response body; the call ends with it.

use crate::accounting::{Call, CallAccounting, MethodAccount};
use crate::callers::Callers;
use crate::context::Context;
use crate::messages::time_limit;
use crate::request_body::read_message;
use crate::response::{Response, ResponseBody};
use crate::routes::{Handler, routes};
use bytes::Bytes;
use http_body::Body as HttpBody;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll};
use stele_access::Access;
use stele_env::{Priority, trace};
use stele_serving::{Http2Service, RequestBody};
use tonic::Status;
use tonic::codegen::{StdError, http};

/// All calls of the API. Cloning shares it.
#[derive(Clone)]
pub struct BigtableService {
    router: Arc<Router>,
    /// Finds the callers of this connection; `None` where callers are not known.
    callers: Option<Callers>,
}

struct Router {
    context: Arc<Context>,
    accounting: Arc<CallAccounting>,
    /// By path; constant.
    routes: HashMap<&'static str, (Handler, MethodAccount)>,
    unimplemented: MethodAccount,
}

impl BigtableService {
    pub(crate) fn new(context: Arc<Context>, accounting: Arc<CallAccounting>, access: Option<Arc<Access>>) -> Self {
        let routes = routes()
            .map(|(path, handler)| (path, (handler, accounting.method(path))))
            .collect();
        let router = Router {
            unimplemented: accounting.unimplemented_methods(),
            context,
            accounting,
            routes,
        };
        BigtableService {
            router: Arc::new(router),
            callers: access.map(|access| Callers::new(access, None)),
        }
    }

    /// The service for a connection whose client has this name by its certificate.
    #[must_use]
    pub fn for_connection(&self, certificate: Option<String>) -> Self {
        BigtableService {
            router: Arc::clone(&self.router),
            callers: self.callers.as_ref().map(|callers| callers.for_connection(certificate)),
        }
    }
}

impl Router {
    /// Admits a call, if its method has a handler and its caller is known where callers are.
    fn admit(
        &self,
        path: &str,
        headers: &http::HeaderMap,
        callers: Option<&Callers>,
    ) -> Result<(Handler, Call, Arc<Context>), Status> {
        let Some((path, (handler, method))) = self.routes.get_key_value(path) else {
            return Err(self.accounting.refuse_unimplemented(&self.unimplemented, path));
        };
        let call = self.accounting.admit(method, headers)?;
        let context = match callers {
            None => Arc::clone(&self.context),
            Some(callers) => {
                let context = callers.context(&self.context, headers, path);
                context.inspect_err(|status| call.conclude(status.code()))?
            }
        };
        Ok((*handler, call, context))
    }
}

impl BigtableService {
    /// Serves one call.
    pub(crate) fn serve<B>(
        &self,
        request: http::Request<B>,
    ) -> impl Future<Output = http::Response<ResponseBody>> + Send + 'static
    where
        B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin + Send + 'static,
    {
        let path = request.uri().path();
        let admitted = self.router.admit(path, request.headers(), self.callers.as_ref());
        async move {
            match admitted {
                Ok((handler, call, context)) => serve(handler, context, call, request).await,
                Err(status) => status.into_http(),
            }
        }
    }
}

impl Http2Service for BigtableService {
    type Body = ResponseBody;

    fn call(
        &self,
        request: http::Request<RequestBody>,
    ) -> impl Future<Output = http::Response<ResponseBody>> + Send + 'static {
        self.serve(request)
    }

    fn poll_give_up(body: &mut ResponseBody, cx: &mut task::Context<'_>) -> Poll<h2::Reason> {
        body.poll_give_up(cx)
    }
}

/// Serves an admitted call.
async fn serve<B>(
    handler: Handler,
    context: Arc<Context>,
    call: Call,
    request: http::Request<B>,
) -> http::Response<ResponseBody>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    let (head, body) = request.into_parts();
    let headers = head.headers;
    let (call, response) = match receive(handler, &call, &headers, body).await {
        Ok(bytes) if handler.is_write() && call.is_large() => {
            // Boxed, because all other calls would carry its size.
            match Box::pin(carry_out(handler, context, call, headers, bytes)).await {
                Some(done) => done,
                None => return stopped().into_http(),
            }
        }
        Ok(bytes) => {
            let response = handle(handler, &context, &call, (&headers, bytes)).await;
            (call, response)
        }
        Err(status) => (call, Err(status)),
    };
    match response {
        Ok(response) => response.into_http(call, handler.is_read()),
        Err(status) => {
            call.conclude(status.code());
            status.into_http()
        }
    }
}

/// Reads the message of a request, and charges the memory of its decoded form.
async fn receive<B>(handler: Handler, call: &Call, headers: &http::HeaderMap, body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    let arriving = call.trace().map(|trace| trace.stage("receive"));
    let bytes = read_message(call, headers, body).await?;
    drop(arriving);
    if let Some(trace) = call.trace() {
        trace.note(|facts| facts.request_bytes = bytes.len() as u64);
    }
    call.charge(handler.decoded_bytes(&bytes)?)?;
    Ok(bytes)
}

/// Handles a received request on behalf of its trace. A read ends at the deadline of its client. A change goes on: its outcome
/// would not be known otherwise.
async fn handle(
    handler: Handler,
    context: &Arc<Context>,
    call: &Call,
    (headers, bytes): (&http::HeaderMap, Bytes),
) -> Result<Response, Status> {
    let limit = if handler.is_read() { time_limit(headers) } else { None };
    let deadline = limit.map(|limit| call.started().saturating_add(limit));
    let mut handling = pin!(handler.handle(context, call, (headers, bytes), deadline));
    let mut handling = pin!(trace::within(call.trace(), handling.as_mut()));
    let Some(deadline) = deadline else {
        return handling.await;
    };
    // Nearly all reads are done immediately, and need no timer.
    if let Poll::Ready(response) = futures::poll!(handling.as_mut()) {
        return response;
    }
    let left = deadline.saturating_sub(context.env.now());
    let handled = context.env.timeout(left, handling).await;
    handled.unwrap_or_else(|_| {
        Err(Status::deadline_exceeded(
            "The deadline of the call passed before it was answered",
        ))
    })
}

/// Runs a large write in a task that owns the call, so that it runs to its end even if the caller goes away. Returns
/// `None` when the runtime stops.
///
/// A write that has reached the log continues without its caller and keeps its request until memtables have it. Only the
/// call accounts for a request that is larger than the log's queue. If the call ended with its caller, the next requests
/// would be admitted as if that memory were free. A write that reads a row may produce far more than its request has: the
/// layer that reads the row accounts for that until memtables have it.
async fn carry_out(
    handler: Handler,
    context: Arc<Context>,
    call: Call,
    headers: http::HeaderMap,
    bytes: Bytes,
) -> Option<(Call, Result<Response, Status>)> {
    let env = context.env.clone();
    let task = async move {
        let response = handle(handler, &context, &call, (&headers, bytes)).await;
        (call, response)
    };
    env.spawn_join(Priority::Foreground, "large write", task).await.ok()
}

/// The status of a write whose outcome is unknown.
fn stopped() -> Status {
    Status::aborted("The server stopped before the write was acknowledged")
}
