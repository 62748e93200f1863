//! The metrics of the commit log.

use stele_env::metrics::{Histogram, IntCounter, IntGauge, Metrics};

/// Shared by all streams of a server.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    pub(crate) bytes: IntCounter,
    pub(crate) records: IntCounter,
    pub(crate) groups: IntCounter,
    pub(crate) inline_groups: IntCounter,
    pub(crate) failures: IntCounter,
    pub(crate) sync_seconds: Histogram,
    pub(crate) retained_bytes: IntGauge,
}

impl LogMetrics {
    /// Registers the instruments.
    pub fn new(metrics: &Metrics) -> Self {
        LogMetrics {
            bytes: metrics.counter(
                "stele_commitlog_written_bytes_total",
                "Bytes appended to the commit log.",
            ),
            records: metrics.counter("stele_commitlog_records_total", "Records appended to the commit log."),
            groups: metrics.counter("stele_commitlog_groups_total", "Group commits."),
            inline_groups: metrics.counter(
                "stele_commitlog_inline_groups_total",
                "Group commits made by a writer itself and not by the stream's task.",
            ),
            failures: metrics.counter(
                "stele_commitlog_failures_total",
                "Group commits that failed in the storage.",
            ),
            sync_seconds: metrics.latency("stele_commitlog_sync_seconds", "Duration of a commit log sync."),
            retained_bytes: metrics.gauge(
                "stele_commitlog_retained_bytes",
                "Bytes of commit log kept for recovery.",
            ),
        }
    }
}
