use super::*;
use stele_env::metrics::Metrics;

fn value(point: &Point, name: &str) -> f32 {
    let at = SERIES.iter().position(|series| series.name == name).unwrap();
    point.values[at]
}

#[test]
fn a_point_has_rates_quantiles_and_gauges() {
    let metrics = Metrics::new();
    let calls = metrics.counters("stele_bigtable_requests_total", "Calls.", &["method", "code"]);
    let seconds = metrics.latencies("stele_bigtable_request_seconds", "Time.", &["method"]);
    let waits = metrics.latencies("stele_write_wait_seconds", "Time.", &["cause"]);
    let memtables = metrics.gauge("stele_memtable_bytes", "Bytes.");
    let hits = metrics.gauge("stele_block_cache_hits", "Hits.");
    metrics.gauge("stele_block_cache_misses", "Misses.").set(5);
    hits.set(10);
    calls.with_label_values(&["ReadRows", "OK"]).inc_by(1_000);
    seconds.with_label_values(&["ReadRows"]).observe(10.0);
    let mut history = History::default();
    history.add(100, Duration::from_secs(7), &metrics.read());
    assert_eq!(history.last(), None);

    calls.with_label_values(&["ReadRows", "OK"]).inc_by(100);
    calls.with_label_values(&["ReadRows", "UNAVAILABLE"]).inc_by(20);
    calls.with_label_values(&["ReadRows", "CANCELLED"]).inc_by(20);
    (0..99).for_each(|_| seconds.with_label_values(&["ReadRows"]).observe(0.001));
    seconds.with_label_values(&["ReadRows"]).observe(0.1);
    waits.with_label_values(&["log"]).observe(2.5);
    memtables.set(77);
    hits.set(40);
    history.add(105, Duration::from_secs(12), &metrics.read());
    let point = history.last().unwrap();
    assert_eq!(point.time, 105);
    assert_eq!(
        (value(point, "reads"), value(point, "writes"), value(point, "errors")),
        (28.0, 0.0, 4.0)
    );
    assert_eq!(
        (
            value(point, "memtables"),
            value(point, "wait_log"),
            value(point, "wait_gate")
        ),
        (77.0, 0.5, 0.0)
    );
    assert_eq!(value(point, "block_hits"), 1.0);
    // Within the bucket of a millisecond.
    assert!(
        (0.0008..=0.0016).contains(&value(point, "read_p50")),
        "{}",
        value(point, "read_p50")
    );
    assert!(value(point, "read_p99") <= 0.0016);
    assert!(value(point, "write_p50").is_nan());
}

#[test]
fn the_last_hour_is_kept() {
    let (metrics, mut history) = (Metrics::new(), History::default());
    for point in 0..1_000i64 {
        history.add(5 * point, Duration::from_secs(5 * point as u64), &metrics.read());
    }
    assert_eq!(history.since(0, 10_000).len(), POINTS_MAX);
    let last: Vec<i64> = history.since(4_980, 2).iter().map(|point| point.time).collect();
    assert_eq!(last, [4_990, 4_995]);
    assert_eq!(history.since(4_995, 10), []);
}
