//! Instruments of admission count delayed and refused writes. They also show the measurements behind these decisions.

use stele_env::metrics::{Histogram, IntCounter, IntGauge, Metrics};

/// Part of the server's.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    /// Writes refused because the disk is full.
    pub refused_disk: IntCounter,
    /// Writes refused because their tablet cannot be flushed.
    pub refused_unflushable: IntCounter,
    /// Writes refused because memory stayed full.
    pub refused_memory: IntCounter,
    /// Writes that waited for memory.
    pub delayed_memory: IntCounter,
    /// Writes that were stopped because memtables had outgrown their share.
    pub stopped_memory: IntCounter,
    /// Writes slowed for compactions.
    pub delayed_compaction: IntCounter,
    /// How long writes were held up for either.
    pub delayed_seconds: Histogram,
    /// Free bytes of the device.
    pub free_bytes: IntGauge,
    /// How fast flushes free memtables, as measured.
    pub flush_rate_bytes_per_second: IntGauge,
    /// How many bytes of writes merges make good for, as measured.
    pub compaction_throughput_bytes_per_second: IntGauge,
    /// How far merges are behind in the tablet where they are furthest, in thousandths.
    pub compaction_pressure: IntGauge,
}

impl AdmissionMetrics {
    /// Registers the instruments.
    pub fn new(m: &Metrics) -> Self {
        AdmissionMetrics {
            refused_disk: m.counter(
                "stele_writes_refused_disk_total",
                "Writes refused because the disk is full.",
            ),
            refused_unflushable: m.counter(
                "stele_writes_refused_unflushable_total",
                "Writes refused because their tablet cannot be flushed and log or memory keep too much for it.",
            ),
            refused_memory: m.counter(
                "stele_writes_refused_memory_total",
                "Writes refused because memtables stayed full.",
            ),
            delayed_memory: m.counter(
                "stele_writes_delayed_memory_total",
                "Writes that waited for memtable memory.",
            ),
            stopped_memory: m.counter(
                "stele_writes_stopped_memory_total",
                "Writes stopped until memtables were freed; zero where slowing them suffices.",
            ),
            delayed_compaction: m.counter(
                "stele_writes_delayed_compaction_total",
                "Writes slowed because compactions do not keep up.",
            ),
            delayed_seconds: m.latency(
                "stele_writes_delayed_seconds",
                "How long writes were held up for memory or compactions.",
            ),
            free_bytes: m.gauge(
                "stele_storage_free_bytes",
                "Bytes that can still be written to the data root.",
            ),
            flush_rate_bytes_per_second: m.gauge(
                "stele_flush_rate_bytes_per_second",
                "How fast flushes free memtables, as measured.",
            ),
            compaction_throughput_bytes_per_second: m.gauge(
                "stele_compaction_throughput_bytes_per_second",
                "How fast writes may come for merges to keep up, as measured.",
            ),
            compaction_pressure: m.gauge(
                "stele_compaction_pressure_thousandths",
                "How far merges are behind, in runs or in space, in the tablet where they are furthest; writes to it are slowed above 0.",
            ),
        }
    }
}
