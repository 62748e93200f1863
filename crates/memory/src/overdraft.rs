//! The overdraft lets one request at a time exceed its consumer's limit. The request may be as large as the largest
//! value.
//!
//! It comes on top of the budget, so two of them would exceed the memory that a process may take. A caller that waits for
//! it holds no reservation; a holder whose client makes no progress is cancelled by [`crate::Reclaim::reclaim_overdraft`].

use crate::pool::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stele_env::Env;
use tokio::sync::OwnedSemaphorePermit;

/// How often a waiter asks holders to give memory back: little next to the seconds for which a slow client is tolerated.
pub(crate) const RECLAIM_EVERY: Duration = Duration::from_millis(100);

/// The right to exceed a limit, until it is dropped.
#[derive(Debug)]
pub struct OverdraftPermit {
    /// `None` only while it is dropped.
    permit: Option<OwnedSemaphorePermit>,
    pool: Pool,
    settles: Duration,
}

impl OverdraftPermit {
    /// How long to wait before the memory is used: until the allocator has returned the memory that caches freed for it.
    pub fn settles(&self) -> Duration {
        self.settles
    }
}

impl Drop for OverdraftPermit {
    fn drop(&mut self) {
        let permit = self.permit.take();
        assert!(permit.is_some(), "an overdraft is returned once");
        drop(permit);
        self.pool.changed();
    }
}

/// Counts a waiter for as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// The overdraft, if it is free or its holder makes no progress; that holder is cancelled then.
    pub fn try_overdraft(&self) -> Option<OverdraftPermit> {
        let acquire = || Arc::clone(self.overdraft()).try_acquire_owned().ok();
        let permit = acquire().or_else(|| {
            self.reclaim_overdraft();
            acquire()
        });
        permit.map(|permit| self.granted(permit))
    }

    /// Waits for the overdraft, in order of arrival.
    pub async fn overdraft_permit(&self, env: &Env) -> OverdraftPermit {
        self.waiters().fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self.waiters());
        let mut turn = std::pin::pin!(Arc::clone(self.overdraft()).acquire_owned());
        loop {
            match env.timeout(RECLAIM_EVERY, turn.as_mut()).await {
                Ok(permit) => return self.granted(permit.expect("the semaphore of the overdraft is never closed")),
                Err(_) => self.reclaim_overdraft(),
            }
        }
    }

    fn granted(&self, permit: OwnedSemaphorePermit) -> OverdraftPermit {
        OverdraftPermit {
            permit: Some(permit),
            settles: self.changed(),
            pool: self.clone(),
        }
    }

    /// Callers that wait for the overdraft.
    pub fn overdraft_waiters(&self) -> usize {
        self.waiters().load(Ordering::Relaxed)
    }
}
