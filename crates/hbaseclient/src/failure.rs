//! Failures of one attempt of a call, their remedies, and the pauses between attempts.
//!
//! Follows HBase's own client. The class of a Java exception decides, and pauses grow by that client's factors. After
//! an unknown exception the call is tried at another place. All retries of a call end a
//! fixed time after its first failure.
//!
//! Pure: no clock, no sockets.

use std::sync::Arc;
use std::time::{Duration, Instant};
use stele_wire::messages::{ExceptionResponse, NameBytesPair};
use stele_wire::{WireError, exception};

/// HBase's `hbase.client.pause`.
const PAUSE: Duration = Duration::from_millis(100);

/// HBase's factors of the pause, attempt by attempt; the last one stays.
const FACTORS: [u32; 8] = [1, 2, 3, 5, 10, 20, 40, 100];

/// Why one attempt failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The server could not be reached, or the connection broke; the call may have been carried out.
    #[error("{0}")]
    Lost(Arc<str>),
    /// No response in time; the call may have been carried out.
    #[error("no response within {0} ms")]
    Timeout(u64),
    /// The server returned an exception.
    #[error("{class}: {text}")]
    Exception {
        /// Its Java class.
        class: String,
        /// First line of its text.
        text: String,
        /// Whether the server reports that another attempt is of no use.
        do_not_retry: bool,
    },
    /// `hbase:meta` names no server for the row just now.
    #[error("{0}")]
    Unassigned(String),
    /// No such table.
    #[error("no table {0:?}")]
    NoTable(String),
    /// The response violates the protocol, or the call must not be sent.
    #[error("{0}")]
    Protocol(String),
}

/// Reactions to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing helps.
    GiveUp,
    /// Drop the region's location, wait, look it up and try there.
    Relocate,
    /// Wait and try at the same place.
    Wait,
    /// Try again without waiting.
    AtOnce,
    /// Of a scan: open a scanner behind the last row. Of anything else: as `Relocate`.
    Reopen,
}

impl Failure {
    /// The failure in a response's header.
    pub fn exception(e: &ExceptionResponse) -> Self {
        let class = e.exception_class_name.clone().unwrap_or_default();
        Self::Exception {
            class,
            text: first_line(e.stack_trace.as_deref()),
            do_not_retry: e.do_not_retry(),
        }
    }

    /// The failure of one action or region in a Multi.
    pub fn of_action(e: &NameBytesPair) -> Self {
        let text = e.value.as_deref().map(String::from_utf8_lossy);
        let do_not_retry = exception::DO_NOT_RETRY_CLASSES.contains(&e.name.as_str());
        Self::Exception {
            class: e.name.clone(),
            text: first_line(text.as_deref()),
            do_not_retry,
        }
    }

    /// The reaction to it.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Lost(_) | Self::Timeout(_) | Self::Unassigned(_) => Remedy::Relocate,
            Self::NoTable(_) | Self::Protocol(_) => Remedy::GiveUp,
            Self::Exception {
                class, do_not_retry, ..
            } => of_class(class, *do_not_retry),
        }
    }

    /// Whether the region may have moved after such a failure.
    pub fn forgets(&self) -> bool {
        matches!(self.remedy(), Remedy::Relocate | Remedy::Reopen)
    }

    /// Whether the server returned an exception of this class.
    pub fn is_class(&self, name: &str) -> bool {
        matches!(self, Self::Exception { class, .. } if class == name)
    }
}

/// These few classes decide first, whatever else a class derives from: a scanner's exceptions do not call for a
/// repeated *call*.
fn of_class(class: &str, do_not_retry: bool) -> Remedy {
    match class {
        exception::UNKNOWN_SCANNER | exception::OUT_OF_ORDER_SCANNER | exception::SCANNER_RESET | exception::LEASE => {
            Remedy::Reopen
        }
        exception::REGION_OPENING
        | exception::REGION_TOO_BUSY
        | exception::RPC_THROTTLING
        | exception::CALL_QUEUE_TOO_BIG
        | exception::CALL_DROPPED => Remedy::Wait,
        exception::MULTI_TOO_LARGE | exception::RETRY_IMMEDIATELY => Remedy::AtOnce,
        _ if do_not_retry || exception::DO_NOT_RETRY_CLASSES.contains(&class) => Remedy::GiveUp,
        _ => Remedy::Relocate,
    }
}

/// A stack trace is of no use in a report, and some are long.
fn first_line(text: Option<&str>) -> String {
    text.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect()
}

impl From<WireError> for Failure {
    fn from(e: WireError) -> Self {
        Self::Protocol(e.to_string())
    }
}

/// Pauses between the attempts of one call.
#[derive(Debug)]
pub struct BackOff {
    /// Longest time from the first failure to the last attempt.
    retry_for: Duration,
    /// Failures so far.
    failures: u32,
    /// When the first one was.
    since: Option<Instant>,
    /// When the last one was.
    last: Option<Instant>,
}

impl BackOff {
    /// No failure yet; the last attempt is at most `retry_for` later than the first failure.
    pub fn new(retry_for: Duration) -> Self {
        Self {
            retry_for,
            failures: 0,
            since: None,
            last: None,
        }
    }

    /// Notes a response, of something that takes several calls. Once there was no failure for the whole time, those before no
    /// longer count. An earlier response proves nothing: the same attempt may fail again and again.
    pub fn responded(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now > last + self.retry_for) {
            *self = Self::new(self.retry_for);
        }
    }

    /// The pause before another attempt, `None` if there is none.
    pub fn after(&mut self, failure: &Failure, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        self.last = Some(now);
        let remedy = failure.remedy();
        let factor = FACTORS
            .get(self.failures as usize)
            .or(FACTORS.last())
            .copied()
            .unwrap_or(1);
        self.failures = self.failures.saturating_add(1);
        let pause = match remedy {
            Remedy::GiveUp => return None,
            // One immediate attempt is enough. A server that requests it again and again gets pauses like any other.
            Remedy::AtOnce | Remedy::Reopen if self.failures == 1 => Duration::ZERO,
            _ => PAUSE * factor,
        };
        (now + pause <= since + self.retry_for).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY_FOR: Duration = Duration::from_secs(60);

    fn exception(class: &str, do_not_retry: bool) -> Failure {
        Failure::Exception {
            class: class.into(),
            text: String::new(),
            do_not_retry,
        }
    }

    #[test]
    fn the_class_of_an_exception_decides() {
        for (class, remedy) in [
            (exception::NOT_SERVING_REGION, Remedy::Relocate),
            (exception::REGION_MOVED, Remedy::Relocate),
            (exception::WRONG_REGION, Remedy::Relocate),
            (exception::REGION_TOO_BUSY, Remedy::Wait),
            (exception::CALL_QUEUE_TOO_BIG, Remedy::Wait),
            (exception::UNKNOWN_SCANNER, Remedy::Reopen),
            (exception::RETRY_IMMEDIATELY, Remedy::AtOnce),
            (exception::NO_SUCH_FAMILY, Remedy::GiveUp),
            ("java.io.IOException", Remedy::Relocate),
        ] {
            assert_eq!(exception(class, false).remedy(), remedy, "{class}");
        }
        assert_eq!(exception("some.DoNotRetryThing", true).remedy(), Remedy::GiveUp);
        assert_eq!(
            exception(exception::UNKNOWN_SCANNER, true).remedy(),
            Remedy::Reopen,
            "derived from DoNotRetry"
        );
    }

    #[test]
    fn only_the_first_line_of_a_trace_is_kept() {
        let trace = format!("region is busy\n\tat {}", "x".repeat(1000));
        let e = ExceptionResponse {
            stack_trace: Some(trace),
            ..ExceptionResponse::default()
        };
        assert_eq!(Failure::exception(&e).to_string(), ": region is busy");
    }

    #[test]
    fn pauses_grow_like_those_of_hbases_client_and_end_after_a_minute() {
        let start = Instant::now();
        let (mut back_off, mut now, mut pauses) = (BackOff::new(RETRY_FOR), start, Vec::new());
        while let Some(pause) = back_off.after(&exception(exception::REGION_TOO_BUSY, false), now) {
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(&pauses[..9], &[100, 200, 300, 500, 1000, 2000, 4000, 10_000, 10_000]);
        assert!(now - start <= RETRY_FOR && now - start > RETRY_FOR - Duration::from_secs(11));
    }

    #[test]
    fn what_cannot_help_is_not_tried_and_what_may_is_tried_at_once_only_once() {
        let now = Instant::now();
        assert_eq!(BackOff::new(RETRY_FOR).after(&Failure::NoTable("t".into()), now), None);
        let mut back_off = BackOff::new(RETRY_FOR);
        let at_once = exception(exception::RETRY_IMMEDIATELY, false);
        assert_eq!(back_off.after(&at_once, now), Some(Duration::ZERO));
        assert!(back_off.after(&at_once, now) > Some(Duration::ZERO));
    }

    #[test]
    fn a_failure_long_after_the_others_is_another_one() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let lost = exception(exception::UNKNOWN_SCANNER, true);
        let mut back_off = BackOff::new(RETRY_FOR);
        assert!(back_off.after(&lost, began).is_some());
        back_off.responded(began + RETRY_FOR + second);
        let later = began + 2 * RETRY_FOR;
        assert_eq!(back_off.after(&lost, later), Some(Duration::ZERO), "as the first one");
        // One that comes back after each response ends the call.
        back_off.responded(later + second);
        assert!(back_off.after(&lost, later + RETRY_FOR / 2).is_some());
        back_off.responded(later + RETRY_FOR + second);
        assert_eq!(back_off.after(&lost, later + RETRY_FOR + second), None);
    }
}
