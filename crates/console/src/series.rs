//! The series of the history, each with the metrics that it is made of.
//!
//! All are made of metrics that `/metrics` shows as well, so a console and a Prometheus say the same.

use crate::totals::{Selector, Totals};

/// A series.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Its name in the API.
    pub name: &'static str,
    /// How its values come about.
    pub source: Source,
}

/// The source of a value.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The sum of gauges.
    Gauge(&'static [Selector]),
    /// The sum of counters, by second.
    Rate(&'static [Selector]),
    /// A quantile of histograms between two points, in seconds; nothing if there were no values.
    Quantile(&'static [Selector], f64),
    /// The sum of the values of histograms between two points, by second.
    Spent(&'static [Selector]),
    /// The part that the first have of both; nothing if there was neither.
    Part(&'static [Selector], &'static [Selector]),
}

const fn all(metric: &'static str) -> Selector {
    Selector { metric, label: None }
}

const fn of(metric: &'static str, label: &'static str, values: &'static [&'static str]) -> Selector {
    Selector {
        metric,
        label: Some((label, values, true)),
    }
}

const fn but(metric: &'static str, label: &'static str, values: &'static [&'static str]) -> Selector {
    Selector {
        metric,
        label: Some((label, values, false)),
    }
}

const fn series(name: &'static str, source: Source) -> Series {
    Series { name, source }
}

const BIGTABLE_CALLS: &str = "stele_bigtable_requests_total";
const BIGTABLE_SECONDS: &str = "stele_bigtable_request_seconds";
const HBASE_CALLS: &str = "stele_hbase_requests_total";
const HBASE_SECONDS: &str = "stele_hbase_request_seconds";
const WAITS: &str = "stele_write_wait_seconds";
const BIGTABLE_READS: &[&str] = &["ReadRows", "SampleRowKeys"];
const BIGTABLE_WRITES: &[&str] = &["MutateRow", "MutateRows", "CheckAndMutateRow", "ReadModifyWriteRow"];
const HBASE_READS: &[&str] = &["Get", "Scan"];
const HBASE_WRITES: &[&str] = &["Mutate", "Multi"];
const READS: &[Selector] = &[
    of(BIGTABLE_SECONDS, "method", BIGTABLE_READS),
    of(HBASE_SECONDS, "method", HBASE_READS),
];
const WRITES: &[Selector] = &[
    of(BIGTABLE_SECONDS, "method", BIGTABLE_WRITES),
    of(HBASE_SECONDS, "method", HBASE_WRITES),
];

macro_rules! wait {
    ($name:literal, $cause:literal) => {
        series($name, Source::Spent(&[of(WAITS, "cause", &[$cause])]))
    };
}

/// All series.
pub const SERIES: &[Series] = &[
    series(
        "reads",
        Source::Rate(&[
            of(BIGTABLE_CALLS, "method", BIGTABLE_READS),
            of(HBASE_CALLS, "method", HBASE_READS),
        ]),
    ),
    series(
        "writes",
        Source::Rate(&[
            of(BIGTABLE_CALLS, "method", BIGTABLE_WRITES),
            of(HBASE_CALLS, "method", HBASE_WRITES),
        ]),
    ),
    series(
        "errors",
        Source::Rate(&[
            but(BIGTABLE_CALLS, "code", &["OK", "CANCELLED"]),
            but(HBASE_CALLS, "outcome", &["ok"]),
        ]),
    ),
    series("read_p50", Source::Quantile(READS, 0.5)),
    series("read_p95", Source::Quantile(READS, 0.95)),
    series("read_p99", Source::Quantile(READS, 0.99)),
    series("write_p50", Source::Quantile(WRITES, 0.5)),
    series("write_p95", Source::Quantile(WRITES, 0.95)),
    series("write_p99", Source::Quantile(WRITES, 0.99)),
    series("calls", Source::Gauge(&[all("stele_bigtable_requests_in_flight")])),
    series("connections", Source::Gauge(&[all("stele_connections")])),
    series("memtables", Source::Gauge(&[all("stele_memtable_bytes")])),
    series("blocks", Source::Gauge(&[all("stele_block_cache_bytes")])),
    series("rows", Source::Gauge(&[all("stele_row_cache_bytes")])),
    series("indexes", Source::Gauge(&[all("stele_pinned_bytes")])),
    series(
        "reserved",
        Source::Gauge(&[all("stele_memory_reserved_bytes"), all("stele_bigtable_reserved_bytes")]),
    ),
    series(
        "resident",
        Source::Gauge(&[of("stele_resident_bytes", "kind", &["own"])]),
    ),
    series("log_bytes", Source::Gauge(&[all("stele_commitlog_retained_bytes")])),
    series(
        "log_written",
        Source::Rate(&[all("stele_commitlog_written_bytes_total")]),
    ),
    series(
        "sync_p99",
        Source::Quantile(&[all("stele_commitlog_sync_seconds")], 0.99),
    ),
    series("flushed", Source::Rate(&[all("stele_tablet_flush_bytes_total")])),
    series(
        "compaction_read",
        Source::Rate(&[all("stele_tablet_compaction_read_bytes_total")]),
    ),
    series(
        "compaction_written",
        Source::Rate(&[all("stele_tablet_compaction_written_bytes_total")]),
    ),
    series("debt", Source::Gauge(&[all("stele_compaction_debt_bytes")])),
    series(
        "pressure",
        Source::Gauge(&[all("stele_compaction_pressure_thousandths")]),
    ),
    series("compactions", Source::Gauge(&[all("stele_running_compactions")])),
    series("flushes", Source::Gauge(&[all("stele_running_flushes")])),
    series("free", Source::Gauge(&[all("stele_storage_free_bytes")])),
    series("tablets", Source::Gauge(&[all("stele_tablets")])),
    series("damaged", Source::Gauge(&[all("stele_damaged_tablets")])),
    series(
        "block_hits",
        Source::Part(&[all("stele_block_cache_hits")], &[all("stele_block_cache_misses")]),
    ),
    series(
        "row_hits",
        Source::Part(&[all("stele_row_cache_hits")], &[all("stele_row_cache_misses")]),
    ),
    series(
        "refused",
        Source::Rate(&[
            all("stele_writes_refused_disk_total"),
            all("stele_writes_refused_memory_total"),
            all("stele_writes_refused_unflushable_total"),
        ]),
    ),
    wait!("wait_reservation", "reservation"),
    wait!("wait_memory", "memory"),
    wait!("wait_compaction", "compaction"),
    wait!("wait_stopped", "stopped"),
    wait!("wait_large", "large"),
    wait!("wait_gate", "gate"),
    wait!("wait_latch", "latch"),
    wait!("wait_log_queue", "log-queue"),
    wait!("wait_log", "log"),
    wait!("wait_append", "append"),
    wait!("wait_apply", "apply"),
    wait!("wait_followers", "followers"),
];

impl Series {
    /// The selectors of its source.
    pub fn selectors(&self) -> Vec<Selector> {
        match self.source {
            Source::Gauge(of) | Source::Rate(of) | Source::Quantile(of, _) | Source::Spent(of) => of.to_vec(),
            Source::Part(hits, misses) => [hits, misses].concat(),
        }
    }

    /// The value between two readings of the metrics; not a number if there is none.
    pub fn value(&self, before: &Totals, now: &Totals) -> f64 {
        let seconds = now.at.saturating_sub(before.at).as_secs_f64().max(0.001);
        let grown = |of: &[Selector]| (now.sum(of) - before.sum(of)).max(0.0);
        match self.source {
            Source::Gauge(of) => now.sum(of),
            Source::Rate(of) => grown(of) / seconds,
            Source::Spent(of) => (now.spent(of) - before.spent(of)).max(0.0) / seconds,
            Source::Quantile(of, quantile) => now.quantile(before, of, quantile).unwrap_or(f64::NAN),
            Source::Part(hits, misses) => {
                let (hits, misses) = (grown(hits), grown(misses));
                hits / (hits + misses)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = SERIES.iter().map(|series| series.name).collect();
        assert_eq!(names.len(), SERIES.len());
    }
}
