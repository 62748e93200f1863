//! A wall clock that the servers of a cluster keep together.
//!
//! Clocks of hosts differ. A server that takes a tablet over must not give its writes older times than the former owner gave, or an
//! earlier write hides a later one. So messages between servers carry the sender's time, and the receiver moves its clock ahead to
//! it (Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978). The clock then loses one hundredth of
//! the time that passes, until its host's has overtaken it: a clock that was wrong and is set back does not stay wrong here.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The most by which a clock is ahead of its host's, in microseconds.
const AHEAD_MICROS_MAX: i64 = 30_000_000;

/// A server whose clock is further ahead is not followed at all: its clock is wrong, or this host's.
const FOLLOWED_MICROS_MAX: i64 = 2 * AHEAD_MICROS_MAX;

/// The part of the time that passes, in hundredths, by which a clock that is ahead goes on.
const HUNDREDTHS_KEPT: i64 = 99;

/// A clock that was shown is too far ahead of this host's to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// By this many microseconds.
    pub micros: i64,
}

/// The least time that the clock of a server shows. It goes on more slowly than the host's clock, which overtakes it: also when a time
/// server moves that clock on.
#[derive(Debug)]
pub(crate) struct CommonClock {
    /// That time, in microseconds, less the slowed monotonic time.
    floor: AtomicI64,
}

impl Default for CommonClock {
    fn default() -> CommonClock {
        CommonClock {
            floor: AtomicI64::new(i64::MIN),
        }
    }
}

impl CommonClock {
    /// The time at the monotonic time `now`, if the host's wall clock shows `host`.
    pub(crate) fn shown(&self, now: Duration, host: i64) -> i64 {
        let floor = self.floor.load(Ordering::Relaxed).saturating_add(slowed(now));
        host.max(floor.min(host.saturating_add(AHEAD_MICROS_MAX)))
    }

    /// Moves the clock ahead to the time of another server, if that is later.
    pub(crate) fn follow(&self, now: Duration, host: i64, other: i64) -> Result<(), TooFarAhead> {
        let ahead = other.saturating_sub(host);
        if ahead > FOLLOWED_MICROS_MAX {
            return Err(TooFarAhead { micros: ahead });
        }
        self.floor
            .fetch_max(other.saturating_sub(slowed(now)), Ordering::Relaxed);
        Ok(())
    }
}

/// The monotonic time as the clock counts it while it is ahead.
fn slowed(now: Duration) -> i64 {
    let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    micros.saturating_sub(micros / 100 * (100 - HUNDREDTHS_KEPT))
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
        // The host is at 700 s, another server 2 s ahead of it.
        let (now, host) = (5 * SECOND, 700 * SECOND);
        assert_eq!(clock.shown(at(now), host), host);
        clock.follow(at(now), host, host + 2 * SECOND).unwrap();
        assert_eq!(clock.shown(at(now), host), host + 2 * SECOND);
        let mut last = host + 2 * SECOND;
        for step in 0..1_000 {
            let passed = step * 300_001;
            let shown = clock.shown(at(now + passed), host + passed);
            assert!(shown >= last, "{shown} after {last}");
            last = shown;
        }
        let ahead = |passed: i64| clock.shown(at(now + passed), host + passed) - host - passed;
        assert_eq!((ahead(100 * SECOND), ahead(200 * SECOND)), (SECOND, 0));
    }

    #[test]
    fn an_earlier_time_changes_nothing() {
        let clock = CommonClock::default();
        let host = 700 * SECOND;
        clock.follow(at(0), host, host + SECOND).unwrap();
        for other in [i64::MIN, 0, host - SECOND, host, host + SECOND / 2] {
            clock.follow(at(0), host, other).unwrap();
            assert_eq!(clock.shown(at(0), host), host + SECOND);
        }
    }

    /// A server that was behind is not ahead when its clock is mended, or the others would follow it into the future.
    #[test]
    fn a_host_clock_that_is_moved_on_takes_up_the_lead() {
        let clock = CommonClock::default();
        let (host, right) = (700 * SECOND, 720 * SECOND);
        clock.follow(at(0), host, right).unwrap();
        assert_eq!(clock.shown(at(0), host), right);
        assert_eq!(clock.shown(at(SECOND), right + SECOND), right + SECOND);
        // And one that is set back does not take the time with it.
        clock.follow(at(SECOND), right + SECOND, right + 2 * SECOND).unwrap();
        assert_eq!(clock.shown(at(SECOND), host + SECOND), right + 2 * SECOND);
    }

    #[test]
    fn a_clock_is_ahead_by_a_bounded_time() {
        let clock = CommonClock::default();
        let host = 700 * SECOND;
        for ahead in [FOLLOWED_MICROS_MAX + 1, i64::MAX - host] {
            let refused = clock.follow(at(0), host, host + ahead);
            assert_eq!(refused, Err(TooFarAhead { micros: ahead }));
        }
        assert_eq!(clock.shown(at(0), host), host);
        clock.follow(at(0), host, host + AHEAD_MICROS_MAX + SECOND).unwrap();
        assert_eq!(clock.shown(at(0), host), host + AHEAD_MICROS_MAX);
    }
}
