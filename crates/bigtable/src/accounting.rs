//! What happens to every call before and after its handler: admission, measurement, and the answer for calls that are
//! not implemented.
//!
//! This sits outside of the generated stubs, and of the calls that are served without one, at the level of HTTP, so
//! that handlers stay free of it and so that it sees a request before it is decoded: the bytes of a request are counted
//! while they arrive, what is decoded of it is added before it is decoded, and a request that would take the front end
//! past its budget is refused at that point, with UNAVAILABLE, because backing off helps. One that is too large by
//! itself is RESOURCE_EXHAUSTED, one that arrives too slowly DEADLINE_EXCEEDED. A message that announces more than requests may
//! take in all is in no account of theirs: it takes the allowance that everything shares ([`Overdraft`]), when nobody has it.
//!
//! A call lasts from its first header to the end, or the abandonment, of its response stream.

use crate::limits::{CARRIED_OUT_BYTES_MIN, CallLimits};
use crate::messages::PREFIX_BYTES;
use crate::response_memory::SMALL_BYTES;
use crate::status::unimplemented;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use stele_client::{InFlightKind, OVERDRAFT_BYTES, Overdraft, OverdraftPermit};
use stele_env::metrics::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Metrics};
use stele_env::{Env, Priority};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// The `method` label of calls without a stub: one for all, because their names are the client's choice.
const UNSERVED_LABEL: &str = "unimplemented";

tokio::task_local! {
    /// The call whose request a generated stub reads.
    static CURRENT: Arc<Call>;
}

/// Adds to what the current call's request takes; see [`Call::charge`]. Without a current call there is no account.
pub(crate) fn charge_current(bytes: usize) -> Result<(), Status> {
    CURRENT.try_with(|call| call.charge(bytes)).unwrap_or(Ok(()))
}

/// Adds the answer of the current call, which has changed something already and is not refused any more. Until it is sent, what
/// comes meanwhile is refused if both together are too much. A small one is part of what any call may take.
pub(crate) fn account_current(bytes: usize) {
    if bytes > SMALL_BYTES {
        let _ = charge_current(bytes);
    }
}

/// Carries out a write of the current call; where its request is large, to the end, in a task that has the call.
///
/// A write that is on its way into the log goes on though its caller goes away, and keeps its request until memtables have it. How
/// much that is, where it is more than the log's queue, only the call knows; and that it is coming, memtables know as long as it
/// is waited for. Were both gone with the caller, the next requests would be let in as if there were nothing. What a write makes
/// of a row that it reads may be far more than its request: who reads the row accounts for that until memtables have it.
pub(crate) async fn carry_out<T: Send + 'static>(
    env: &Env,
    write: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let current = CURRENT.try_with(Arc::clone).ok();
    let Some(call) = current.filter(|call| call.is_large()) else {
        return write.await;
    };
    let task = async move {
        let outcome = write.await;
        drop(call);
        outcome
    };
    let outcome = env.spawn_join(Priority::Foreground, "large write", task).await;
    outcome.unwrap_or_else(|_| Err(stopped()))
}

/// The answer to a write whose outcome nobody learns.
pub(crate) fn stopped() -> Status {
    Status::aborted("The server stopped before the write was acknowledged")
}

/// The accounts of all calls of a front end.
pub(crate) struct CallAccounting {
    env: Env,
    limits: CallLimits,
    overdraft: Overdraft,
    slots: Arc<Semaphore>,
    request_bytes: AtomicUsize,
    /// By path; constant.
    served: HashMap<&'static str, MethodInstruments>,
    unserved: MethodInstruments,
    requests: IntCounterVec,
    in_flight: IntGauge,
    held_bytes: IntGaugeVec,
}

#[derive(Clone)]
struct MethodInstruments {
    label: &'static str,
    ok: IntCounter,
    seconds: Histogram,
    /// Size of the largest request.
    message_bytes_max: usize,
}

impl CallAccounting {
    pub fn new(
        served: impl Iterator<Item = &'static str>,
        limits: CallLimits,
        overdraft: Overdraft,
        env: Env,
        metrics: &Metrics,
    ) -> Self {
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
        let held_bytes = metrics.gauges(
            "stele_bigtable_reserved_bytes",
            "Bytes held for the Bigtable API, by what for: requests in flight, answers that are read or not sent \
             yet; and what whoever goes beyond these may take.",
            &["of"],
        );
        let instruments = |label: &'static str, message_bytes_max| MethodInstruments {
            label,
            ok: requests.with_label_values(&[label, code_label(Code::Ok)]),
            seconds: seconds.with_label_values(&[label]),
            message_bytes_max,
        };
        let served = served
            .map(|path| (path, instruments(method_of(path), limits.message_bytes_max(path))))
            .collect();
        let unserved = instruments(UNSERVED_LABEL, 0);
        CallAccounting {
            env,
            slots: Arc::new(Semaphore::new(limits.calls_max)),
            limits,
            overdraft,
            request_bytes: AtomicUsize::new(0),
            served,
            unserved,
            requests,
            in_flight,
            held_bytes,
        }
    }

    /// Brings the gauge of what is held up to date; answers are in another account.
    pub fn update_held(&self, answers: usize) {
        let of = |of: &str, bytes: usize| {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.held_bytes.with_label_values(&[of]).set(bytes);
        };
        of("requests", self.request_bytes.load(Ordering::Relaxed));
        of("answers", answers);
        of("beyond", if self.overdraft.is_taken() { OVERDRAFT_BYTES } else { 0 });
    }

    /// Admits a call of this path; otherwise what to answer.
    #[allow(clippy::result_large_err, reason = "a refusal is rare, and goes out as it is")]
    pub fn admit(self: &Arc<Self>, path: &str) -> Result<Call, http::Response<Body>> {
        let Some(method) = self.served.get(path) else {
            let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let message = format!("{} of {service} is not implemented", method_of(path));
            return Err(self.refuse(&self.unserved, unimplemented(message)));
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
            counted_bytes: AtomicUsize::new(0),
            beyond: OnceLock::new(),
            accounting: Arc::clone(self),
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
    accounting: Arc<CallAccounting>,
    method: MethodInstruments,
    started: Duration,
    /// The gRPC code, `CODE_PENDING` until it is known.
    code: AtomicI32,
    /// What its request takes.
    request_bytes: AtomicUsize,
    /// What of that is counted into the ledger's sum: all, unless it goes beyond.
    counted_bytes: AtomicUsize,
    beyond: OnceLock<OverdraftPermit>,
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

    /// When its first header came.
    pub fn started(&self) -> Duration {
        self.started
    }

    /// The body of its request, counted while it arrives.
    pub fn counted(&self, body: Body) -> RequestBody<&Call> {
        RequestBody::new(body, self)
    }

    /// Takes the code from headers or trailers, if it is there.
    fn observe(&self, headers: &http::HeaderMap) {
        if let Some(code) = headers.get(Status::GRPC_STATUS) {
            self.conclude(Code::from_bytes(code.as_bytes()));
        }
    }

    /// Adds to what its request takes, which lasts until the call ends. An error when that is too much.
    pub fn charge(&self, bytes: usize) -> Result<(), Status> {
        if bytes == 0 {
            return Ok(());
        }
        let needs_overdraft = self.beyond.get().is_some();
        let max = match needs_overdraft {
            true => self.accounting.limits.overdraft_request_bytes,
            false => self.accounting.limits.request_bytes_max,
        };
        let own = self
            .request_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        let mut before = 0;
        if !needs_overdraft {
            self.counted_bytes.fetch_add(bytes, Ordering::Relaxed);
            before = self.accounting.request_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.accounting.overdraft.add(InFlightKind::Requests, bytes);
        }
        if own > max {
            return Err(Status::resource_exhausted(format!(
                "The request takes {own} bytes of memory, this server spares {max} for requests: send less at once, or \
                 give it more"
            )));
        }
        if before.saturating_add(bytes) > max {
            return Err(Status::unavailable(
                "Too many bytes of requests are in flight; retry after backing off",
            ));
        }
        Ok(())
    }

    /// Whether its request takes so much that it is carried out to its end if it is a write.
    fn is_large(&self) -> bool {
        self.request_bytes.load(Ordering::Relaxed) >= CARRIED_OUT_BYTES_MIN
    }

    /// Refuses a message by the size that it announces; how long to wait before more of it is taken.
    fn check_message_len(&self, len: usize) -> Result<Duration, Status> {
        let max = self.method.message_bytes_max;
        if len <= max && len > self.accounting.limits.request_bytes_max {
            return self.take_overdraft();
        }
        if len <= max {
            return Ok(Duration::ZERO);
        }
        Err(Status::resource_exhausted(format!(
            "The message has {len} bytes, the limit of {} is {max} on this server",
            self.method.label
        )))
    }

    /// Takes the allowance for a message that is larger than all requests may be together.
    fn take_overdraft(&self) -> Result<Duration, Status> {
        let Some(beyond) = self.accounting.overdraft.try_take() else {
            let message = "Another request takes all the memory there is for one of that size; retry after backing off";
            return Err(Status::unavailable(message));
        };
        let settles = beyond.settles();
        let _ = self.beyond.set(beyond);
        Ok(settles)
    }

    /// What is left of the time in which a request must arrive; an error when that is nothing.
    fn arrival_left(&self) -> Result<Duration, Status> {
        let arrived = self.request_bytes.load(Ordering::Relaxed);
        let limit = self.accounting.limits.arrival_wait(arrived);
        let elapsed = self.accounting.env.now().saturating_sub(self.started);
        match limit.checked_sub(elapsed) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Status::deadline_exceeded(format!(
                "{arrived} bytes of the request have arrived in {elapsed:?}, which is too slow"
            ))),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let code = match self.code.load(Ordering::Relaxed) {
            CODE_PENDING => Code::Cancelled,
            code => Code::from_i32(code),
        };
        self.accounting.count(&self.method, code);
        let elapsed = self.accounting.env.now().saturating_sub(self.started);
        self.method.seconds.observe(elapsed.as_secs_f64());
        let counted = self.counted_bytes.load(Ordering::Relaxed);
        self.accounting.request_bytes.fetch_sub(counted, Ordering::Relaxed);
        self.accounting.overdraft.sub(InFlightKind::Requests, counted);
        self.accounting.in_flight.dec();
    }
}

/// A service under the accounts of a ledger.
#[derive(Clone)]
pub(crate) struct Calls<S> {
    inner: S,
    accounting: Arc<CallAccounting>,
}

impl<S> Calls<S> {
    pub fn new(inner: S, accounting: Arc<CallAccounting>) -> Self {
        Calls { inner, accounting }
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
        let call = match self.accounting.admit(request.uri().path()) {
            Ok(call) => Arc::new(call),
            Err(refusal) => return Box::pin(std::future::ready(Ok(refusal))),
        };
        let request = request.map(|body| RequestBody::new(body, Arc::clone(&call)));
        let answer = CURRENT.scope(Arc::clone(&call), self.inner.call(request));
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
    /// The beginning, which announces the size.
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    /// When to look whether the request arrives too slowly; there once it has been waited for.
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Nothing more of the request is taken before that: caches give way to it.
    settles: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<C: Borrow<Call>> RequestBody<C> {
    fn new(body: Body, call: C) -> Self {
        RequestBody {
            body,
            call,
            prefix: [0; PREFIX_BYTES],
            prefix_len: 0,
            alarm: None,
            settles: None,
        }
    }

    /// Takes account of data that has arrived.
    fn arrived(&mut self, data: &[u8]) -> Result<(), Status> {
        if let Some(rest) = self.prefix.get_mut(self.prefix_len..).filter(|rest| !rest.is_empty()) {
            let taken = rest.len().min(data.len());
            rest.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
            self.prefix_len += taken;
            if self.prefix_len == PREFIX_BYTES {
                let [_, len @ ..] = self.prefix;
                let call = self.call.borrow();
                let wait = call.check_message_len(u32::from_be_bytes(len) as usize)?;
                if !wait.is_zero() {
                    let env = call.accounting.env.clone();
                    self.settles = Some(Box::pin(async move { env.sleep(wait).await }));
                }
            }
        }
        self.call.borrow().charge(data.len())
    }

    /// Waits for no longer than a request may take to arrive.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let call = self.call.borrow();
        loop {
            if let Some(alarm) = &mut self.alarm {
                std::task::ready!(alarm.as_mut().poll(cx));
            }
            match call.arrival_left() {
                Ok(left) => {
                    let env = call.accounting.env.clone();
                    self.alarm = Some(Box::pin(async move { env.sleep(left).await }));
                }
                Err(status) => return Poll::Ready(status),
            }
        }
    }
}

impl<C: Borrow<Call> + Unpin> HttpBody for RequestBody<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(settles) = &mut self.settles {
            std::task::ready!(settles.as_mut().poll(cx));
            self.settles = None;
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_alarm(cx).map(|status| Some(Err(status)));
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.arrived(data)
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
