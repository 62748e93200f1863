//! Wall clocks of servers, which control calls and their answers show.
//!
//! A server moves its clock ahead to each time that it is shown ([`stele_env::Env::follow_wall_clock`]). An owner closes its tablet
//! before it answers, and the next one opens it after it is called. So the next one gives later times to its writes.

use parking_lot::Mutex;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{IntGauge, Metrics};

/// Between two lines of the log about clocks that are too far ahead.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// The clock of this server among those of the others.
pub(crate) struct Clocks {
    env: Env,
    ahead: IntGauge,
    /// When the log had the last line about a clock too far ahead.
    logged: Mutex<Option<Duration>>,
}

impl Clocks {
    pub(crate) fn new(env: Env, metrics: &Metrics) -> Clocks {
        Clocks {
            env,
            ahead: metrics.gauge(
                "stele_cluster_clock_ahead_milliseconds",
                "How far the time of this server is ahead of its host's clock, because another server's clock is.",
            ),
            logged: Mutex::new(None),
        }
    }

    /// The time of this server, to be shown.
    pub(crate) fn now_micros(&self) -> i64 {
        self.env.wall_micros()
    }

    /// Follows the time that a server has shown.
    pub(crate) fn follow(&self, server: u64, wall_micros: i64) {
        let followed = self.env.follow_wall_clock(wall_micros);
        self.ahead.set(self.env.clock_ahead_micros() / 1_000);
        let Err(too_far) = followed else {
            return;
        };
        let (now, mut logged) = (self.env.now(), self.logged.lock());
        if logged.is_none_or(|at| now.saturating_sub(at) >= BETWEEN_LINES) {
            *logged = Some(now);
            tracing::error!(
                server,
                seconds = too_far.micros / 1_000_000,
                "the clock of another server is too far ahead of this one to be followed, and one of the two is wrong: tablets that \
                 move here may get older timestamps than they had"
            );
        }
    }
}
