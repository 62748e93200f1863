//! Retries: the calls that are sent again, and the delays before that.
//!
//! Google's clients retry calls that may be carried out twice (reads and plain writes) on UNAVAILABLE, ABORTED and
//! DEADLINE_EXCEEDED. Their delays grow exponentially from 10 ms (Java) or 100 ms (Go) within a time limit for the
//! whole operation. They retry neither conditional writes nor read-modify-writes. This module does the same, with two
//! differences:
//! * Writes at the server's time are retried although Go's client does not do so. Its reason is that the cell may be
//!   written twice with different timestamps. Here a client waits for one write of a key before it begins the next, and
//!   reads request the newest version, so the second cell holds the same value as the first. There is no retry after a
//!   timeout, because the first attempt may still be in progress in the server, and could land after a later write.
//! * RESOURCE_EXHAUSTED is retried for all calls. A server that sheds load has not carried out the call.
//!
//! Pure: the caller measures time and sleeps.

use super::http2::Failure;
use std::time::Duration;
use tonic::Code;

/// Longest time from the first attempt to the start of the last one: enough for a tablet server's failover.
pub(super) const RETRY_MS_MAX: u64 = 60_000;

/// Delay after the first failure, before jitter.
const FIRST_PAUSE_MS: u64 = 10;

/// Longest delay. Beyond this, a client would sleep through a recovery.
const PAUSE_MS_MAX: u64 = 1_000;

/// Effects of a call that is carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safety {
    /// Nothing more than once.
    Read,
    /// The same value again.
    Put,
    /// Something else.
    Once,
}

/// Classes of failures that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Perhaps carried out; not running any more.
    Unavailable,
    /// Lost against another call.
    Aborted,
    /// Perhaps still running.
    Late,
    /// Not carried out.
    Exhausted,
    /// Would fail again.
    Final,
}

impl Trouble {
    /// Of a status code.
    pub(super) fn of_code(code: Code) -> Self {
        match code {
            Code::Unavailable => Self::Unavailable,
            Code::Aborted => Self::Aborted,
            Code::DeadlineExceeded => Self::Late,
            Code::ResourceExhausted => Self::Exhausted,
            _ => Self::Final,
        }
    }

    /// Of a failed call.
    pub(super) fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Status(status) => Self::of_code(status.code()),
            Failure::Broken(_) => Self::Unavailable,
            Failure::Late => Self::Late,
            Failure::Protocol(_) => Self::Final,
        }
    }

    /// Whether a call may be sent again after it.
    pub(super) fn may_pass(self, safety: Safety) -> bool {
        match self {
            Self::Exhausted => true,
            Self::Unavailable | Self::Aborted => safety != Safety::Once,
            Self::Late => safety == Safety::Read,
            Self::Final => false,
        }
    }
}

/// Delay before attempt `attempt` + 1, when `elapsed` has passed since the first one began. `None` if there is no
/// further attempt. `random` spreads clients that failed together.
pub(super) fn pause(attempt: u32, elapsed: Duration, random: u32) -> Option<Duration> {
    let doubled = FIRST_PAUSE_MS.saturating_mul(1 << attempt.saturating_sub(1).min(20));
    let micros = doubled.min(PAUSE_MS_MAX) * 1_000;
    // Between one half and the whole.
    let micros = micros / 2 + (micros / 2 * u64::from(random >> 16)) / 0xffff;
    let pause = Duration::from_micros(micros);
    (elapsed + pause <= Duration::from_millis(RETRY_MS_MAX)).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let zero = Duration::ZERO;
        let ms = |attempt, random| pause(attempt, zero, random).map(|p| p.as_micros() as f64 / 1000.0);
        assert_eq!(ms(1, 0), Some(5.0));
        assert_eq!(ms(1, u32::MAX), Some(10.0));
        assert_eq!(ms(4, u32::MAX), Some(80.0));
        assert_eq!(ms(400, u32::MAX), Some(1000.0));
        assert_eq!(pause(3, Duration::from_millis(RETRY_MS_MAX), 0), None);
        // So the number of attempts is bounded, too.
        let (mut elapsed, mut attempts) = (zero, 1);
        while let Some(pause) = pause(attempts, elapsed, 0) {
            elapsed += pause;
            attempts += 1;
        }
        assert!((60..200).contains(&attempts), "{attempts}");
    }

    #[test]
    fn what_may_be_done_twice_is_retried_and_nothing_else() {
        use Safety::{Once, Put, Read};
        let table = [
            (Code::Unavailable, vec![Read, Put]),
            (Code::Aborted, vec![Read, Put]),
            (Code::DeadlineExceeded, vec![Read]),
            (Code::ResourceExhausted, vec![Read, Put, Once]),
            (Code::NotFound, vec![]),
            (Code::Internal, vec![]),
        ];
        for (code, expected) in table {
            let trouble = Trouble::of_code(code);
            let retried: Vec<_> = [Read, Put, Once].into_iter().filter(|s| trouble.may_pass(*s)).collect();
            assert_eq!(retried, expected, "{code:?}");
        }
        assert!(!Trouble::of(&Failure::Late).may_pass(Put));
        assert!(Trouble::of(&Failure::Broken(String::new())).may_pass(Put));
        assert!(!Trouble::of(&Failure::Broken(String::new())).may_pass(Once));
    }
}
