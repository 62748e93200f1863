//! The metrics of an archive of logs.

use stele_env::metrics::{IntCounter, IntGauge, Metrics};

/// Instruments of an archiver.
#[derive(Clone, Debug)]
pub struct ArchiveMetrics {
    pub(super) lag_seconds: IntGauge,
    pub(super) tables_lag_seconds: IntGauge,
    pub(super) lag_bytes: IntGauge,
    pub(super) failures: IntCounter,
    pub(super) bytes: IntCounter,
    pub(super) parts: IntCounter,
    pub(super) gaps: IntCounter,
}

impl ArchiveMetrics {
    /// Registers the instruments.
    pub fn new(metrics: &Metrics) -> Self {
        ArchiveMetrics {
            lag_seconds: metrics.gauge(
                "stele_log_archive_lag_seconds",
                "Age of the newest moment that the archive of the log has.",
            ),
            tables_lag_seconds: metrics.gauge(
                "stele_log_archive_tables_lag_seconds",
                "Age of the newest moment that the archive of the tables has, on the leader of a cluster.",
            ),
            lag_bytes: metrics.gauge(
                "stele_log_archive_lag_bytes",
                "Bytes of commit log that the archive does not have yet.",
            ),
            failures: metrics.counter(
                "stele_log_archive_failures_total",
                "Rounds of the archiver that failed.",
            ),
            bytes: metrics.counter(
                "stele_log_archive_bytes_total",
                "Bytes of commit log that were sent to the archive.",
            ),
            parts: metrics.counter(
                "stele_log_archive_parts_total",
                "Parts that were written to the archive.",
            ),
            gaps: metrics.counter(
                "stele_log_archive_ranges_total",
                "Ranges that the archive has begun: the first one, and one after each gap.",
            ),
        }
    }
    /// Those of the archiver of the tables of a cluster, besides the one of the log.
    pub fn of_tables(&self) -> Self {
        ArchiveMetrics {
            lag_seconds: self.tables_lag_seconds.clone(),
            failures: self.failures.clone(),
            gaps: self.gaps.clone(),
            ..ArchiveMetrics::new(&Metrics::new())
        }
    }
}
