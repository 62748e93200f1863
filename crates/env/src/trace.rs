//! Traces of requests: spans for sampled requests and for the stages that explain their time.
//!
//! Terms are OpenTelemetry's. A *span* is a part of the work with a begin and an end; all spans for one call of a client
//! form a *trace*, on whichever servers they are. A *stage* is a span below that of the request on this server.
//!
//! Where spans begin and end:
//! * That of a request begins when its front end, or the port for other servers, admits it ([`Env::trace`]). It ends when
//!   the [`Trace`] is dropped: with the last byte of the response, or when the client has gone away.
//! * A stage begins with [`stage`] or [`lengthy`], in any layer and without an argument handed down, and ends when the
//!   [`Stage`] is dropped. [`ended`] makes one of a wait that was timed already.
//! * A stage that calls another server hands its identity over ([`Stage::carried`]). The span of that call there is below it.
//!
//! As for [`crate::work`], a request belongs to the thread for as long as its future is polled there ([`within`], [`enter`]).
//! Tasks that it spawns have no stages, unless they enter it. The counts of its work become attributes of its span.
//!
//! Without a tracer a request costs one branch, and a stage one load and one branch. Nothing is allocated, and neither the
//! clock nor randomness is asked. Simulated environments have no tracer.
//!
//! Invariants:
//! * [`Facts`] and [`StageFacts`] have fields for names and numbers alone, so that no key and no value gets into a span.
//! * A request has at most [`STAGES_MAX`] stages, and the queue for the exporter is bounded ([`Tracer`]). Nothing waits for it.

mod parent;
mod span;
mod tracer;

pub use parent::{Carried, Parent};
pub use span::{Facts, Finished, FinishedStage, StageFacts};
pub use tracer::{BATCH_SPANS, QUEUE_SPANS_MAX, Tracer};

use crate::Env;
use crate::work::{self, Work};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Stages of a request that are kept: those of some hundred blocks read one after the other say no more than the first.
pub const STAGES_MAX: usize = 64;

/// The shortest wait that is a stage of its own: nearly all that may have to wait need not.
const LENGTHY_MIN: Duration = Duration::from_micros(100);

/// A traced request. Dropping it ends its span, and queues it with its stages for the exporter.
pub struct Trace(Arc<Live>);

/// The part of a traced request that its stages share.
struct Live {
    env: Env,
    tracer: Arc<Tracer>,
    /// The protocol, and the method.
    name: (&'static str, &'static str),
    /// The identity of its own span.
    own: Carried,
    /// The span above it, if there is one, and the state of the trace that came with it.
    parent: Option<Parent>,
    started: Duration,
    /// Wall clock at `started`.
    started_micros: i64,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    facts: Facts,
    /// Counts of its work; on the thread while the request is polled.
    work: Work,
    stages: Vec<FinishedStage>,
    left_out: u64,
}

impl Env {
    /// The trace of a request that begins, if it is sampled. `parent` is asked for only if this environment traces.
    #[inline]
    pub fn trace(
        &self,
        system: &'static str,
        method: &'static str,
        parent: impl FnOnce() -> Option<Parent>,
    ) -> Option<Trace> {
        let tracer = self.tracer.as_ref()?;
        self.begin(tracer, (system, method), parent())
    }

    #[cold]
    fn begin(&self, tracer: &Arc<Tracer>, name: (&'static str, &'static str), parent: Option<Parent>) -> Option<Trace> {
        let own = Carried {
            trace: tracer.sample(self, parent.as_ref())?,
            span: span_id(self),
        };
        Some(Trace(Arc::new(Live {
            env: self.clone(),
            tracer: Arc::clone(tracer),
            name,
            own,
            parent,
            started: self.now(),
            started_micros: self.wall_micros(),
            parts: Mutex::default(),
        })))
    }
}

impl Live {
    /// A time of the environment's clock as nanoseconds since 1970. All spans of the request have the wall clock of its begin.
    fn nanos(&self, time: Duration) -> u64 {
        let started_nanos = u64::try_from(self.started_micros).unwrap_or(0).saturating_mul(1_000);
        let since = time.saturating_sub(self.started).as_nanos();
        started_nanos.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// A span's number. 0 is none.
fn span_id(env: &Env) -> u64 {
    env.random_u64().max(1)
}

impl Trace {
    /// Adds facts about the request.
    pub fn note(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.0.parts.lock().facts);
    }

    /// Begins a stage.
    pub fn stage(&self, name: &'static str) -> Stage {
        Stage(Some(Open::new(Arc::clone(&self.0), name, Duration::ZERO)))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let live = &self.0;
        let Parts {
            facts,
            work,
            stages,
            left_out,
        } = std::mem::take(&mut *live.parts.lock());
        let finished = Finished {
            name: live.name,
            own: live.own,
            parent: live.parent.as_ref().map(|parent| parent.at.span),
            state: live.parent.as_ref().and_then(|parent| parent.state.clone()),
            started_nanos: live.nanos(live.started),
            ended_nanos: live.nanos(live.env.now()),
            facts,
            work,
            stages,
            left_out,
        };
        live.tracer.submit(finished);
    }
}

thread_local! {
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Arc<Live>>> = const { RefCell::new(None) };
}

/// Adds facts about the request that runs on this thread, if it is traced.
#[inline]
pub fn note(change: impl FnOnce(&mut Facts)) {
    if IS_TRACED.get() {
        CURRENT.with_borrow(|current| {
            if let Some(live) = current {
                change(&mut live.parts.lock().facts);
            }
        });
    }
}

/// Begins a stage of the request that runs on this thread, if it is traced.
#[inline]
pub fn stage(name: &'static str) -> Stage {
    match IS_TRACED.get() {
        false => Stage(None),
        true => open(name, Duration::ZERO),
    }
}

/// Begins a stage that counts only if it takes its time.
#[inline]
pub fn lengthy(name: &'static str) -> Stage {
    match IS_TRACED.get() {
        false => Stage(None),
        true => open(name, LENGTHY_MIN),
    }
}

/// A wait of the request that runs on this thread ends now and took this long.
#[inline]
pub fn ended(name: &'static str, took: Duration) {
    if IS_TRACED.get() {
        let mut stage = open(name, LENGTHY_MIN);
        if let Some(open) = &mut stage.0 {
            open.started = open.started.saturating_sub(took);
        }
    }
}

#[cold]
fn open(name: &'static str, least: Duration) -> Stage {
    let live = CURRENT.with_borrow(Clone::clone);
    Stage(live.map(|live| Open::new(live, name, least)))
}

/// A stage that has begun, or nothing if nobody traces. Dropping it ends it.
#[must_use = "a stage ends when it is dropped"]
pub struct Stage(Option<Box<Open>>);

struct Open {
    live: Arc<Live>,
    name: &'static str,
    span: u64,
    started: Duration,
    /// A shorter stage is none.
    least: Duration,
    facts: StageFacts,
}

impl Open {
    fn new(live: Arc<Live>, name: &'static str, least: Duration) -> Box<Open> {
        Box::new(Open {
            name,
            span: span_id(&live.env),
            started: live.env.now(),
            least,
            facts: StageFacts::default(),
            live,
        })
    }
}

impl Stage {
    /// Adds facts about the stage.
    #[inline]
    pub fn note(&mut self, change: impl FnOnce(&mut StageFacts)) {
        if let Some(open) = &mut self.0 {
            change(&mut open.facts);
        }
    }

    /// The identity that a call of another server carries.
    pub fn carried(&self) -> Option<Carried> {
        self.0.as_ref().map(|open| Carried {
            trace: open.live.own.trace,
            span: open.span,
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let ended = self.live.env.now();
        if ended.saturating_sub(self.started) < self.least {
            return;
        }
        let mut parts = self.live.parts.lock();
        if parts.stages.len() >= STAGES_MAX {
            parts.left_out += 1;
            return;
        }
        parts.stages.push(FinishedStage {
            name: self.name,
            span: self.span,
            started_nanos: self.live.nanos(self.started),
            ended_nanos: self.live.nanos(ended),
            facts: std::mem::take(&mut self.facts),
        });
    }
}

/// Works for a traced request, until the result is dropped. A request is not entered twice.
#[inline]
pub fn enter(trace: Option<&Trace>) -> Entered {
    Entered {
        _on_thread: trace.map(|trace| OnThread::new(&trace.0)),
    }
}

/// The thread works for a request.
pub struct Entered {
    _on_thread: Option<OnThread>,
}

struct OnThread {
    /// The request that the thread worked for before.
    before: Option<Arc<Live>>,
    /// The counts of before.
    work: Work,
    was_counted: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl OnThread {
    #[cold]
    fn new(live: &Arc<Live>) -> Self {
        let mut work = std::mem::take(&mut live.parts.lock().work);
        let before = CURRENT.replace(Some(Arc::clone(live)));
        IS_TRACED.set(true);
        OnThread {
            before,
            was_counted: work::attach(&mut work),
            work,
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        work::detach(&mut self.work, self.was_counted);
        IS_TRACED.set(self.before.is_some());
        let live = CURRENT.replace(self.before.take());
        debug_assert!(live.is_some(), "the request was on the thread since it was entered");
        if let Some(live) = live {
            live.parts.lock().work = std::mem::take(&mut self.work);
        }
    }
}

/// Polls a future on behalf of a request, if that is traced.
pub fn within<'a, F: Future>(trace: Option<&'a Trace>, future: Pin<&'a mut F>) -> Within<'a, F> {
    Within { trace, future }
}

/// The future of [`within`].
pub struct Within<'a, F> {
    trace: Option<&'a Trace>,
    future: Pin<&'a mut F>,
}

impl<F: Future> Future for Within<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _entered = enter(this.trace);
        this.future.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests;
