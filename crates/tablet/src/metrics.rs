//! Instruments of the tablets of a server.

use crate::progress::Moved;
use stele_env::metrics::{Histogram, IntCounter, IntGauge, Metrics};

/// Shared by all tablets of a server.
#[derive(Clone, Debug)]
pub struct TabletMetrics {
    /// Tablets being served.
    pub open_tablets: IntGauge,
    /// Flushes done.
    pub flushes: IntCounter,
    /// Bytes of sstables they wrote.
    pub flush_bytes: IntCounter,
    /// Their duration.
    pub flush_seconds: Histogram,
    /// Compactions done.
    pub compactions: IntCounter,
    /// Of these, begun while another of the same tablet ran.
    pub concurrent_compactions: IntCounter,
    /// Bytes of sstables they read.
    pub compaction_read_bytes: IntCounter,
    /// Bytes of sstables they wrote.
    pub compaction_written_bytes: IntCounter,
    /// Their duration.
    pub compaction_seconds: Histogram,
    /// Bulk loads done.
    pub loads: IntCounter,
    /// Bytes of files they wrote.
    pub load_bytes: IntCounter,
    /// Request tokens forgotten before their time.
    pub tokens_forgotten: IntCounter,
    /// Bytes moved, the input of the pacing of writers.
    pub moved: Moved,
}

impl TabletMetrics {
    /// Registers the instruments.
    pub fn new(m: &Metrics) -> Self {
        TabletMetrics {
            open_tablets: m.gauge("stele_tablets", "Tablets being served."),
            flushes: m.counter("stele_tablet_flushes_total", "Memtable flushes."),
            flush_bytes: m.counter(
                "stele_tablet_flush_bytes_total",
                "Bytes of sstables written by flushes.",
            ),
            flush_seconds: m.latency("stele_tablet_flush_seconds", "Duration of a flush."),
            compactions: m.counter("stele_tablet_compactions_total", "Merging and major compactions."),
            concurrent_compactions: m.counter(
                "stele_tablet_concurrent_compactions_total",
                "Compactions begun while another of the same tablet ran.",
            ),
            compaction_read_bytes: m.counter(
                "stele_tablet_compaction_read_bytes_total",
                "Bytes of sstables read by compactions.",
            ),
            compaction_written_bytes: m.counter(
                "stele_tablet_compaction_written_bytes_total",
                "Bytes of sstables written by compactions.",
            ),
            compaction_seconds: m.latency("stele_tablet_compaction_seconds", "Duration of a compaction."),
            loads: m.counter("stele_tablet_bulk_loads_total", "Bulk loads into a tablet."),
            load_bytes: m.counter(
                "stele_tablet_bulk_load_bytes_total",
                "Bytes of sstables and value files written by bulk loads.",
            ),
            tokens_forgotten: m.counter(
                "stele_request_tokens_forgotten_total",
                "Request tokens forgotten before their time, for want of memory.",
            ),
            moved: Moved::default(),
        }
    }
}
