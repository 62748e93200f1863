//! The production runtime: one tokio runtime for requests, one for maintenance.
#![allow(
    clippy::disallowed_methods,
    reason = "this is where the seam meets the real clock and scheduler"
)]

use crate::network::{Connection, Listener, tcp};
use crate::{BlockingWork, Env, Priority, Runtime};
use futures::future::BoxFuture;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// Runs tasks on tokio. Background tasks get a runtime of their own so that a compaction cannot occupy a worker that a
/// request waits for.
pub struct TokioRuntime {
    foreground: Handle,
    background: Handle,
    origin: Ticks,
    random_state: RandomState,
    random_counter: AtomicU64,
}

impl TokioRuntime {
    /// An environment over two running tokio runtimes (which may be the same one).
    pub fn env(foreground: Handle, background: Handle) -> Env {
        Env::new(Arc::new(TokioRuntime {
            foreground,
            background,
            origin: Ticks::now(),
            random_state: RandomState::new(),
            random_counter: AtomicU64::new(0),
        }))
    }

    /// An environment over the runtime of the calling task, for tests and tools.
    pub fn current() -> Env {
        Self::env(Handle::current(), Handle::current())
    }
}

/// A moment of a clock that no one sets. It goes on while the machine is suspended: a lease ends meanwhile, and must be known to have
/// ended afterwards. (The standard library's clock stands still on Linux.)
#[derive(Clone, Copy)]
struct Ticks {
    #[cfg(target_os = "linux")]
    since_boot: Duration,
    #[cfg(not(target_os = "linux"))]
    instant: std::time::Instant,
}

#[cfg(target_os = "linux")]
impl Ticks {
    fn now() -> Self {
        let read = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (read.tv_sec, read.tv_nsec);
        Ticks {
            since_boot: Duration::new(seconds.unsigned_abs(), nanos.unsigned_abs() as u32),
        }
    }

    fn elapsed(&self) -> Duration {
        Ticks::now().since_boot.saturating_sub(self.since_boot)
    }
}

#[cfg(not(target_os = "linux"))]
impl Ticks {
    fn now() -> Self {
        Ticks {
            instant: std::time::Instant::now(),
        }
    }

    fn elapsed(&self) -> Duration {
        self.instant.elapsed()
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall_micros(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
    }

    /// SipHash of a counter under a key from the standard library's random state: unpredictable enough for jitter and
    /// identifiers, and without a dependency.
    fn random_u64(&self) -> u64 {
        let mut hasher = self.random_state.build_hasher();
        hasher.write_u64(self.random_counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, priority: Priority, _name: &'static str, task: BoxFuture<'static, ()>) {
        let handle = match priority {
            Priority::Foreground => &self.foreground,
            Priority::Background => &self.background,
        };
        handle.spawn(task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        self.foreground.spawn_blocking(work);
    }

    fn spawn_here(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        Handle::try_current()
            .unwrap_or_else(|_| self.foreground.clone())
            .spawn(task);
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>> {
        Box::pin(tcp::connect(address.to_owned()))
    }

    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(tcp::listen(address.to_owned()))
    }
}
