//! Instruments of a tablet server.

use crate::admission::AdmissionMetrics;
use crate::waits::WriteWaits;
use stele_env::metrics::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Metrics};

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
    /// Blocks that the block cache did not keep.
    pub cache_turned_away: IntGauge,
    /// Bytes of cached rows.
    pub row_cache_bytes: IntGauge,
    /// Reads of single rows that were answered from the cache.
    pub row_cache_hits: IntGauge,
    /// Reads that could have been.
    pub row_cache_misses: IntGauge,
    /// Bytes of indexes and filters of open files.
    pub pinned_bytes: IntGauge,
    /// Bytes of bloom filters of open files, by where they are.
    pub filter_bytes: IntGaugeVec,
    /// Bytes that are reserved for a while and not divided, by purpose.
    pub held_bytes: IntGaugeVec,
    /// Open sstables.
    pub open_files: IntGauge,
    /// Bytes of obsolete files.
    pub obsolete_bytes: IntGauge,
    /// Duration of the last recovery.
    pub recovery_millis: IntGauge,
    /// How writes are held up and refused.
    pub admission: AdmissionMetrics,
    /// How long, and by what.
    pub waits: WriteWaits,
    /// Failed flushes and compactions.
    pub maintenance_failures: IntCounter,
    /// Readers that had to let go of memtables.
    pub pins_released: IntCounter,
    /// Bytes that compactions are behind.
    pub compaction_debt_bytes: IntGauge,
    /// Compactions running.
    pub running_compactions: IntGauge,
    /// Flushes running.
    pub running_flushes: IntGauge,
    /// Tablets split.
    pub splits: IntCounter,
    /// Merges of neighbouring tablets.
    pub merges: IntCounter,
    /// Requests that their tokens showed to be repetitions.
    pub repeated: IntCounter,
    /// Reads that met damage, by file: as many labels as there are damaged files.
    pub corruption: IntCounterVec,
    /// Tablets whose manifest cannot be read.
    pub damaged_tablets: IntGauge,
    /// Bytes of log kept for tablets that are damaged.
    pub log_unflushable_bytes: IntGauge,
}

impl ServerMetrics {
    /// Registers the instruments.
    pub fn new(m: &Metrics) -> Self {
        ServerMetrics {
            memtable_bytes: m.gauge("stele_memtable_bytes", "Bytes of memtables."),
            cache_bytes: m.gauge("stele_block_cache_bytes", "Bytes of cached blocks."),
            cache_kept_bytes: m.gauge(
                "stele_block_cache_retained_bytes",
                "Bytes of cached blocks of locality groups that are to be in memory.",
            ),
            cache_hits: m.gauge("stele_block_cache_hits", "Block lookups that found their block."),
            cache_misses: m.gauge("stele_block_cache_misses", "Block lookups that did not."),
            cache_turned_away: m.gauge(
                "stele_block_cache_rejected",
                "Blocks that were read and not kept, since hardly any new one is asked for again.",
            ),
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
            filter_bytes: m.gauges(
                "stele_filter_bytes",
                "Bytes of bloom filters of open sstables, in memory or left out for lack of memory.",
                &["place"],
            ),
            held_bytes: m.gauges(
                "stele_memory_reserved_bytes",
                "Bytes that consumers reserve and the governor does not divide: batches for the log, values for readers, rows that writes \
                 read, readahead of scans, requests to other servers and rows for them, samples of keys, spare memory of memtables.",
                &["of"],
            ),
            open_files: m.gauge("stele_open_sstables", "Open sstables."),
            obsolete_bytes: m.gauge(
                "stele_obsolete_bytes",
                "Bytes of sstables and value files that nothing refers to, and that are not deleted yet.",
            ),
            recovery_millis: m.gauge("stele_recovery_milliseconds", "Duration of the recovery at start."),
            admission: AdmissionMetrics::new(m),
            waits: WriteWaits::new(m),
            maintenance_failures: m.counter(
                "stele_maintenance_failures_total",
                "Flushes and compactions that failed.",
            ),
            pins_released: m.counter(
                "stele_pins_released_total",
                "Readers within a large row that had to let go of flushed memtables, and begin it again, because memory was short.",
            ),
            compaction_debt_bytes: m.gauge(
                "stele_compaction_debt_bytes",
                "Bytes that compactions have to read until none is due.",
            ),
            running_compactions: m.gauge("stele_running_compactions", "Compactions running."),
            running_flushes: m.gauge("stele_running_flushes", "Flushes running."),
            splits: m.counter("stele_tablet_splits_total", "Tablets split."),
            repeated: m.counter(
                "stele_repeated_requests_total",
                "Requests that had taken effect before, as their tokens showed.",
            ),
            merges: m.counter("stele_tablet_merges_total", "Merges of neighbouring tablets."),
            corruption: m.counters(
                "stele_corruption_total",
                "Reads that met damage, by damaged sstable.",
                &["file"],
            ),
            damaged_tablets: m.gauge(
                "stele_damaged_tablets",
                "Tablets that are not served because their manifest cannot be read.",
            ),
            log_unflushable_bytes: m.gauge(
                "stele_log_unflushable_bytes",
                "Bytes of commit log kept for tablets that are damaged, or whose last flush failed.",
            ),
        }
    }
}
