//! A wall clock that the servers of a cluster keep together.
//!
//! Clocks of hosts differ. A server that takes a tablet over must not give its writes older times than the former owner gave, or an
//! earlier write hides a later one. So messages between servers carry the sender's time, and the receiver moves its clock ahead to
//! it (Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978). The clock then loses one hundredth of
//! the time that passes, until it shows its host's time again: a clock that was wrong and is set back does not stay wrong here.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The most by which a clock is moved ahead of its host's, in microseconds. A server whose clock is further ahead is not followed.
pub const AHEAD_MICROS_MAX: i64 = 30_000_000;

/// Microseconds in which the clock loses one of those that it is ahead.
const MICROS_TO_LOSE_ONE: i64 = 100;

/// A clock that was shown is too far ahead of this host's to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// By this many microseconds.
    pub micros: i64,
}

/// By how much the clock of a server is ahead of its host's.
#[derive(Debug, Default)]
pub(crate) struct CommonClock {
    /// The monotonic time, in microseconds, at which it will show its host's time again.
    level_at: AtomicI64,
}

impl CommonClock {
    /// Microseconds that the clock is ahead at the monotonic time `now`.
    pub(crate) fn ahead(&self, now: Duration) -> i64 {
        let rest = self.level_at.load(Ordering::Relaxed).saturating_sub(micros(now));
        // Rounded up: a clock that was moved to a time shows that time at least.
        rest.max(0).saturating_add(MICROS_TO_LOSE_ONE - 1) / MICROS_TO_LOSE_ONE
    }

    /// Moves the clock ahead to the time of another server, if that is later. `host` is the time of this host's wall clock.
    pub(crate) fn follow(&self, now: Duration, host: i64, other: i64) -> Result<(), TooFarAhead> {
        let ahead = other.saturating_sub(host);
        if ahead > AHEAD_MICROS_MAX {
            return Err(TooFarAhead { micros: ahead });
        }
        if ahead > 0 {
            let level_at = micros(now).saturating_add(ahead * MICROS_TO_LOSE_ONE);
            self.level_at.fetch_max(level_at, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn micros(now: Duration) -> i64 {
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(micros: i64) -> Duration {
        Duration::from_micros(micros as u64)
    }

    #[test]
    fn the_clock_moves_ahead_and_returns_without_going_back() {
        let clock = CommonClock::default();
        assert_eq!(clock.ahead(at(5 * SECOND)), 0);
        // The host is at 700 s, another server 2 s ahead of it.
        let (now, host) = (5 * SECOND, 700 * SECOND);
        clock.follow(at(now), host, host + 2 * SECOND).unwrap();
        assert_eq!(clock.ahead(at(now)), 2 * SECOND);
        let mut last = host + 2 * SECOND;
        for step in 0..1_000 {
            let passed = step * 300_001;
            let shown = host + passed + clock.ahead(at(now + passed));
            assert!(shown >= last, "{shown} after {last}");
            last = shown;
        }
        assert_eq!(clock.ahead(at(now + 100 * SECOND)), SECOND);
        assert_eq!(clock.ahead(at(now + 200 * SECOND)), 0);
    }

    #[test]
    fn an_earlier_time_changes_nothing() {
        let clock = CommonClock::default();
        let host = 700 * SECOND;
        clock.follow(at(0), host, host + SECOND).unwrap();
        for other in [i64::MIN, 0, host - SECOND, host, host + SECOND / 2] {
            clock.follow(at(0), host, other).unwrap();
            assert_eq!(clock.ahead(at(0)), SECOND);
        }
    }

    #[test]
    fn a_clock_far_ahead_is_not_followed() {
        let clock = CommonClock::default();
        let host = 700 * SECOND;
        for ahead in [AHEAD_MICROS_MAX + 1, i64::MAX - host] {
            let refused = clock.follow(at(0), host, host + ahead);
            assert_eq!(refused, Err(TooFarAhead { micros: ahead }));
        }
        assert_eq!(clock.ahead(at(0)), 0);
        clock.follow(at(0), host, host + AHEAD_MICROS_MAX).unwrap();
        assert_eq!(clock.ahead(at(0)), AHEAD_MICROS_MAX);
    }
}
