//! The rate of the calls of this server, as it tells it to clients.
//!
//! Time is divided into windows of at least [`WINDOW`]; the rate is that of the last complete one. A window ends when somebody
//! asks, or at the next sweep of scanners ([`crate::scanners::SWEEP_INTERVAL`]), so the rate is never of a time long ago.

use parking_lot::Mutex;
use std::time::Duration;

/// Shortest window: in a shorter one a few calls would be a high rate.
const WINDOW: Duration = Duration::from_secs(5);

/// The calls until a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// By the monotonic clock.
    pub at: Duration,
    /// The same in ms since 1970.
    pub wall_millis: u64,
    /// Calls since the start.
    pub calls: u64,
}

/// A rate, and the time that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Calls in a second, rounded.
    pub per_second: u64,
    /// Begin of its window in ms since 1970.
    pub since_millis: u64,
}

/// Remembers one window.
pub(crate) struct CallRate(Mutex<Windows>);

struct Windows {
    /// Begin of the window under way.
    begun: Moment,
    /// Of the last complete window.
    last: Option<Rate>,
}

impl CallRate {
    /// Before the first call. `at` and `wall_millis` are those of a [`Moment`].
    pub fn new(at: Duration, wall_millis: u64) -> Self {
        let begun = Moment {
            at,
            wall_millis,
            calls: 0,
        };
        CallRate(Mutex::new(Windows { begun, last: None }))
    }

    /// Ends the window under way if it is long enough, and returns the rate of the last complete one. Before that, it is the rate
    /// since the start.
    pub fn note(&self, now: Moment) -> Rate {
        let windows = &mut *self.0.lock();
        let rate = windows.begun.rate_until(now);
        if now.at.saturating_sub(windows.begun.at) < WINDOW {
            return windows.last.unwrap_or(rate);
        }
        (windows.begun, windows.last) = (now, Some(rate));
        rate
    }
}

impl Moment {
    fn rate_until(&self, now: Moment) -> Rate {
        let seconds = now.at.saturating_sub(self.at).as_secs_f64().max(1.0);
        let calls = now.calls.saturating_sub(self.calls);
        Rate {
            per_second: (calls as f64 / seconds).round() as u64,
            since_millis: self.wall_millis,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_complete_window() {
        let rates = CallRate::new(Duration::from_secs(100), 0);
        let note = |millis: u64, calls| {
            let rate = rates.note(Moment {
                at: Duration::from_millis(100_000 + millis),
                wall_millis: millis,
                calls,
            });
            (rate.per_second, rate.since_millis)
        };
        // One call in the first moments is no high rate.
        assert_eq!(note(1, 1), (1, 0));
        assert_eq!(note(4_000, 40), (10, 0));
        assert_eq!(note(10_000, 1_000), (100, 0));
        // The next window is not complete yet.
        assert_eq!(note(14_999, 9_000), (100, 0));
        assert_eq!(note(15_000, 9_000), (1_600, 10_000));
        assert_eq!(note(25_000, 9_000), (0, 15_000));
        assert_eq!(note(30_000, 9_007), (1, 25_000));
    }
}
