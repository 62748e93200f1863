//! Sums of the workers' reports of one run.

use crate::engine::frames::{self, Report, SecondReport};
use crate::engine::recorder::{SECOND_DIGITS, Totals, histogram_of_second};
use crate::outcome::{Ending, Event, RunOutcome, STALE_READS, Second, Verdict, WorkerOutcome};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most events that are recorded of one run.
const EVENTS_MAX: usize = 1_000;

/// Seconds whose latencies are still added up, at 24 KiB each. A worker reports every second. One that is silent for 30 s
/// is dead.
const SECONDS_OPEN_MAX: usize = 300;

/// One second of all workers.
struct Moment {
    second: Second,
    /// Absent once the second is closed: a run of days has too many of them.
    latencies: Option<Histogram<u64>>,
}

/// The sums so far.
#[derive(Default)]
pub(super) struct Sums {
    started_at: Option<SystemTime>,
    workers: BTreeMap<u32, (WorkerOutcome, Totals)>,
    totals: Totals,
    seconds: BTreeMap<u32, Moment>,
    /// Seconds below this are closed.
    open_from: u32,
    verdict: Verdict,
    uncertain: Vec<Range<u64>>,
    events: Vec<Event>,
    /// End of the last span, in seconds after the start, by the clock of the worker that did it.
    last_span_at: Option<f64>,
}

impl Sums {
    /// For a run that starts now.
    pub(super) fn new() -> Self {
        Self {
            started_at: Some(SystemTime::now()),
            ..Self::default()
        }
    }

    /// Records an event.
    pub(super) fn event(&mut self, at: f64, text: String) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(Event { at, text });
        }
    }

    /// Operations so far, warm-up included.
    pub(super) fn operations(&self) -> u64 {
        self.seconds.values().map(|moment| moment.second.operations).sum()
    }

    /// The last second that a worker has reported.
    pub(super) fn last_second(&self) -> Option<Second> {
        self.seconds.values().next_back().map(Moment::summed)
    }

    /// Adds the report of the worker in a slot.
    pub(super) fn add(&mut self, slot: u32, report: Report) {
        self.last_span_at = frames::later(self.last_span_at, report.last_span_at);
        self.uncertain.extend(report.uncertain);
        self.totals.add(&report.increment.kinds, &report.increment.send_lag);
        self.verdict.merge(&report.verdict);
        let increment = report.increment;
        let (worker, totals) = self.workers.entry(slot).or_default();
        totals.add(&increment.kinds, &increment.send_lag);
        worker.worker = slot;
        if !worker.place.contains(&increment.place) {
            let comma = if worker.place.is_empty() { "" } else { ", then " };
            worker.place = format!("{}{comma}{}", worker.place, increment.place);
        }
        worker.client_seconds += increment.client_seconds;
        worker.cpu_seconds += increment.cpu_seconds;
        // One that took the place over may have more.
        worker.threads = worker.threads.max(increment.threads);
        worker.retries += increment.retries;
        for second in &report.seconds {
            if let Err(why) = self.add_second(second) {
                let at = f64::from(second.index);
                self.event(at, format!("worker {slot} sent latencies that cannot be read: {why}"));
            }
        }
    }

    fn add_second(&mut self, report: &SecondReport) -> Result<(), String> {
        let is_open = report.index >= self.open_from;
        let moment = self.seconds.entry(report.index).or_insert_with(|| Moment {
            second: Second {
                at: f64::from(report.index) + 1.0,
                ..Second::default()
            },
            latencies: is_open.then(histogram_of_second),
        });
        moment.second.operations += report.operations;
        moment.second.failures += report.failures;
        moment.second.bytes += report.bytes;
        if let Some(latencies) = &mut moment.latencies {
            let more = report.histogram.decode_of(SECOND_DIGITS)?;
            latencies.add(&more).map_err(|error| error.to_string())?;
        }
        self.close_old();
        Ok(())
    }

    /// Closes the oldest seconds if too many are open.
    fn close_old(&mut self) {
        let mut newest = self.seconds.range(self.open_from..).rev().map(|(index, _)| *index);
        let Some(oldest_open) = newest.nth(SECONDS_OPEN_MAX - 1) else {
            return;
        };
        for moment in self
            .seconds
            .range_mut(self.open_from..oldest_open)
            .map(|(_, moment)| moment)
        {
            moment.second = moment.summed();
            moment.latencies = None;
        }
        self.open_from = oldest_open;
    }

    /// The outcome of all reports. `seconds` is the end of the last span.
    pub(super) fn finish(self) -> RunOutcome {
        let started = self.started_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let (kinds, _) = self.totals.finish();
        let workers = self.workers.into_values().map(|(worker, totals)| {
            let (kinds, send_lag) = totals.finish();
            WorkerOutcome {
                kinds,
                send_lag,
                ..worker
            }
        });
        let series = self.seconds.values().map(Moment::summed);
        RunOutcome {
            started_at: started.unwrap_or_default().as_secs_f64(),
            seconds: self.last_span_at.unwrap_or(0.0),
            kinds,
            workers: workers.collect(),
            series: series.collect(),
            verdict: self.verdict,
            events: self.events,
            uncertain: self.uncertain,
            ..RunOutcome::default()
        }
    }
}

impl Moment {
    /// The second with the percentiles of its latencies.
    fn summed(&self) -> Second {
        let mut second = self.second.clone();
        if let Some(latencies) = &self.latencies {
            second.p50_micros = latencies.value_at_quantile(0.5);
            second.p99_micros = latencies.value_at_quantile(0.99);
            second.max_micros = latencies.max();
        }
        second
    }
}

/// Whether anything was done since the report before.
pub(super) fn has_moved(report: &Report) -> bool {
    report.seconds.iter().any(|s| s.operations > 0)
        || report
            .increment
            .kinds
            .iter()
            .any(|k| k.operations > 0 || k.rows > 0 || k.bytes > 0)
        || !report.done.is_empty()
}

/// How a run ended, with every cause if it failed.
pub(super) fn ending(mut causes: Vec<String>, outcome: &RunOutcome, disrupted: bool) -> Ending {
    // In an experiment that kills a server, failures are the subject: they are reported, and fail nothing.
    for (text, count) in outcome.kinds.iter().flat_map(|k| &k.failures).filter(|_| !disrupted) {
        causes.push(format!("{count} operations failed: {text}"));
    }
    let verdict = &outcome.verdict;
    let found = [
        (verdict.missing, "rows missing"),
        (verdict.unexpected, "rows that should not be there"),
        (verdict.wrong, "wrong values"),
        (verdict.stale, STALE_READS),
    ];
    for (count, what) in found.into_iter().filter(|(count, _)| *count > 0) {
        causes.push(format!("{count} {what}"));
    }
    if causes.is_empty() {
        Ending::Passed
    } else {
        Ending::Failed(causes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::EncodedHistogram;

    fn second(index: u32, micros: u64) -> SecondReport {
        let mut histogram = histogram_of_second();
        histogram.record(micros).unwrap();
        SecondReport {
            index,
            operations: 1,
            histogram: EncodedHistogram::encode(&histogram),
            ..SecondReport::default()
        }
    }

    fn report(seconds: Vec<SecondReport>) -> Report {
        Report {
            seconds,
            ..Report::default()
        }
    }

    #[test]
    fn latencies_of_a_second_are_those_of_all_workers() {
        let mut sums = Sums::new();
        sums.add(0, report(vec![second(0, 100)]));
        sums.add(1, report(vec![second(0, 900)]));
        let last = sums.last_second().unwrap();
        assert_eq!((last.operations, last.p50_micros, last.max_micros / 10), (2, 100, 90));
        let series = sums.finish().series;
        assert_eq!((series.len(), series[0].p99_micros / 10), (1, 90));
    }

    #[test]
    fn seconds_of_a_long_run_are_closed_and_keep_their_percentiles() {
        let mut sums = Sums::new();
        for index in 0..2 * SECONDS_OPEN_MAX as u32 {
            sums.add(0, report(vec![second(index, 100)]));
        }
        let open = sums.seconds.values().filter(|moment| moment.latencies.is_some());
        assert_eq!(open.count(), SECONDS_OPEN_MAX);
        // Too late for its latency, but its operation counts.
        sums.add(1, report(vec![second(0, 5_000)]));
        let series = sums.finish().series;
        assert!(series.iter().all(|second| second.p99_micros == 100));
        assert_eq!((series[0].operations, series[1].operations), (2, 1));
    }

    #[test]
    fn latencies_that_cannot_be_read_are_an_event() {
        let mut damaged = second(3, 100);
        damaged.histogram = EncodedHistogram("strange".into());
        let mut sums = Sums::new();
        sums.add(7, report(vec![damaged]));
        let outcome = sums.finish();
        assert!(outcome.events[0].text.contains("worker 7"), "{:?}", outcome.events);
        assert_eq!(outcome.series[0].operations, 1);
    }
}
