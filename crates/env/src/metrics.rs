//! Metrics: one registry per server, documented constants in base units.
//!
//! There is no global registry, because a simulation holds many servers in one process. A crate defines a struct of its
//! instruments with a constructor over [`Metrics`]; names are `stele_<crate>_<what>_<unit>`.

pub use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use prometheus::{HistogramOpts, Opts, Registry, TextEncoder};

/// Makes and exposes instruments.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    registry: Registry,
}

/// Latency buckets in seconds: 50 µs to 13 s in factors of two, so that any quantile is within a factor of two.
fn latency_buckets() -> Vec<f64> {
    (0..19).map(|i| 50e-6 * f64::from(1u32 << i)).collect()
}

macro_rules! register {
    ($self:ident, $instrument:expr) => {{
        let instrument = $instrument.expect("metric names and labels are constants of this project");
        $self
            .registry
            .register(Box::new(instrument.clone()))
            .expect("an instrument is made once per registry");
        instrument
    }};
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        register!(self, IntCounter::new(name, help))
    }

    /// Counters by label.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        register!(self, IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        register!(self, IntGauge::new(name, help))
    }

    /// Gauges by label.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        register!(self, IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A latency histogram in seconds.
    pub fn latency(&self, name: &str, help: &str) -> Histogram {
        let opts = HistogramOpts::new(name, help).buckets(latency_buckets());
        register!(self, Histogram::with_opts(opts))
    }

    /// Latency histograms in seconds by label.
    pub fn latencies(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        let opts = HistogramOpts::new(name, help).buckets(latency_buckets());
        register!(self, HistogramVec::new(opts, labels))
    }

    /// The text exposition format.
    pub fn render(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }
}
