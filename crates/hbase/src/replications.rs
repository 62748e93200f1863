//! Turns of replication calls: few write at a time, and each has an end.
//!
//! A source waits for a call as long as the header of the call says. Then it sends the same entries again, and does not look at the
//! former response. A call that went on would write in parallel with its repetition, and more so with each further one.

use crate::failure::{Failure, Outcome};
use std::time::Duration;
use stele_env::Env;
use stele_wire::exception;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Calls that write at a time. HBase has three handlers for them by default; here they also wait for the log together.
const WRITING_MAX: usize = 8;

/// The calls of all connections.
pub(crate) struct Replications(Semaphore);

impl Default for Replications {
    fn default() -> Self {
        Replications(Semaphore::new(WRITING_MAX))
    }
}

/// A call that may write.
pub(crate) struct Turn<'r> {
    /// When its source gives up, by the environment's clock.
    end: Option<Duration>,
    _permit: SemaphorePermit<'r>,
}

impl Replications {
    /// Waits for the turn of a call whose source waits this long. Fails if it gives up before.
    pub async fn turn(&self, env: &Env, patience: Option<Duration>) -> Outcome<Turn<'_>> {
        let end = patience.map(|patience| env.now().saturating_add(patience));
        let permit = match patience {
            Some(patience) => env.timeout(patience, self.0.acquire()).await.map_err(|_| dropped())?,
            None => self.0.acquire().await,
        };
        // It is never closed.
        let permit = permit.map_err(|_| dropped())?;
        Ok(Turn { end, _permit: permit })
    }
}

impl Turn<'_> {
    /// Fails once the source has given up.
    pub fn check(&self, env: &Env) -> Outcome<()> {
        match self.end.is_some_and(|end| env.now() >= end) {
            true => Err(dropped()),
            false => Ok(()),
        }
    }
}

/// Sources repeat a call after it.
fn dropped() -> Failure {
    let message = "the timeout of this call is over: its source has given it up";
    Failure::new(exception::CALL_DROPPED, message)
}
