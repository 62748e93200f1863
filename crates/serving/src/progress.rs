//! Notices that a client makes no progress.
//!
//! The watch checks a counter once per period and not at each change, so a connection that is busy costs no timers.
//! Hence a client is found stalled after one to two periods.

use futures::future::BoxFuture;
use std::task::{Context, Poll};
use std::time::Duration;
use stele_env::Env;

/// Watches a counter that must move while progress is due.
pub struct Progress {
    period: Duration,
    /// The counter when the period began, and its end.
    running: Option<(u64, BoxFuture<'static, ()>)>,
}

impl Progress {
    /// A watch that finds a counter still after one to two of these periods.
    #[must_use]
    pub fn within(period: Duration) -> Self {
        Progress { period, running: None }
    }

    /// Ready when the counter has not moved for a whole period. It must move, too, when progress is not due any more.
    pub fn poll_stalled(&mut self, count: u64, is_due: bool, env: &Env, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let (began_at, end) = match &mut self.running {
                Some(running) => running,
                None if is_due => {
                    let (env, period) = (env.clone(), self.period);
                    let sleep: BoxFuture<'static, ()> = Box::pin(async move { env.sleep(period).await });
                    self.running.insert((count, sleep))
                }
                None => return Poll::Pending,
            };
            if end.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if is_due && *began_at == count {
                return Poll::Ready(());
            }
            self.running = None;
        }
    }
}
