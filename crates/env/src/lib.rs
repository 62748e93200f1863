//! The determinism seam: clock, randomness, spawning, blocking work and metrics.
//!
//! All code above this crate reaches time, randomness and concurrency through an [`Env`]. In production that is a tokio
//! runtime. In simulation it is a single-threaded scheduler with a virtual clock, so that one seed replays a whole
//! server. Connections between servers are in [`network`]. Files are behind `stele-storage`, coordination behind
//! `stele-coord`; sockets of clients belong to the event loops. [`work`] counts the work behind a call.
#![forbid(unsafe_code)]

mod common_clock;
pub mod metrics;
pub mod network;
pub mod planted;
pub mod tokio_env;
pub mod trace;
pub mod work;

pub use common_clock::TooFarAhead;
pub use planted::PlantedBug;

use common_clock::CommonClock;
use futures::future::BoxFuture;
use network::{Connection, Connector, Listener, no_network};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The scheduling class of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Requests and the commit log.
    Foreground,
    /// Flush, compaction, file deletion.
    Background,
}

/// A closure for a thread that may block.
pub type BlockingWork = Box<dyn FnOnce() + Send>;

/// The services of a runtime. Implemented by tokio and by the simulator.
pub trait Runtime: Send + Sync + 'static {
    /// Monotonic time since an arbitrary origin.
    fn now(&self) -> Duration;
    /// Wall-clock microseconds since the Unix epoch; may jump.
    fn wall_micros(&self) -> i64;
    /// A random number; from the seed in simulation.
    fn random_u64(&self) -> u64;
    /// Completes after at least `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// Runs a task to completion. The name is for logs.
    fn spawn(&self, priority: Priority, name: &'static str, task: BoxFuture<'static, ()>);
    /// Runs a closure on a thread that may block; in simulation, immediately.
    fn run_blocking(&self, work: BlockingWork);
    /// Runs a task on the event loop of the calling task where there is one.
    fn spawn_here(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.spawn(Priority::Foreground, name, task);
    }
    /// Connects to a server; `Unsupported` without a network.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>> {
        let _ = address;
        Box::pin(async { Err(no_network()) })
    }
    /// Takes connections at an address; `Unsupported` without a network.
    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let _ = address;
        Box::pin(async { Err(no_network()) })
    }
}

/// A handle to the runtime; cheap to clone.
#[derive(Clone)]
pub struct Env {
    runtime: Arc<dyn Runtime>,
    planted: planted::Planted,
    /// Replaces the runtime's own way to connect.
    connector: Option<Arc<dyn Connector>>,
    /// Traces requests; `None` if nobody collects traces.
    tracer: Option<Arc<trace::Tracer>>,
    /// Moves the wall clock ahead to those of other servers; `None` for a single server.
    common_clock: Option<Arc<CommonClock>>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}

/// A runtime whose wall clock stands still.
struct Standing {
    runtime: Arc<dyn Runtime>,
    wall_micros: i64,
}

impl Runtime for Standing {
    fn now(&self) -> Duration {
        self.runtime.now()
    }

    fn wall_micros(&self) -> i64 {
        self.wall_micros
    }

    fn random_u64(&self) -> u64 {
        self.runtime.random_u64()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.runtime.sleep(duration)
    }

    fn spawn(&self, priority: Priority, name: &'static str, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(priority, name, task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        self.runtime.run_blocking(work);
    }

    fn spawn_here(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.runtime.spawn_here(name, task);
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>> {
        self.runtime.connect(address)
    }

    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        self.runtime.listen(address)
    }
}

/// The deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// The task with the result is gone: it panicked or the runtime is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Env {
    /// An environment over any runtime.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Env {
            runtime,
            planted: planted::Planted::default(),
            connector: None,
            tracer: None,
            common_clock: None,
        }
    }

    /// The same environment, whose wall clock stands still: for readers of data as of a moment.
    #[must_use]
    pub fn with_wall_clock_at(mut self, wall_micros: i64) -> Self {
        self.runtime = Arc::new(Standing {
            runtime: self.runtime,
            wall_micros,
        });
        self.common_clock = None;
        self
    }

    /// The same environment, whose wall clock moves ahead to those of other servers. Clones share it.
    #[must_use]
    pub fn with_common_clock(mut self) -> Self {
        self.common_clock = Some(Arc::default());
        self
    }

    /// The same environment, which connects to servers in another way.
    #[must_use]
    pub fn connecting_by(mut self, connector: Arc<dyn Connector>) -> Self {
        self.connector = Some(connector);
        self
    }

    /// The same environment, whose requests are traced.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Arc<trace::Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// The same environment with one planted bug active. Without the `planted-bugs` feature this does nothing.
    pub fn with_planted_bug(mut self, bug: PlantedBug) -> Self {
        self.planted = planted::Planted::only(bug);
        self
    }

    /// Whether a planted bug is active; constantly false without the `planted-bugs` feature.
    pub fn planted(&self, bug: PlantedBug) -> bool {
        self.planted.is(bug)
    }

    /// Monotonic time since an arbitrary origin.
    pub fn now(&self) -> Duration {
        self.runtime.now()
    }

    /// Wall-clock microseconds since the Unix epoch.
    pub fn wall_micros(&self) -> i64 {
        let host = self.runtime.wall_micros();
        match &self.common_clock {
            Some(clock) => clock.shown(self.now(), host),
            None => host,
        }
    }

    /// Moves the wall clock ahead to the time that another server has shown, if it keeps a common clock and that time is later.
    pub fn follow_wall_clock(&self, wall_micros: i64) -> Result<(), TooFarAhead> {
        match &self.common_clock {
            Some(clock) => clock.follow(self.now(), self.runtime.wall_micros(), wall_micros),
            None => Ok(()),
        }
    }

    /// Microseconds by which the wall clock is ahead of the host's.
    pub fn clock_ahead_micros(&self) -> i64 {
        let host = self.runtime.wall_micros();
        match &self.common_clock {
            Some(clock) => clock.shown(self.now(), host).saturating_sub(host),
            None => 0,
        }
    }

    /// A random number.
    pub fn random_u64(&self) -> u64 {
        self.runtime.random_u64()
    }

    /// A random number in `[0, bound)`; 0 when `bound` is 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        ((u128::from(self.random_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Completes after at least `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.runtime.sleep(duration).await;
    }

    /// `future`'s output, or `Elapsed` when it takes longer than `limit`.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let sleep = self.runtime.sleep(limit);
        match futures::future::select(pin!(future), sleep).await {
            futures::future::Either::Left((output, _)) => Ok(output),
            futures::future::Either::Right(((), _)) => Err(Elapsed),
        }
    }

    /// Runs a task to completion on the foreground runtime.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Priority::Foreground, name, Box::pin(task));
    }

    /// Runs a task to completion on the event loop of the calling task: neighbours wake each other without a system call.
    pub fn spawn_here(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn_here(name, Box::pin(task));
    }

    /// Connects to a server. The caller limits the time.
    pub async fn connect(&self, address: &str) -> io::Result<Connection> {
        match &self.connector {
            Some(connector) => connector.connect(address).await,
            None => self.runtime.connect(address).await,
        }
    }

    /// Takes connections of other servers at an address.
    pub async fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        self.runtime.listen(address).await
    }

    /// Runs a task to completion on the background runtime.
    pub fn spawn_background(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Priority::Background, name, Box::pin(task));
    }

    /// Runs a task and returns its output.
    pub async fn spawn_join<T: Send + 'static>(
        &self,
        priority: Priority,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Gone> {
        let (done, output) = tokio::sync::oneshot::channel();
        let task = async move {
            let _ = done.send(task.await);
        };
        self.runtime.spawn(priority, name, Box::pin(task));
        output.await.map_err(|_| Gone)
    }

    /// Runs a closure on a thread that may block and returns its output.
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Gone> {
        let (done, output) = tokio::sync::oneshot::channel();
        self.runtime.run_blocking(Box::new(move || {
            let _ = done.send(work());
        }));
        output.await.map_err(|_| Gone)
    }

    /// Lets the other futures of this task run, and other tasks that are ready, but does not ask for events. Costs
    /// little: a future that waits for its neighbours calls this.
    pub async fn yield_to_neighbours(&self) {
        let mut has_yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Lets other tasks run, and lets a tokio runtime ask for events first: a task that only queued itself again would run
    /// many times before a request that has just arrived. Long loops over memory call this.
    pub async fn yield_now(&self) {
        // Outside of a tokio runtime, as in simulation, this only wakes the task.
        tokio::task::yield_now().await;
    }
}
