//! The token of calls that may last longer than it counts.

use super::Guard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_types::ErrorKind;

/// Calls go on for this long after the token was looked at: as long as a file of tokens is believed.
const INTERVAL: Duration = Duration::from_secs(5);

/// A token that has named the caller.
pub(super) struct ShownToken {
    text: Box<str>,
    /// When it counted the last time, in nanoseconds of the environment's clock. All reads of the guard share it, so that one which
    /// begins again every second ends as well.
    counted: AtomicU64,
}

impl ShownToken {
    /// A token that names the caller now.
    pub fn new(text: &str, now: Duration) -> Self {
        ShownToken {
            text: text.into(),
            counted: AtomicU64::new(nanos(now)),
        }
    }
}

impl Guard {
    /// Fails if the token by which the caller has shown its name counts no longer, or names another caller.
    pub(super) fn check_token(&self, operation: &'static str) -> ServiceResult<()> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let now = nanos(self.access.now());
        if now.saturating_sub(token.counted.load(Ordering::Relaxed)) < nanos(INTERVAL) {
            return Ok(());
        }
        if !self.access.still_names(&self.caller, &token.text, operation) {
            // Clients go on behind the last row, with the token that they have by then: it is checked as that of any call.
            let message = "the token of this read counts no longer: begin it again";
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        token.counted.fetch_max(now, Ordering::Relaxed);
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
