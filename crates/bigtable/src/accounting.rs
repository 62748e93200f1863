//! Call accounting: admission, memory and metrics of every call.
//!
//! The memory of a request is charged in two steps. Its bytes are charged as they arrive ([`crate::request_body`]), and
//! its decoded form before it is decoded ([`crate::size_estimate`]). A charge that exceeds the budget of all requests is
//! refused with UNAVAILABLE, because backing off helps. A request that is too large by itself is refused with
//! RESOURCE_EXHAUSTED. A request that arrives too slowly is refused with DEADLINE_EXCEEDED.
//!
//! A message larger than the whole budget of requests is not charged to that budget. It takes the overdraft of the
//! process, which one request at a time may have ([`Pool::try_overdraft`]).
//!
//! A call lasts from its first header until the transport has written its response, or has dropped it. All charges end with the call.
//! When the calls in flight are as many as may be, [`crate::stalled`] ends those whose clients send or take nothing.

use crate::limits::{CARRIED_OUT_BYTES_MIN, CallLimits};
use crate::response_memory::SMALL_BYTES;
use crate::stalled::{Stalled, StalledCalls};
use crate::status::unimplemented;
use crate::trace_context::{SYSTEM, is_error, parent};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Metrics};
use stele_env::trace::Trace;
use stele_memory::{Consumer, OVERDRAFT_BYTES, OverdraftPermit, Part, Pool, Reservation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::codegen::http;
use tonic::{Code, Status};

/// The `method` label of calls that are not implemented. All share it, because clients choose their names.
const UNIMPLEMENTED_LABEL: &str = "unimplemented";

/// The accounts of all calls of a front end.
pub(crate) struct CallAccounting {
    env: Env,
    limits: CallLimits,
    slots: Arc<Semaphore>,
    /// Calls that hold a slot and wait for their clients.
    stalled: StalledCalls,
    memory: Consumer,
    requests: IntCounterVec,
    seconds: HistogramVec,
    in_flight: IntGauge,
    held_bytes: IntGaugeVec,
}

/// Metrics and limits of one method.
#[derive(Clone)]
pub(crate) struct MethodAccount {
    label: &'static str,
    ok: IntCounter,
    seconds: Histogram,
    /// Size of the largest request.
    message_bytes_max: usize,
}

impl CallAccounting {
    pub fn new(limits: CallLimits, pool: &Pool, env: Env, metrics: &Metrics) -> Self {
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
            "Bytes reserved for the Bigtable API by purpose: requests in flight, responses that are being read or sent, \
             and the overdraft of one large request.",
            &["of"],
        );
        CallAccounting {
            env,
            slots: Arc::new(Semaphore::new(limits.calls_max)),
            stalled: StalledCalls::default(),
            limits,
            memory: pool.of(Part::Requests),
            requests,
            seconds,
            in_flight,
            held_bytes,
        }
    }

    /// The account of a method that is served.
    pub fn method(&self, path: &'static str) -> MethodAccount {
        self.method_account(method_of(path), self.limits.message_bytes_max(path))
    }

    /// The account that all methods share which are not implemented.
    pub fn unimplemented_methods(&self) -> MethodAccount {
        self.method_account(UNIMPLEMENTED_LABEL, 0)
    }

    fn method_account(&self, label: &'static str, message_bytes_max: usize) -> MethodAccount {
        MethodAccount {
            label,
            ok: self.requests.with_label_values(&[label, code_label(Code::Ok)]),
            seconds: self.seconds.with_label_values(&[label]),
            message_bytes_max,
        }
    }

    /// Updates the gauge of reserved memory. Responses have an account of their own.
    pub fn update_held(&self, response_bytes: usize) {
        let of = |of: &str, bytes: usize| {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.held_bytes.with_label_values(&[of]).set(bytes);
        };
        of("requests", self.memory.used());
        of("responses", response_bytes);
        let is_overdrawn = self.memory.pool().is_overdrawn();
        of("overdraft", if is_overdrawn { OVERDRAFT_BYTES } else { 0 });
    }

    /// Admits a call of a method, which is traced if it is sampled.
    pub fn admit(self: &Arc<Self>, method: &MethodAccount, headers: &http::HeaderMap) -> Result<Call, Status> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.stalled.give_up_one(self.env.now());
            let status = Status::unavailable("Too many calls are in flight; retry after backing off");
            self.count(method, status.code());
            return Err(status);
        };
        self.in_flight.inc();
        Ok(Call {
            trace: self.env.trace(SYSTEM, method.label, || parent(headers)),
            method: method.clone(),
            started: self.env.now(),
            code: AtomicI32::new(CODE_PENDING),
            request_bytes: AtomicUsize::new(0),
            reservation: self.memory.empty(),
            overdraft: OnceLock::new(),
            accounting: Arc::clone(self),
            _slot: slot,
        })
    }

    /// Counts a call of a path that has no handler, and names the method in the status.
    pub fn refuse_unimplemented(&self, methods: &MethodAccount, path: &str) -> Status {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let status = unimplemented(format!("{} of {service} is not implemented", method_of(path)));
        self.count(methods, status.code());
        status
    }

    fn count(&self, method: &MethodAccount, code: Code) {
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

/// One call in flight. Dropping it books its outcome and releases its charges.
pub(crate) struct Call {
    accounting: Arc<CallAccounting>,
    method: MethodAccount,
    started: Duration,
    /// The gRPC code, `CODE_PENDING` until it is known.
    code: AtomicI32,
    /// Memory of its request, and of the parts of its response that are charged to requests.
    request_bytes: AtomicUsize,
    /// As much of `request_bytes` as the pool counts: all of it, except under an overdraft.
    reservation: Reservation,
    overdraft: OnceLock<OverdraftPermit>,
    /// Ends with the call.
    trace: Option<Trace>,
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

    /// The time of its first header.
    pub fn started(&self) -> Duration {
        self.started
    }

    /// The call's trace, if it is sampled.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Adds it to those that wait for their clients to take a response.
    pub fn stalled(&self) -> Stalled {
        self.accounting.stalled.add(self.env().now())
    }

    /// Adds it to those that wait for their clients to send a request. It counts from the first header. The bytes
    /// that have arrived earn time, so a slow upload keeps its slot, and a few bytes now and then keep none.
    pub fn awaits_request(&self) -> Stalled {
        let arrived = self.request_bytes.load(Ordering::Relaxed);
        self.accounting
            .stalled
            .add(self.started + CallLimits::earned_time(arrived))
    }

    pub fn env(&self) -> &Env {
        &self.accounting.env
    }

    /// Charges memory until the call ends. Fails if that exceeds the budget.
    pub fn charge(&self, bytes: usize) -> Result<(), Status> {
        if bytes == 0 {
            return Ok(());
        }
        let limits = &self.accounting.limits;
        let has_overdraft = self.overdraft.get().is_some();
        let max = if has_overdraft {
            limits.overdraft_request_bytes
        } else {
            limits.request_bytes_max
        };
        let own = self
            .request_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        // Memory that a refused call has taken counts as long as the call is there.
        let fits = has_overdraft || self.reservation.grow(bytes).is_ok();
        if own > max {
            return Err(Status::resource_exhausted(format!(
                "The request needs {own} bytes of memory, the limit for requests on this server is {max}: split the \
                 request or raise the server's memory budget"
            )));
        }
        if !fits {
            return Err(Status::unavailable(
                "Too many bytes of requests are in flight; retry after backing off",
            ));
        }
        Ok(())
    }

    /// Charges the response of a call that has already changed something and cannot be refused any more. Requests that
    /// arrive before it is sent are refused if the sum exceeds the budget. A small response is part of the memory that
    /// every call may take.
    pub fn charge_response(&self, bytes: usize) {
        if bytes > SMALL_BYTES {
            let _ = self.charge(bytes);
        }
    }

    /// Whether a write of this size runs to its end even if its caller goes away.
    pub fn is_large(&self) -> bool {
        self.request_bytes.load(Ordering::Relaxed) >= CARRIED_OUT_BYTES_MIN
    }

    /// Checks the announced size of a message. Returns how long to wait before reading more of it.
    pub fn check_message_len(&self, len: usize) -> Result<Duration, Status> {
        let max = self.method.message_bytes_max;
        if len > max {
            return Err(Status::resource_exhausted(format!(
                "The message has {len} bytes, the limit of {} on this server is {max}",
                self.method.label
            )));
        }
        if len > self.accounting.limits.request_bytes_max {
            return self.take_overdraft();
        }
        Ok(Duration::ZERO)
    }

    /// Takes the overdraft for a message that is larger than the budget of all requests.
    fn take_overdraft(&self) -> Result<Duration, Status> {
        let Some(overdraft) = self.accounting.memory.pool().try_overdraft() else {
            let message = "Another large request uses the memory for a message of this size; retry after backing off";
            return Err(Status::unavailable(message));
        };
        let settles = overdraft.settles();
        let _ = self.overdraft.set(overdraft);
        Ok(settles)
    }

    /// The rest of the time in which the request must arrive. Fails when it is used up.
    pub fn arrival_left(&self) -> Result<Duration, Status> {
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
        if let Some(trace) = &self.trace {
            trace.note(|facts| (facts.outcome, facts.is_error) = (code_label(code), is_error(code)));
        }
        let elapsed = self.accounting.env.now().saturating_sub(self.started);
        self.method.seconds.observe(elapsed.as_secs_f64());
        self.accounting.in_flight.dec();
    }
}
