//! Instruments of a tablet server.

use crate::governor::GovernorMetrics;
use stele_env::metrics::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Metrics};

/// Shared by the parts of one server.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// Bytes of memtables.
    pub memtable_bytes: IntGauge,
    /// Bytes of cached blocks.
    pub cache_bytes: IntGauge,
    /// Bytes of them that are kept for groups in memory.
    pub cache_kept_bytes: IntGauge,
    /// Lookups that found their block.
    pub cache_hits: IntGauge,
    /// Lookups that did not.
    pub cache_misses: IntGauge,
    /// Bytes of cached rows.
    pub row_cache_bytes: IntGauge,
    /// Reads of single rows that were answered from the cache.
    pub row_cache_hits: IntGauge,
    /// Reads that could have been.
    pub row_cache_misses: IntGauge,
    /// Bytes of indexes and filters of open files.
    pub pinned_bytes: IntGauge,
    /// Bytes that are held for a while and not divided, by what they are held for.
    pub held_bytes: IntGaugeVec,
    /// Open sstables.
    pub open_files: IntGauge,
    /// Free bytes of the medium.
    pub free_bytes: IntGauge,
    /// Bytes of obsolete files.
    pub obsolete_bytes: IntGauge,
    /// Duration of the last recovery.
    pub recovery_millis: IntGauge,
    /// Writes refused because the disk is full.
    pub refused_disk: IntCounter,
    /// Writes refused because their tablet cannot be flushed.
    pub refused_log: IntCounter,
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
    /// How fast flushes free memtables, as measured.
    pub drain_bytes_per_second: IntGauge,
    /// How many bytes of writes merges make good for, as measured.
    pub merge_yield_bytes_per_second: IntGauge,
    /// How far merges are behind in the tablet where they are furthest, in thousandths.
    pub crowding: IntGauge,
    /// Failed flushes and compactions.
    pub maintenance_failures: IntCounter,
    /// How memory is divided.
    pub governor: GovernorMetrics,
    /// Bytes that compactions are behind.
    pub compaction_debt_bytes: IntGauge,
    /// Compactions running.
    pub running_compactions: IntGauge,
    /// Flushes running.
    pub running_flushes: IntGauge,
    /// Tablets split.
    pub splits: IntCounter,
    /// Reads that met damage, by file: as many labels as there are damaged files.
    pub corruption: IntCounterVec,
    /// Tablets whose manifest cannot be read.
    pub damaged_tablets: IntGauge,
    /// Bytes of log kept for tablets that are damaged.
    pub log_stuck_bytes: IntGauge,
}

impl ServerMetrics {
    /// Registers the instruments.
    pub fn new(m: &Metrics) -> Self {
        ServerMetrics {
            memtable_bytes: m.gauge("stele_memtable_bytes", "Bytes of memtables."),
            cache_bytes: m.gauge("stele_block_cache_bytes", "Bytes of cached blocks."),
            cache_kept_bytes: m.gauge(
                "stele_block_cache_kept_bytes",
                "Bytes of cached blocks of locality groups that are to be in memory.",
            ),
            cache_hits: m.gauge("stele_block_cache_hits", "Block lookups that found their block."),
            cache_misses: m.gauge("stele_block_cache_misses", "Block lookups that did not."),
            row_cache_bytes: m.gauge("stele_row_cache_bytes", "Bytes of cached rows."),
            row_cache_hits: m.gauge(
                "stele_row_cache_hits",
                "Reads of single rows answered from the row cache.",
            ),
            row_cache_misses: m.gauge(
                "stele_row_cache_misses",
                "Reads of single rows that the row cache might have answered.",
            ),
            pinned_bytes: m.gauge("stele_pinned_bytes", "Bytes of indexes and filters of open sstables."),
            held_bytes: m.gauges(
                "stele_memory_held_bytes",
                "Bytes that are held for a while and not divided, by what for: requests, batches, answers, values on their way \
                 to readers, rows that are read for writes.",
                &["of"],
            ),
            open_files: m.gauge("stele_open_sstables", "Open sstables."),
            free_bytes: m.gauge(
                "stele_storage_free_bytes",
                "Bytes that can still be written to the data root.",
            ),
            obsolete_bytes: m.gauge(
                "stele_obsolete_bytes",
                "Bytes of sstables and value files that nothing refers to, and that are not deleted yet.",
            ),
            recovery_millis: m.gauge("stele_recovery_milliseconds", "Duration of the recovery at start."),
            refused_disk: m.counter(
                "stele_writes_refused_disk_total",
                "Writes refused because the disk is full.",
            ),
            refused_log: m.counter(
                "stele_writes_refused_log_total",
                "Writes refused because their tablet cannot be flushed and the log keeps too much for it.",
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
            drain_bytes_per_second: m.gauge(
                "stele_flush_drain_bytes_per_second",
                "How fast flushes free memtables, as measured.",
            ),
            merge_yield_bytes_per_second: m.gauge(
                "stele_merge_yield_bytes_per_second",
                "How fast writes may come for merges to keep up, as measured.",
            ),
            crowding: m.gauge(
                "stele_crowding_thousandths",
                "How far merges are behind, in runs or in space, in the tablet where they are furthest; writes to it are slowed above 0.",
            ),
            maintenance_failures: m.counter(
                "stele_maintenance_failures_total",
                "Flushes and compactions that failed.",
            ),
            governor: GovernorMetrics::new(m),
            compaction_debt_bytes: m.gauge(
                "stele_compaction_debt_bytes",
                "Bytes that compactions have to read until none is due.",
            ),
            running_compactions: m.gauge("stele_running_compactions", "Compactions running."),
            running_flushes: m.gauge("stele_running_flushes", "Flushes running."),
            splits: m.counter("stele_tablet_splits_total", "Tablets split."),
            corruption: m.counters(
                "stele_corruption_total",
                "Reads that met damage, by damaged sstable.",
                &["file"],
            ),
            damaged_tablets: m.gauge(
                "stele_damaged_tablets",
                "Tablets that are not served because their manifest cannot be read.",
            ),
            log_stuck_bytes: m.gauge(
                "stele_log_stuck_bytes",
                "Bytes of commit log kept for tablets that are damaged, or whose last flush failed.",
            ),
        }
    }
}
