//! Sums of the workers' reports of one run.

use crate::engine::frames::{self, Report};
use crate::engine::recorder::{Totals, histogram_of_second};
use crate::outcome::Verdict;
use crate::outcome::{Ending, Event, RunOutcome, Second, WorkerOutcome};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most events that are recorded of one run.
const EVENTS_MAX: usize = 1_000;

/// The sums so far.
#[derive(Default)]
pub(super) struct Sums {
    started_at: Option<SystemTime>,
    workers: BTreeMap<u32, (WorkerOutcome, Totals)>,
    totals: Totals,
    seconds: BTreeMap<u32, (Second, Histogram<u64>)>,
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
        self.seconds.values().map(|(second, _)| second.operations).sum()
    }

    /// The last second that a worker has reported.
    pub(super) fn last_second(&self) -> Option<Second> {
        self.seconds.values().next_back().map(|(second, _)| second.clone())
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
        worker.retries += increment.retries;
        for second in report.seconds {
            let (sum, latencies) = self.seconds.entry(second.index).or_insert_with(|| {
                let at = f64::from(second.index) + 1.0;
                (
                    Second {
                        at,
                        ..Second::default()
                    },
                    histogram_of_second(),
                )
            });
            sum.operations += second.operations;
            sum.failures += second.failures;
            sum.bytes += second.bytes;
            if let Ok(decoded) = second.histogram.decode() {
                // Both cover the same range, so no value is cut off.
                let _ = latencies.add(&decoded);
            }
        }
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
        let series = self.seconds.into_values().map(|(second, latencies)| Second {
            p50_micros: latencies.value_at_quantile(0.5),
            p99_micros: latencies.value_at_quantile(0.99),
            max_micros: latencies.max(),
            ..second
        });
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
        (verdict.stale, "stale reads"),
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
