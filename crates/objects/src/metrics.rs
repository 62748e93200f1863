//! Instruments of an object store. The number of requests determines the bill.

use stele_env::metrics::{IntCounter, IntGauge, Metrics};

/// Counts requests by kind; made once per registry.
#[derive(Clone, Debug)]
pub struct ObjectMetrics {
    pub(crate) puts: IntCounter,
    pub(crate) gets: IntCounter,
    pub(crate) heads: IntCounter,
    pub(crate) lists: IntCounter,
    pub(crate) deletes: IntCounter,
    pub(crate) retries: IntCounter,
    pub(crate) chunk_hits: IntCounter,
    pub(crate) chunk_misses: IntCounter,
    pub(crate) clock_offset: IntGauge,
}

impl ObjectMetrics {
    /// Registers the instruments.
    pub fn new(metrics: &Metrics) -> Self {
        let requests = metrics.counters(
            "stele_objects_requests_total",
            "Requests to the object store, repeated ones included; a listing of several pages counts once.",
            &["kind"],
        );
        let chunks = metrics.counters(
            "stele_objects_chunks_total",
            "Chunks of objects that were read, by whether they were in memory or on the local disk.",
            &["found"],
        );
        ObjectMetrics {
            puts: requests.with_label_values(&["put"]),
            gets: requests.with_label_values(&["get"]),
            heads: requests.with_label_values(&["head"]),
            lists: requests.with_label_values(&["list"]),
            deletes: requests.with_label_values(&["delete"]),
            retries: metrics.counter(
                "stele_objects_retries_total",
                "Requests to the object store that failed and were repeated.",
            ),
            chunk_hits: chunks.with_label_values(&["cache"]),
            chunk_misses: chunks.with_label_values(&["store"]),
            clock_offset: metrics.gauge(
                "stele_objects_clock_offset_seconds",
                "Seconds by which the object store's clock is ahead of this machine's, by the last response.",
            ),
        }
    }
}

impl Default for ObjectMetrics {
    /// Instruments that are not exposed.
    fn default() -> Self {
        Self::new(&Metrics::new())
    }
}
