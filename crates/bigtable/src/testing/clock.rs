//! An environment whose clock is tokio's, for tests in virtual time.

#![allow(clippy::disallowed_methods, reason = "time is tokio's, which the tests let pass")]

use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use tokio::time::Instant;

struct Clock {
    origin: Instant,
}

/// An environment over the runtime of the calling task.
pub(crate) fn env() -> Env {
    Env::new(Arc::new(Clock { origin: Instant::now() }))
}

impl Runtime for Clock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall_micros(&self) -> i64 {
        1_000_000
    }

    fn random_u64(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, _: Priority, _: &'static str, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}
