//! Sums, shares and quantiles over chosen instruments.

use std::time::Duration;
use stele_env::metrics::{Reading, ReadingValue};

/// Instruments of a metric: all, or those of which a label has one of some values, or none of them.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    /// Name of the metric.
    pub metric: &'static str,
    /// Label, values, and whether it is these or all others.
    pub label: Option<(&'static str, &'static [&'static str], bool)>,
}

/// The values of all instruments at one time.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The time of the process.
    pub at: Duration,
    /// The values.
    pub readings: Vec<Reading>,
}

impl Totals {
    fn select<'a>(&'a self, selectors: &'a [Selector]) -> impl Iterator<Item = &'a Reading> {
        self.readings
            .iter()
            .filter(|reading| selectors.iter().any(|selector| selector.takes(reading)))
    }

    /// The sum of numbers; of a histogram its number of values.
    pub fn sum(&self, selectors: &[Selector]) -> f64 {
        let numbers = self.select(selectors).map(|reading| match &reading.value {
            ReadingValue::Number(number) => *number,
            ReadingValue::Histogram { count, .. } => *count as f64,
        });
        numbers.sum()
    }

    /// The sum of the values of histograms.
    pub fn spent(&self, selectors: &[Selector]) -> f64 {
        let sums = self.select(selectors).map(|reading| match &reading.value {
            ReadingValue::Number(_) => 0.0,
            ReadingValue::Histogram { sum, .. } => *sum,
        });
        sums.sum()
    }

    /// A quantile of the values since an earlier reading, linear within a bucket. Buckets grow by a factor of two.
    pub fn quantile(&self, before: &Totals, selectors: &[Selector], quantile: f64) -> Option<f64> {
        let (bounds, now, count) = self.buckets(selectors);
        let (_, then, count_then) = before.buckets(selectors);
        let count = count.saturating_sub(count_then);
        if count == 0 {
            return None;
        }
        let wanted = quantile * count as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (at, bound) in bounds.iter().enumerate() {
            let up_to = now.get(at)?.saturating_sub(then.get(at).copied().unwrap_or(0)) as f64;
            if up_to >= wanted {
                let part = if up_to > below {
                    (wanted - below) / (up_to - below)
                } else {
                    1.0
                };
                return Some(lower + part * (bound - lower));
            }
            (below, lower) = (up_to, *bound);
        }
        // Above the last bound nothing is known.
        Some(lower)
    }

    /// Bounds of buckets, with the numbers of values up to each, and of all.
    fn buckets(&self, selectors: &[Selector]) -> (Vec<f64>, Vec<u64>, u64) {
        let (mut bounds, mut counts, mut all) = (Vec::new(), Vec::new(), 0);
        for reading in self.select(selectors) {
            let ReadingValue::Histogram { buckets, count, .. } = &reading.value else {
                continue;
            };
            all += count;
            if counts.len() < buckets.len() {
                counts.resize(buckets.len(), 0);
                bounds = buckets.iter().map(|(bound, _)| *bound).collect();
            }
            for (sum, (_, count)) in counts.iter_mut().zip(buckets) {
                *sum += count;
            }
        }
        (bounds, counts, all)
    }
}

impl Selector {
    /// Whether an instrument is one of these.
    pub fn takes(&self, reading: &Reading) -> bool {
        if reading.name != self.metric {
            return false;
        }
        match self.label {
            None => true,
            Some((label, values, is_one)) => {
                let has = reading.label(label).is_some_and(|value| values.contains(&value));
                has == is_one
            }
        }
    }
}
