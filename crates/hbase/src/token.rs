//! The bearer token of a connection.
//!
//! A connection may last longer than the token that it began with. So calls look from time to time whether the token still counts,
//! and still names the same caller.

use crate::failure::{Failure, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_access::{Access, Caller, Shown};
use stele_env::Env;
use stele_wire::exception;

/// Calls go on for this long after the token was looked at: as long as a file of tokens is believed.
const INTERVAL: Duration = Duration::from_secs(5);

/// The token with which a connection began.
pub(crate) struct ShownToken {
    access: Arc<Access>,
    caller: Arc<Caller>,
    token: String,
    /// When it counted the last time, in nanoseconds of the environment's clock.
    counted: AtomicU64,
}

impl ShownToken {
    /// A token that names this caller now.
    pub fn new(access: Arc<Access>, caller: Arc<Caller>, token: String, env: &Env) -> Self {
        ShownToken {
            access,
            caller,
            token,
            counted: AtomicU64::new(nanos(env.now())),
        }
    }

    /// Fails if the token counts no longer.
    pub fn check(&self, env: &Env) -> Outcome<()> {
        let now = nanos(env.now());
        if now.saturating_sub(self.counted.load(Ordering::Relaxed)) < nanos(INTERVAL) {
            return Ok(());
        }
        let shown = Shown {
            token: Some(&self.token),
            ..Shown::default()
        };
        let denied = |message: String| Failure::new(exception::ACCESS_DENIED, message);
        let caller = self.access.identify(shown).map_err(|refused| {
            self.access.audit_refused(shown, "hbase call", &refused);
            denied(refused.to_string())
        })?;
        if caller.name() != self.caller.name() || caller.groups() != self.caller.groups() {
            return Err(denied(
                "the bearer token of the connection names another caller now".to_owned(),
            ));
        }
        self.counted.fetch_max(now, Ordering::Relaxed);
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
