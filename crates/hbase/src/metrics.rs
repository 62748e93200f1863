//! Metrics of calls.

use std::time::Duration;
use stele_env::metrics::{HistogramVec, IntCounterVec, Metrics};

/// The methods that have labels of their own. Clients choose names, so all others share one.
const METHODS: [&str; 5] = ["Get", "Mutate", "Multi", "Scan", "BulkLoadHFile"];

/// Counters of the calls of all connections.
pub(crate) struct CallMetrics {
    calls: IntCounterVec,
    seconds: HistogramVec,
}

impl CallMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        CallMetrics {
            calls: metrics.counters(
                "stele_hbase_requests_total",
                "Calls of the HBase API by method and outcome.",
                &["method", "outcome"],
            ),
            seconds: metrics.latencies(
                "stele_hbase_request_seconds",
                "Time from the last byte of a call to its response, by method.",
                &["method"],
            ),
        }
    }

    /// Calls that ended.
    pub fn calls(&self) -> u64 {
        let labels = METHODS.iter().chain(&["other"]);
        let of = |label: &&str| ["ok", "failed"].map(|outcome| self.calls.with_label_values(&[label, outcome]).get());
        labels.flat_map(of).sum()
    }

    /// Counts a call that ended.
    pub fn count(&self, method: &[u8], failed: bool, took: Duration) {
        let known = METHODS.iter().find(|known| known.as_bytes() == method);
        let label = known.copied().unwrap_or("other");
        self.calls
            .with_label_values(&[label, if failed { "failed" } else { "ok" }])
            .inc();
        self.seconds.with_label_values(&[label]).observe(took.as_secs_f64());
    }
}
