//! Instruments of HDFS. All users of a cluster share the capacity for NameNode calls.

use stele_env::metrics::{IntCounter, Metrics};

/// Counts operations by kind; made once per registry.
#[derive(Clone, Debug)]
pub struct HdfsMetrics {
    pub(crate) creates: IntCounter,
    pub(crate) closes: IntCounter,
    pub(crate) syncs: IntCounter,
    pub(crate) opens: IntCounter,
    pub(crate) reads: IntCounter,
    pub(crate) looks: IntCounter,
    pub(crate) lists: IntCounter,
    pub(crate) renames: IntCounter,
    pub(crate) deletes: IntCounter,
    pub(crate) directories: IntCounter,
    pub(crate) recoveries: IntCounter,
    pub(crate) retries: IntCounter,
    pub(crate) chunk_hits: IntCounter,
    pub(crate) chunk_misses: IntCounter,
}

impl HdfsMetrics {
    /// Registers the instruments.
    pub fn new(metrics: &Metrics) -> Self {
        let operations = metrics.counters(
            "stele_hdfs_operations_total",
            "Operations on HDFS, repeated ones included; a listing counts once for each directory.",
            &["kind"],
        );
        let chunks = metrics.counters(
            "stele_hdfs_chunks_total",
            "Chunks of files that were read, by whether they were in memory or on the local disk.",
            &["found"],
        );
        let kind = |name: &str| operations.with_label_values(&[name]);
        HdfsMetrics {
            creates: kind("create"),
            closes: kind("close"),
            syncs: kind("sync"),
            opens: kind("open"),
            reads: kind("read"),
            looks: kind("look"),
            lists: kind("list"),
            renames: kind("rename"),
            deletes: kind("delete"),
            directories: kind("directory"),
            recoveries: kind("lease recovery"),
            retries: metrics.counter(
                "stele_hdfs_retries_total",
                "Operations on HDFS that failed and were repeated.",
            ),
            chunk_hits: chunks.with_label_values(&["cache"]),
            chunk_misses: chunks.with_label_values(&["cluster"]),
        }
    }
}

impl Default for HdfsMetrics {
    /// Instruments that are not exposed.
    fn default() -> Self {
        Self::new(&Metrics::new())
    }
}
