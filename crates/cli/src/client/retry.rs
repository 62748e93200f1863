//! Decides which failed calls are repeated, and after which wait.

use std::collections::hash_map::RandomState;
use std::error::Error;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;
use tonic::{Code, ConnectError, Status};

/// Attempts without any progress before giving up. With the waits below this rides out about half a minute, the order of
/// a server's restart or a tablet's move.
pub const ATTEMPTS_MAX: u32 = 12;
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Counts the attempts of one call.
#[derive(Debug, Default)]
pub struct Retry {
    failures: u32,
}

impl Retry {
    /// The call got somewhere, so the next failure is the first of a new series.
    pub fn progressed(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next attempt, or returns the failure if it is final.
    pub async fn after(&mut self, status: Status) -> Result<(), Status> {
        self.after_if(is_retryable, status).await
    }

    /// The same for a call that is repeated only after these failures.
    pub async fn after_if(&mut self, repeats: fn(&Status) -> bool, status: Status) -> Result<(), Status> {
        self.failures += 1;
        if self.failures >= ATTEMPTS_MAX || !repeats(&status) {
            return Err(status);
        }
        tokio::time::sleep(jittered(wait(self.failures), random())).await;
        Ok(())
    }
}

/// Whether the same call may succeed later. It may have been carried out already, so this is for calls that can be repeated:
/// reads, writes that state their timestamps, and changes with an idempotency token.
pub fn is_retryable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable
        | Code::Aborted
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        // How tonic reports a deadline it enforced itself.
        | Code::Cancelled => true,
        // A status with a source was made here, from a broken connection; one from the server has none.
        Code::Unknown | Code::Internal => status.source().is_some(),
        _ => false,
    }
}

/// Whether a change was certainly not begun, and may succeed later. The server answers UNAVAILABLE only then; a change that may
/// have been made is ABORTED, see `coord::CoordError::kind`.
pub fn is_unbegun(status: &Status) -> bool {
    match status.source() {
        Some(_) => is_unconnected(status),
        None => status.code() == Code::Unavailable,
    }
}

/// Whether a change may have been made although it has failed.
pub fn is_outcome_unknown(status: &Status) -> bool {
    match status.source() {
        Some(_) => !is_unconnected(status),
        None => matches!(
            status.code(),
            // Storage that fails under the catalog is INTERNAL, and the next start of the server decides.
            Code::Aborted | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal
        ),
    }
}

/// Whether there was no connection to send the call on.
fn is_unconnected(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// 50 ms, 100 ms, 200 ms ... 5 s.
fn wait(failures: u32) -> Duration {
    WAIT_FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(WAIT_MAX)
}

/// Between half of the wait and all of it, so that many clients do not come back at the same moment.
fn jittered(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    half + half.mul_f64((random % 1024) as f64 / 1024.0)
}

fn random() -> u64 {
    // Every RandomState has fresh keys; good enough for spreading retries.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passing_troubles_are_retried() {
        assert!(is_retryable(&Status::unavailable("")));
        assert!(is_retryable(&Status::resource_exhausted("busy")));
        assert!(!is_retryable(&Status::not_found("")));
        assert!(!is_retryable(&Status::internal("unknown family")));
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(is_retryable(&Status::from_error(Box::new(broken))));
    }

    #[test]
    fn a_change_is_repeated_only_if_it_was_not_begun() {
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let lost = Status::from_error(Box::new(broken()));
        let unconnected = Status::from_error(Box::new(ConnectError(Box::new(broken()))));
        for (status, is_repeated, is_unknown) in [
            (Status::unavailable("no leader"), true, false),
            (unconnected, true, false),
            (lost, false, true),
            (Status::aborted("the change is made"), false, true),
            (Status::deadline_exceeded(""), false, true),
            (Status::cancelled(""), false, true),
            (Status::not_found(""), false, false),
            (Status::resource_exhausted("too many snapshots"), false, false),
        ] {
            assert_eq!(is_unbegun(&status), is_repeated, "{status:?}");
            assert_eq!(is_outcome_unknown(&status), is_unknown, "{status:?}");
        }
    }

    #[test]
    fn waits_grow_and_are_bounded() {
        let waits: Vec<_> = (1..=9).map(|failures| wait(failures).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(wait(u32::MAX), WAIT_MAX);
        for random in [0, 1, 512, 1023, u64::MAX] {
            let wait = jittered(WAIT_MAX, random);
            assert!(wait >= WAIT_MAX / 2 && wait <= WAIT_MAX);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_bounded() {
        let mut retry = Retry::default();
        let mut waits = 0;
        while retry.after(Status::unavailable("down")).await.is_ok() {
            waits += 1;
        }
        assert_eq!(waits, ATTEMPTS_MAX - 1);
        retry.progressed();
        assert!(retry.after(Status::unavailable("down")).await.is_ok());
        assert!(retry.after(Status::not_found("gone")).await.is_err());
    }
}
