//! Results of a run, which workers send, the dispatcher adds up, and the bundle holds.
//!
//! Latencies are HDR histograms of microseconds with three significant digits, in V2 + DEFLATE, base64, which any HDR
//! tool reads. Means and deviations are of the exact values, not of the buckets.

use crate::plan::{Point, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

pub mod histogram;
mod verdict;

pub use verdict::Verdict;

/// Statistics of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KindOutcome {
    /// Its name.
    pub name: String,
    /// Operations that succeeded.
    pub operations: u64,
    /// Steps: calls of the client. Differs from `operations` where a step stands for many (scans).
    pub steps: u64,
    /// Rows read or written.
    pub rows: u64,
    /// Key and value bytes moved.
    pub bytes: u64,
    /// Failures by kind and text (at most [`FAILURE_TEXTS_MAX`] texts).
    pub failures: BTreeMap<String, u64>,
    /// Sum of latencies, µs.
    pub micros_sum: f64,
    /// Sum of their squares, µs².
    pub micros_square_sum: f64,
    /// Largest, µs.
    pub micros_max: u64,
    /// Latencies.
    pub histogram: EncodedHistogram,
    /// Time that failed calls took. They are in no other figure.
    #[serde(default, skip_serializing_if = "EncodedHistogram::is_empty")]
    pub failed: EncodedHistogram,
}

/// Different failure texts that are counted separately in one kind. Further ones are counted under `other`.
pub const FAILURE_TEXTS_MAX: usize = 16;

/// An HDR histogram of µs as base64 of V2 + DEFLATE; empty text when nothing was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EncodedHistogram(pub String);

/// One second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the run's start (end of the interval).
    pub at: f64,
    /// Operations that succeeded in it.
    pub operations: u64,
    /// Operations that failed.
    pub failures: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Median latency, µs.
    pub p50_micros: u64,
    /// 99th percentile, µs.
    pub p99_micros: u64,
    /// Largest, µs.
    pub max_micros: u64,
}

/// Results of one worker in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerOutcome {
    /// Its index.
    pub worker: u32,
    /// Host and process.
    pub place: String,
    /// Its statistics by kind.
    pub kinds: Vec<KindOutcome>,
    /// Seconds its clients were busy, summed over clients.
    pub client_seconds: f64,
    /// CPU seconds of the worker process during the run.
    pub cpu_seconds: f64,
    /// Its generator threads. Zero in bundles of earlier versions, which did not record them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads: u32,
    /// Requests that drivers repeated.
    pub retries: u64,
    /// Open loop only: delay of operations that were sent late because of the generator, not the server.
    pub send_lag: EncodedHistogram,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Everything was done and every response was right.
    #[default]
    Passed,
    /// The run failed, for these causes. Its figures are shown as failed, never as results.
    Failed(Vec<String>),
    /// The run was not started: the protocol has no such operation, or an earlier stage failed.
    Skipped(String),
}

/// Results of one run on one target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Experiment's id.
    pub experiment: String,
    /// Run's label.
    pub label: String,
    /// Its role.
    pub role: Role,
    /// Its place in the chart.
    pub point: Option<Point>,
    /// Index into [`crate::bundle::Bundle::parties`].
    pub party: usize,
    /// 1 for the first time that the experiment was run on this target.
    pub repeat: u32,
    /// How it ended.
    pub ending: Ending,
    /// Wall-clock start, seconds since 1970.
    pub started_at: f64,
    /// Seconds measured: warm-up not included.
    pub seconds: f64,
    /// Number of its clients.
    pub clients: u32,
    /// Each worker's part.
    pub workers: Vec<WorkerOutcome>,
    /// All workers' statistics by kind.
    pub kinds: Vec<KindOutcome>,
    /// Second by second, all workers.
    pub series: Vec<Second>,
    /// Errors found in responses.
    pub verdict: Verdict,
    /// Rows a check should have found, and found.
    pub expected_rows: Option<u64>,
    /// See `expected_rows`.
    pub returned_rows: Option<u64>,
    /// Rows that a check may find in addition: operations failed that may have written them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsure_rows: u64,
    /// Why the target did not flush the run's table, though the plan asks for it. Its reads then come from memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unflushed: Option<String>,
    /// Share of operations on the busiest shares of keys, measured.
    pub skew: Option<Skew>,
    /// Events: a worker died, ranges were given out again, a server was killed.
    pub events: Vec<Event>,
    /// CPU seconds of each server process during the measured time.
    pub server_cpu: BTreeMap<String, f64>,
    /// Spans of operations that were done, which a later check must find. Not part of the bundle.
    #[serde(skip)]
    pub done: Vec<Range<u64>>,
    /// Spans in which an operation failed, which a later check may or may not find. Not part of the bundle.
    #[serde(skip)]
    pub uncertain: Vec<Range<u64>>,
    /// Spans that a worker had when it died or the run was broken off. Not part of the bundle.
    #[serde(skip)]
    pub repeated: Vec<Range<u64>>,
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// The cause of a failure, after its count. A rating has its own limit for it.
pub const STALE_READS: &str = "stale reads";

impl RunOutcome {
    /// Whether no fault was found but reads that were stale, if any.
    pub fn passed_but_for_stale_reads(&self) -> bool {
        let stale = format!("{} {STALE_READS}", self.verdict.stale);
        match &self.ending {
            Ending::Passed => true,
            Ending::Failed(causes) => *causes == [stale],
            Ending::Skipped(_) => false,
        }
    }

    /// Whether a check found as many rows as it should. Other runs have nothing to find.
    pub fn has_expected_rows(&self) -> bool {
        match (self.expected_rows, self.returned_rows) {
            (Some(expected), Some(returned)) => {
                (expected..=expected.saturating_add(self.unsure_rows)).contains(&returned)
            }
            (expected, _) => expected.is_none(),
        }
    }
}

/// Skew of the keys, measured on the keys that were really used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// Share of operations on the busiest 1 % of all keys.
    pub top_1_percent: f64,
    /// … 10 %.
    pub top_10_percent: f64,
    /// … 20 %.
    pub top_20_percent: f64,
    /// Distinct keys touched.
    pub distinct: u64,
    /// Operations counted.
    pub operations: u64,
}

/// An event during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the run's start.
    pub at: f64,
    /// Its description.
    pub text: String,
}
