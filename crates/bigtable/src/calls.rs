//! What happens to every call before and after its handler: admission, measurement, and the answer for calls that are
//! not implemented.
//!
//! This sits outside of the generated stubs, and of the calls that are served without one, at the level of HTTP, so that handlers stay free of it and so that it sees
//! a request before it is decoded: the bytes of a request are counted while they arrive, and a request that would take
//! the front end past its budget is refused at that point, with UNAVAILABLE, because backing off helps.
//!
//! A call lasts from its first header to the end, or the abandonment, of its response stream.

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{Histogram, IntCounter, IntCounterVec, IntGauge, Metrics};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// The `method` label of calls without a stub: one for all, because their names are the client's choice.
const UNSERVED_LABEL: &str = "unimplemented";

/// How much the front end takes on at once.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// Calls in flight, streams included. The default of 8,192 is far above what keeps a machine busy, and bounds what
    /// a stampede of clients costs in memory.
    pub calls_max: usize,
    /// Bytes of requests in flight. The default of 1 GiB admits three of the largest messages.
    pub request_bytes_max: usize,
}

impl Default for CallLimits {
    fn default() -> Self {
        CallLimits {
            calls_max: 8_192,
            request_bytes_max: 1 << 30,
        }
    }
}

/// The accounts of all calls of a front end.
pub(crate) struct Ledger {
    env: Env,
    limits: CallLimits,
    slots: Arc<Semaphore>,
    request_bytes: AtomicUsize,
    /// By path; constant.
    served: HashMap<&'static str, MethodInstruments>,
    unserved: MethodInstruments,
    requests: IntCounterVec,
    in_flight: IntGauge,
}

#[derive(Clone)]
struct MethodInstruments {
    label: &'static str,
    ok: IntCounter,
    seconds: Histogram,
}

impl Ledger {
    pub fn new(served: impl Iterator<Item = &'static str>, limits: CallLimits, env: Env, metrics: &Metrics) -> Self {
        let requests = metrics.counters(
            "stele_bigtable_requests_total",
            "Calls of the Bigtable API by method and gRPC code.",
            &["method", "code"],
        );
        let seconds = metrics.latencies(
            "stele_bigtable_request_seconds",
            "Time from the first header of a call to the end of its response, by method.",
            &["method"],
        );
        let in_flight = metrics.gauge(
            "stele_bigtable_requests_in_flight",
            "Calls of the Bigtable API that have not ended.",
        );
        let instruments = |label: &'static str| MethodInstruments {
            label,
            ok: requests.with_label_values(&[label, code_label(Code::Ok)]),
            seconds: seconds.with_label_values(&[label]),
        };
        let served = served.map(|path| (path, instruments(method_of(path)))).collect();
        let unserved = instruments(UNSERVED_LABEL);
        Ledger {
            env,
            slots: Arc::new(Semaphore::new(limits.calls_max)),
            limits,
            request_bytes: AtomicUsize::new(0),
            served,
            unserved,
            requests,
            in_flight,
        }
    }

    /// Admits a call of this path; otherwise what to answer.
    #[allow(clippy::result_large_err, reason = "a refusal is rare, and goes out as it is")]
    pub fn admit(self: &Arc<Self>, path: &str) -> Result<Call, http::Response<Body>> {
        let Some(method) = self.served.get(path) else {
            let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let message = format!("{} of {service} is not implemented", method_of(path));
            return Err(self.refuse(&self.unserved, Status::unimplemented(message)));
        };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            let message = "Too many calls are in flight; retry after backing off";
            return Err(self.refuse(method, Status::unavailable(message)));
        };
        self.in_flight.inc();
        Ok(Call {
            method: method.clone(),
            started: self.env.now(),
            code: AtomicI32::new(CODE_PENDING),
            request_bytes: AtomicUsize::new(0),
            ledger: Arc::clone(self),
            _slot: slot,
        })
    }

    fn refuse(&self, method: &MethodInstruments, status: Status) -> http::Response<Body> {
        self.count(method, status.code());
        status.into_http()
    }

    fn count(&self, method: &MethodInstruments, code: Code) {
        match code {
            Code::Ok => method.ok.inc(),
            code => self.requests.with_label_values(&[method.label, code_label(code)]).inc(),
        }
    }
}

/// The last segment of a path.
fn method_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn code_label(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// One call in flight; booked when the last holder lets go of it.
pub(crate) struct Call {
    ledger: Arc<Ledger>,
    method: MethodInstruments,
    started: Duration,
    /// The gRPC code, `CODE_PENDING` until it is known.
    code: AtomicI32,
    /// Counted into the ledger's sum.
    request_bytes: AtomicUsize,
    _slot: OwnedSemaphorePermit,
}

/// No gRPC code has this number.
const CODE_PENDING: i32 = -1;

impl Call {
    /// Sets the code, unless it is known already.
    pub fn conclude(&self, code: Code) {
        let _ = self
            .code
            .compare_exchange(CODE_PENDING, code as i32, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The body of its request, counted while it arrives.
    pub fn counted(&self, body: Body) -> RequestBody<&Call> {
        RequestBody { body, call: self }
    }

    /// Takes the code from headers or trailers, if it is there.
    fn observe(&self, headers: &http::HeaderMap) {
        if let Some(code) = headers.get(Status::GRPC_STATUS) {
            self.conclude(Code::from_bytes(code.as_bytes()));
        }
    }

    fn admit_bytes(&self, bytes: usize) -> Result<(), Status> {
        self.request_bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.ledger.request_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.ledger.limits.request_bytes_max {
            return Err(Status::unavailable(
                "Too many bytes of requests are in flight; retry after backing off",
            ));
        }
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let code = match self.code.load(Ordering::Relaxed) {
            CODE_PENDING => Code::Cancelled,
            code => Code::from_i32(code),
        };
        self.ledger.count(&self.method, code);
        let elapsed = self.ledger.env.now().saturating_sub(self.started);
        self.method.seconds.observe(elapsed.as_secs_f64());
        self.ledger
            .request_bytes
            .fetch_sub(self.request_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ledger.in_flight.dec();
    }
}

/// A service under the accounts of a ledger.
#[derive(Clone)]
pub(crate) struct Calls<S> {
    inner: S,
    ledger: Arc<Ledger>,
}

impl<S> Calls<S> {
    pub fn new(inner: S, ledger: Arc<Ledger>) -> Self {
        Calls { inner, ledger }
    }
}

impl<S: NamedService> NamedService for Calls<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Calls<S>
where
    S: Service<http::Request<RequestBody>, Response = http::Response<Body>, Error = Infallible> + NamedService,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = match self.ledger.admit(request.uri().path()) {
            Ok(call) => Arc::new(call),
            Err(refusal) => return Box::pin(std::future::ready(Ok(refusal))),
        };
        let request = request.map(|body| RequestBody {
            body,
            call: Arc::clone(&call),
        });
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            call.observe(response.headers());
            Ok(response.map(|body| Body::new(ResponseBody { body, call })))
        })
    }
}

/// The body of a request, counted while it arrives.
pub(crate) struct RequestBody<C = Arc<Call>> {
    body: Body,
    call: C,
}

impl<C: Borrow<Call> + Unpin> HttpBody for RequestBody<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.call.borrow().admit_bytes(data.len())
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response, watched for its trailers.
struct ResponseBody {
    body: Body,
    call: Arc<Call>,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.call.observe(trailers);
                }
            }
            Some(Err(status)) => self.call.conclude(status.code()),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
