//! Counting and timing of the steps of one generator thread.
//!
//! The clients of a thread take turns on it. The reporter takes its lock only once a second, so the lock is practically
//! never contended.

use crate::activity::Step;
use crate::engine::frames::SecondReport;
use crate::outcome::Verdict;
use crate::outcome::histogram::{self, MICROS_MAX};
use crate::outcome::{EncodedHistogram, FAILURE_TEXTS_MAX, KindOutcome};
use crate::plan::Run;
use hdrhistogram::Histogram;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Significant digits of the latencies of one second. It needs less precision than a run, and is sent for every second.
pub const SECOND_DIGITS: u8 = 2;

/// An empty histogram of one second.
pub fn histogram_of_second() -> Histogram<u64> {
    histogram::of(SECOND_DIGITS)
}

/// Failures of one thread in one run that are each set apart from their neighbours. Every client pauses after a
/// failure, so that 300 clients reach this number after three seconds of nothing else. Two spans of about 40 bytes as
/// text each are 4 MB for the readers of the table.
const FAILURES_APART_MAX: u32 = 50_000;

/// Counts of one thread's clients since the last report.
#[derive(Debug)]
pub struct Recorder {
    names: Vec<String>,
    /// Time window in which steps count. Seconds are recorded outside of it too.
    window: Range<Instant>,
    /// Whether the beginning of a step (when it was due, in an open loop) must be in the window, rather than its end.
    by_beginning: bool,
    failures_apart: u32,
    start: Instant,
    kinds: Vec<KindRecorder>,
    second: SecondRecorder,
    seconds: Vec<SecondReport>,
    verdict: Verdict,
    done: Vec<Range<u64>>,
    uncertain: Vec<Range<u64>>,
    busy: Duration,
    send_lag: Option<Histogram<u64>>,
    last_span: Option<Instant>,
}

#[derive(Debug)]
struct KindRecorder {
    outcome: KindOutcome,
    histogram: Histogram<u64>,
    /// Of failed calls; most runs have none.
    failed: Option<Histogram<u64>>,
}

#[derive(Debug)]
struct SecondRecorder {
    report: SecondReport,
    histogram: Histogram<u64>,
}

/// Contents of a recorder.
#[derive(Debug, Default)]
pub struct Taken {
    /// Statistics by kind.
    pub kinds: Vec<KindOutcome>,
    /// Seconds that ended.
    pub seconds: Vec<SecondReport>,
    /// Verdict on the responses.
    pub verdict: Verdict,
    /// Spans done.
    pub done: Vec<Range<u64>>,
    /// Spans in which something failed.
    pub uncertain: Vec<Range<u64>>,
    /// Busy time of clients.
    pub busy: Duration,
    /// How late the generator sent.
    pub send_lag: EncodedHistogram,
    /// End of the last span, in seconds after the run's start.
    pub last_span_at: Option<f64>,
}

impl Recorder {
    /// For a run that starts at `start` and counts the steps within `window`.
    ///
    /// A closed loop counts steps that end in it. If a server stalls over the window's end, that leaves out the slowest
    /// ones. In an open loop, and where a server is killed, these are the subject, so steps that begin in it count.
    pub fn new(names: Vec<String>, start: Instant, window: Range<Instant>, first_second: u32, run: &Run) -> Self {
        let kinds = names.iter().map(|name| KindRecorder::new(name)).collect();
        Self {
            names,
            window,
            by_beginning: run.rate.is_some() || run.disruption.is_some(),
            failures_apart: 0,
            start,
            kinds,
            second: SecondRecorder {
                report: SecondReport {
                    index: first_second,
                    ..SecondReport::default()
                },
                histogram: histogram_of_second(),
            },
            seconds: Vec::new(),
            verdict: Verdict::default(),
            done: Vec::new(),
            uncertain: Vec::new(),
            busy: Duration::ZERO,
            send_lag: run.rate.is_some().then(histogram::new),
            last_span: None,
        }
    }

    /// A step that began (or was due) at `from` has succeeded.
    pub fn success(&mut self, step: &Step, from: Instant, now: Instant) {
        let latency = now - from;
        let micros = micros_of(latency);
        let operations = u64::from(step.acknowledged.unwrap_or(step.operations));
        let sent = step.acknowledged != Some(0);
        self.roll(now);
        let second = &mut self.second;
        second.report.operations += operations;
        second.report.bytes += step.bytes;
        if sent {
            second.histogram.saturating_record(micros);
        }
        // Responses are judged in the warm-up too: a wrong one is wrong at any time.
        if !step.verdict.is_right() || step.verdict.checked > 0 {
            self.verdict.merge(&step.verdict);
        }
        if !self.window.contains(if self.by_beginning { &from } else { &now }) {
            return;
        }
        self.busy += latency;
        let Some(kind) = self.kinds.get_mut(usize::from(step.kind)) else {
            return;
        };
        let outcome = &mut kind.outcome;
        outcome.operations += operations;
        if !sent {
            // Rows that were only buffered: no call, no latency.
            return;
        }
        kind.histogram.saturating_record(micros);
        outcome.steps += 1;
        outcome.rows += u64::from(step.rows);
        outcome.bytes += step.bytes;
        let micros = latency.as_secs_f64() * 1e6;
        outcome.micros_sum += micros;
        outcome.micros_square_sum += micros * micros;
        outcome.micros_max = outcome.micros_max.max(micros as u64);
    }

    /// Records a failed step. Failures count at all times. The kind is unknown when the call returned no step.
    pub fn failure(&mut self, text: String, from: Instant, now: Instant) {
        let latency = now - from;
        self.busy += latency;
        self.count_failure(text, now);
        if let Some(kind) = self.kinds.first_mut() {
            let failed = kind.failed.get_or_insert_with(histogram::new);
            failed.saturating_record(micros_of(latency));
        }
    }

    /// Open loop: records an operation that was due and not even begun when the run was given up.
    pub fn unsent(&mut self, text: &str, due: Instant, now: Instant) {
        if self.window.contains(&due) {
            self.count_failure(text.to_owned(), now);
        }
    }

    fn count_failure(&mut self, text: String, now: Instant) {
        self.roll(now);
        self.second.report.failures += 1;
        let Some(kind) = self.kinds.first_mut() else {
            return;
        };
        let failures = &mut kind.outcome.failures;
        let room = failures.len() < FAILURE_TEXTS_MAX || failures.contains_key(&text);
        *failures
            .entry(if room { text } else { "other".to_owned() })
            .or_default() += 1;
    }

    /// Open loop: records the delay of an operation after both it was due and its client was free.
    pub fn send_lag(&mut self, lag: Duration) {
        if let Some(histogram) = &mut self.send_lag {
            histogram.saturating_record(micros_of(lag));
        }
    }

    /// Records the end of a span.
    pub fn span(&mut self, span: Range<u64>, failed: bool, now: Instant) {
        self.last_span = Some(now);
        if failed {
            self.uncertain.push(span)
        } else {
            self.done.push(span)
        }
    }

    /// Whether one more failure may have a span of its own.
    pub fn may_set_apart(&mut self) -> bool {
        self.failures_apart = self.failures_apart.saturating_add(1);
        self.failures_apart <= FAILURES_APART_MAX
    }

    /// Closes seconds that are over.
    pub fn roll(&mut self, now: Instant) {
        let index = u32::try_from(now.saturating_duration_since(self.start).as_secs()).unwrap_or(u32::MAX);
        if index > self.second.report.index {
            self.end_second(index);
        }
    }

    /// All counts since the last call. `last` closes the current second too.
    pub fn take(&mut self, now: Instant, last: bool) -> Taken {
        self.roll(now);
        if last {
            self.end_second(u32::MAX);
        }
        let fresh: Vec<KindRecorder> = self.names.iter().map(|name| KindRecorder::new(name)).collect();
        let kinds = std::mem::replace(&mut self.kinds, fresh);
        let send_lag = self.send_lag.as_ref().map(EncodedHistogram::encode).unwrap_or_default();
        if let Some(histogram) = &mut self.send_lag {
            histogram.reset();
        }
        Taken {
            kinds: kinds.into_iter().map(KindRecorder::finish).collect(),
            seconds: std::mem::take(&mut self.seconds),
            verdict: std::mem::take(&mut self.verdict),
            done: std::mem::take(&mut self.done),
            uncertain: std::mem::take(&mut self.uncertain),
            busy: std::mem::take(&mut self.busy),
            send_lag,
            last_span_at: self
                .last_span
                .take()
                .map(|at| at.saturating_duration_since(self.start).as_secs_f64()),
        }
    }

    fn end_second(&mut self, next: u32) {
        let mut ended = std::mem::take(&mut self.second.report);
        self.second.report.index = next;
        if ended.operations == 0 && ended.failures == 0 {
            return;
        }
        ended.histogram = EncodedHistogram::encode(&self.second.histogram);
        self.second.histogram.reset();
        self.seconds.push(ended);
    }
}

fn micros_of(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).unwrap_or(MICROS_MAX).max(1)
}

impl KindRecorder {
    fn new(name: &str) -> Self {
        Self {
            outcome: KindOutcome {
                name: name.to_owned(),
                ..KindOutcome::default()
            },
            histogram: histogram::new(),
            failed: None,
        }
    }

    fn finish(self) -> KindOutcome {
        let mut outcome = self.outcome;
        outcome.histogram = EncodedHistogram::encode(&self.histogram);
        outcome.failed = encode(&self.failed);
        outcome
    }
}

/// Sums of statistics, by kind in order of first appearance.
#[derive(Debug, Default)]
pub struct Totals {
    kinds: Vec<Total>,
    send_lag: Option<Histogram<u64>>,
}

/// The sum of one kind.
#[derive(Debug, Default)]
struct Total {
    counts: KindOutcome,
    latencies: Option<Histogram<u64>>,
    failed: Option<Histogram<u64>>,
}

impl Totals {
    /// Adds an increment. A histogram that does not decode adds nothing. Its counts then disagree, which `verify`
    /// finds.
    pub fn add(&mut self, kinds: &[KindOutcome], send_lag: &EncodedHistogram) {
        for kind in kinds {
            let position = self.kinds.iter().position(|have| have.counts.name == kind.name);
            let position = position.unwrap_or_else(|| {
                let mut empty = Total::default();
                empty.counts.name.clone_from(&kind.name);
                self.kinds.push(empty);
                self.kinds.len() - 1
            });
            if let Some(total) = self.kinds.get_mut(position) {
                total.counts.add_counts(kind);
                add_histogram(&mut total.latencies, &kind.histogram);
                add_histogram(&mut total.failed, &kind.failed);
            }
        }
        add_histogram(&mut self.send_lag, send_lag);
    }

    /// The sums.
    pub fn finish(&self) -> (Vec<KindOutcome>, EncodedHistogram) {
        let kinds = self.kinds.iter().map(|total| KindOutcome {
            histogram: encode(&total.latencies),
            failed: encode(&total.failed),
            ..total.counts.clone()
        });
        (kinds.collect(), encode(&self.send_lag))
    }
}

fn encode(histogram: &Option<Histogram<u64>>) -> EncodedHistogram {
    histogram.as_ref().map(EncodedHistogram::encode).unwrap_or_default()
}

fn add_histogram(sum: &mut Option<Histogram<u64>>, more: &EncodedHistogram) {
    if more.0.is_empty() {
        return;
    }
    if let Ok(decoded) = more.decode() {
        let sum = sum.get_or_insert_with(histogram::new);
        // Both have the same bounds, so no value is cut off.
        let _ = sum.add(&decoded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(operations: u32) -> Step {
        Step {
            operations,
            rows: operations,
            bytes: 10,
            ..Step::default()
        }
    }

    #[test]
    fn steps_outside_the_window_are_in_the_seconds_and_not_in_the_statistics() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut recorder = Recorder::new(vec!["get".into()], start, at(1_000)..at(2_000), 0, &Run::default());
        recorder.success(&step(1), at(400), at(500));
        recorder.success(&step(3), at(1_400), at(1_500));
        recorder.success(&step(1), at(2_400), at(2_500));
        recorder.failure("timeout".into(), at(2_400), at(2_600));
        let taken = recorder.take(at(2_700), true);
        let kind = &taken.kinds[0];
        assert_eq!((kind.operations, kind.steps, kind.bytes), (3, 1, 10));
        assert_eq!((kind.micros_sum, kind.micros_max), (100_000.0, 100_000));
        assert_eq!(kind.failures["timeout"], 1);
        let seconds: Vec<_> = taken
            .seconds
            .iter()
            .map(|s| (s.index, s.operations, s.failures))
            .collect();
        assert_eq!(seconds, [(0, 1, 0), (1, 3, 0), (2, 1, 1)]);
        assert!(recorder.take(at(2_800), true).seconds.is_empty());
    }

    #[test]
    fn an_open_loop_counts_the_steps_that_were_due_in_the_window() {
        let open = Run {
            rate: Some(crate::plan::OpenLoop {
                per_second: 1.0,
                poisson: false,
            }),
            ..Run::default()
        };
        counts_by_beginning(&open);
    }

    #[test]
    fn a_run_that_kills_a_server_counts_the_steps_that_began_in_the_window() {
        let killing = Run {
            disruption: Some(crate::plan::Disruption {
                at_seconds: 1.0,
                command: "true".into(),
            }),
            ..Run::default()
        };
        counts_by_beginning(&killing);
    }

    fn counts_by_beginning(run: &Run) {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut recorder = Recorder::new(vec!["get".into()], start, at(1_000)..at(2_000), 0, run);
        recorder.success(&step(1), at(900), at(1_500));
        recorder.success(&step(3), at(1_900), at(2_500));
        recorder.unsent("never sent", at(900), at(2_600));
        recorder.unsent("never sent", at(1_950), at(2_600));
        recorder.success(&step(1), at(2_000), at(2_600));
        let taken = recorder.take(at(2_700), true);
        let kind = &taken.kinds[0];
        assert_eq!((kind.operations, kind.steps, kind.micros_max), (3, 1, 600_000));
        assert_eq!(kind.failures["never sent"], 1);
    }

    #[test]
    fn failed_steps_have_latencies_of_their_own() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut recorder = Recorder::new(vec!["get".into()], start, start..at(9_000), 0, &Run::default());
        recorder.success(&step(1), at(0), at(10));
        recorder.failure("timeout".into(), at(1_000), at(6_000));
        recorder.unsent("never sent", at(1_000), at(6_000));
        let mut totals = Totals::default();
        totals.add(&recorder.take(at(6_000), false).kinds, &EncodedHistogram::default());
        recorder.failure("timeout".into(), at(6_000), at(8_500));
        totals.add(&recorder.take(at(9_000), true).kinds, &EncodedHistogram::default());
        let (kinds, _) = totals.finish();
        let (passed, failed) = (kinds[0].histogram.decode().unwrap(), kinds[0].failed.decode().unwrap());
        assert_eq!((passed.len(), passed.max() / 1_000), (1, 10));
        assert_eq!(
            (failed.len(), failed.min() / 1_000_000, failed.max() / 1_000_000),
            (2, 2, 5)
        );
    }

    #[test]
    fn texts_of_failures_are_bounded() {
        let start = Instant::now();
        let mut recorder = Recorder::new(vec!["get".into()], start, start..start, 0, &Run::default());
        for i in 0..100 {
            recorder.failure(format!("failure {i}"), start, start);
        }
        let taken = recorder.take(start, true);
        let failures = &taken.kinds[0].failures;
        assert_eq!(failures.len(), FAILURE_TEXTS_MAX + 1);
        assert_eq!(failures.values().sum::<u64>(), 100);
    }
}
