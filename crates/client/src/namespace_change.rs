//! Repeats a change of a namespace's record while others change it, too.
//!
//! A change reads the record and hands in the record that it has read ([`TableAdmin::update_namespace`](crate::TableAdmin::update_namespace)).
//! If another change was first, it starts over with the record of that one.

use crate::error::{ServiceError, ServiceResult};
use std::time::Duration;
use stele_env::Env;
use stele_types::ErrorKind;

/// Attempts after the first.
const AGAIN_MAX: usize = 20;

/// Pause before each: the record may be read from a view that is a moment behind.
const PAUSE: Duration = Duration::from_millis(20);

/// The attempts at one change.
#[derive(Debug, Default)]
pub struct ChangeAttempts {
    failed: usize,
}

impl ChangeAttempts {
    /// Pauses before the next attempt.
    ///
    /// # Errors
    /// That of the last attempt, if another change was not its cause, or there have been too many.
    pub async fn again(&mut self, env: &Env, error: ServiceError) -> ServiceResult<()> {
        if error.kind != ErrorKind::Aborted || self.failed >= AGAIN_MAX {
            return Err(error);
        }
        self.failed += 1;
        env.sleep(PAUSE).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use stele_env::{BlockingWork, Priority, Runtime};

    /// Counts pauses, which take no time.
    struct Pauses(Arc<AtomicUsize>);

    impl Runtime for Pauses {
        fn now(&self) -> Duration {
            Duration::ZERO
        }
        fn wall_micros(&self) -> i64 {
            0
        }
        fn random_u64(&self) -> u64 {
            0
        }
        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        }
        fn spawn(&self, _: Priority, _: &'static str, _: BoxFuture<'static, ()>) {}
        fn run_blocking(&self, work: BlockingWork) {
            work();
        }
    }

    #[tokio::test]
    async fn a_change_is_repeated_while_others_are_first() {
        let pauses = Arc::new(AtomicUsize::new(0));
        let env = Env::new(Arc::new(Pauses(pauses.clone())));
        let mut attempts = ChangeAttempts::default();
        let refused = ServiceError::not_found("gone");
        assert_eq!(attempts.again(&env, refused.clone()).await, Err(refused));
        let changed = ServiceError::new(ErrorKind::Aborted, "the namespace has changed");
        while attempts.again(&env, changed.clone()).await.is_ok() {}
        assert_eq!(pauses.load(Ordering::Relaxed), AGAIN_MAX);
    }
}
