//! Gauges of a server: figures that are read from its parts now and then.

use crate::admission::Admission;
use crate::governor::reserved_below;
use crate::log::CommitLog;
use crate::metrics::ServerMetrics;
use crate::parts::Parts;
use crate::row_cache::RowCache;
use crate::tablets::Tablets;
use crate::work::Compactions;
use std::sync::Arc;
use stele_memory::Pool;
use stele_sstable::Cache;
use stele_tablet::{FileRegistry, MemoryAccount};

/// Reads the figures and shows them.
pub(crate) struct Gauges {
    metrics: ServerMetrics,
    memory: MemoryAccount,
    files: Arc<FileRegistry>,
    cache: Arc<Cache>,
    row_cache: Arc<RowCache>,
    tablets: Arc<Tablets>,
    compactions: Arc<Compactions>,
    admission: Arc<Admission>,
    pool: Pool,
    log: Arc<CommitLog>,
}

impl Gauges {
    /// Of these parts.
    pub(crate) fn new(parts: &Parts) -> Self {
        Gauges {
            metrics: parts.metrics.clone(),
            memory: parts.context.memory.clone(),
            files: parts.context.files.clone(),
            cache: parts.cache.clone(),
            row_cache: parts.row_cache.clone(),
            tablets: parts.tablets.clone(),
            compactions: parts.compactions.clone(),
            admission: parts.admission.clone(),
            pool: parts.options.pool.clone(),
            log: parts.log.clone(),
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn update(&self) {
        self.update_caches();
        self.update_memory();
        self.update_tablets();
    }

    fn update_caches(&self) {
        let cache = self.cache.stats();
        self.metrics.cache_bytes.set(gauge(cache.used_bytes));
        self.metrics.cache_kept_bytes.set(gauge(cache.kept_bytes));
        self.metrics.cache_hits.set(gauge(cache.hits));
        self.metrics.cache_misses.set(gauge(cache.misses));
        self.metrics.cache_turned_away.set(gauge(cache.turned_away));
        let rows = self.row_cache.stats();
        self.metrics.row_cache_bytes.set(gauge(rows.used_bytes));
        self.metrics.row_cache_hits.set(gauge(rows.hits));
        self.metrics.row_cache_misses.set(gauge(rows.misses));
    }

    fn update_memory(&self) {
        let (open_files, pinned) = self.files.open_files();
        self.metrics.memtable_bytes.set(gauge(self.memory.bytes()));
        self.metrics.obsolete_bytes.set(gauge(self.files.obsolete_bytes()));
        self.metrics.pinned_bytes.set(gauge(pinned as u64));
        let filters = self.files.bloom_memory();
        for (place, bytes) in [("memory", filters.taken()), ("left_out", filters.left_out())] {
            self.metrics
                .filter_bytes
                .with_label_values(&[place])
                .set(gauge(bytes as u64));
        }
        let spare = ("spare", self.memory.spare_bytes());
        let reserved = reserved_below(&self.pool);
        for (of, bytes) in std::iter::once(spare).chain(reserved) {
            self.metrics.held_bytes.with_label_values(&[of]).set(gauge(bytes));
        }
        self.metrics.open_files.set(gauge(open_files as u64));
    }

    fn update_tablets(&self) {
        let served = self.tablets.all();
        let debt = served.iter().map(|served| served.tablet.compaction_debt()).sum();
        self.metrics.compaction_debt_bytes.set(gauge(debt));
        let compaction_pressure = served
            .iter()
            .map(|served| served.tablet.write_load().compaction_pressure)
            .max();
        self.metrics
            .admission
            .compaction_pressure
            .set(gauge(compaction_pressure.unwrap_or(0)));
        self.metrics
            .running_compactions
            .set(gauge(self.compactions.running() as u64));
        self.metrics
            .damaged_tablets
            .set(gauge(self.tablets.damaged_count() as u64));
        let failing = self.admission.unflushable.tablets();
        self.metrics
            .log_unflushable_bytes
            .set(gauge(self.log.bytes_kept(&failing)));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
