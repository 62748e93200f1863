//! Metrics of calls.

use std::time::Duration;
use stele_env::metrics::{Histogram, IntCounter, Metrics};

/// The methods that have metrics of their own. Clients choose names, so all others share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Mutate,
    Multi,
    Scan,
    BulkLoadHFile,
    Other,
}

impl Method {
    const ALL: [Method; 6] = [
        Method::Get,
        Method::Mutate,
        Method::Multi,
        Method::Scan,
        Method::BulkLoadHFile,
        Method::Other,
    ];

    /// The method of this name.
    pub fn named(name: &[u8]) -> Self {
        match name {
            b"Get" => Method::Get,
            b"Mutate" => Method::Mutate,
            b"Multi" => Method::Multi,
            b"Scan" => Method::Scan,
            b"BulkLoadHFile" => Method::BulkLoadHFile,
            _ => Method::Other,
        }
    }

    /// As metrics and traces name it.
    pub fn label(self) -> &'static str {
        match self {
            Method::Get => "Get",
            Method::Mutate => "Mutate",
            Method::Multi => "Multi",
            Method::Scan => "Scan",
            Method::BulkLoadHFile => "BulkLoadHFile",
            Method::Other => "other",
        }
    }
}

/// Counters of the calls of all connections.
pub(crate) struct CallMetrics([OfMethod; Method::ALL.len()]);

struct OfMethod {
    ok: IntCounter,
    failed: IntCounter,
    seconds: Histogram,
}

impl CallMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let calls = metrics.counters(
            "stele_hbase_requests_total",
            "Calls of the HBase API by method and outcome.",
            &["method", "outcome"],
        );
        let seconds = metrics.latencies(
            "stele_hbase_request_seconds",
            "Time from the last byte of a call to its response, by method.",
            &["method"],
        );
        CallMetrics(Method::ALL.map(|method| OfMethod {
            ok: calls.with_label_values(&[method.label(), "ok"]),
            failed: calls.with_label_values(&[method.label(), "failed"]),
            seconds: seconds.with_label_values(&[method.label()]),
        }))
    }

    /// Calls that ended.
    pub fn calls(&self) -> u64 {
        self.0.iter().map(|of| of.ok.get() + of.failed.get()).sum()
    }

    /// Counts a call that ended.
    pub fn count(&self, method: Method, failed: bool, took: Duration) {
        let of = &self.0[method as usize];
        let outcome = if failed { &of.failed } else { &of.ok };
        outcome.inc();
        of.seconds.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_its_counters() {
        let metrics = Metrics::new();
        let calls = CallMetrics::new(&metrics);
        for (n, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, n);
            assert_eq!(Method::named(method.label().as_bytes()), method);
            calls.count(method, n % 2 == 1, Duration::ZERO);
        }
        assert_eq!(calls.calls(), 6);
        let shown = metrics.render();
        assert!(shown.contains(r#"stele_hbase_requests_total{method="Scan",outcome="failed"} 1"#));
        assert!(shown.contains(r#"stele_hbase_request_seconds_count{method="other"} 1"#));
    }
}
