//! Metrics: one registry per server, documented constants in base units.
//!
//! There is no global registry, because a simulation holds many servers in one process. A crate defines a struct of its
//! instruments with a constructor over [`Metrics`]; names are `stele_<subject>_<quantity>_<unit>`.

use prometheus::proto::MetricType;
pub use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use prometheus::{HistogramOpts, Opts, Registry, TextEncoder};

/// Makes and exposes instruments.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    registry: Registry,
}

/// The value of an instrument with one set of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Name of the metric.
    pub name: String,
    /// Names and values of the labels.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: ReadingValue,
}

/// A number or a distribution.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadingValue {
    /// Of a counter or a gauge.
    Number(f64),
    /// Of a histogram: upper bounds of the buckets, each with the number of values up to it.
    Histogram {
        /// Ascending; values above the last bound are in `count` alone.
        buckets: Vec<(f64, u64)>,
        /// All values.
        count: u64,
        /// Their sum.
        sum: f64,
    },
}

impl Reading {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let label = self.labels.iter().find(|(label, _)| label == name);
        label.map(|(_, value)| value.as_str())
    }

    fn of(name: &str, kind: MetricType, metric: &prometheus::proto::Metric) -> Option<Reading> {
        let value = match kind {
            MetricType::COUNTER => ReadingValue::Number(metric.get_counter().get_value()),
            MetricType::GAUGE => ReadingValue::Number(metric.get_gauge().get_value()),
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                let buckets = histogram.get_bucket().iter();
                ReadingValue::Histogram {
                    buckets: buckets.map(|b| (b.upper_bound(), b.cumulative_count())).collect(),
                    count: histogram.get_sample_count(),
                    sum: histogram.get_sample_sum(),
                }
            }
            // The project makes no others.
            _ => return None,
        };
        let labels = metric.get_label().iter();
        Some(Reading {
            name: name.to_owned(),
            labels: labels.map(|l| (l.name().to_owned(), l.value().to_owned())).collect(),
            value,
        })
    }
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

    /// The values of all instruments.
    pub fn read(&self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for family in self.registry.gather() {
            let (name, kind) = (family.name(), family.get_field_type());
            let metrics = family.get_metric().iter();
            readings.extend(metrics.filter_map(|metric| Reading::of(name, kind, metric)));
        }
        readings
    }

    /// The text exposition format.
    pub fn render(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_are_read_with_their_labels() {
        let metrics = Metrics::new();
        metrics
            .counters("stele_a_total", "A.", &["kind"])
            .with_label_values(&["x"])
            .inc_by(3);
        metrics.gauge("stele_b_bytes", "B.").set(-7);
        let seconds = metrics.latency("stele_c_seconds", "C.");
        seconds.observe(0.003);
        seconds.observe(100.0);
        let readings = metrics.read();
        assert_eq!(readings.len(), 3);
        assert_eq!(
            (readings[0].label("kind"), readings[0].label("other")),
            (Some("x"), None)
        );
        assert_eq!(readings[0].value, ReadingValue::Number(3.0));
        assert_eq!(readings[1].value, ReadingValue::Number(-7.0));
        let bounds = match &readings[2].value {
            ReadingValue::Histogram { buckets, count, .. } => {
                (*count, buckets.first().unwrap().1, buckets.last().unwrap().1)
            }
            ReadingValue::Number(_) => (0, 0, 0),
        };
        assert_eq!(bounds, (2, 0, 1));
    }
}
