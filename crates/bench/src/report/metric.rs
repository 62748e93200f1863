//! The value of a run's outcome in an experiment's metric, and further figures. Pure.
//!
//! Rule: only a run that passed has a value. The one exception is the share of stale reads: it fails the run and is the
//! experiment's subject at the same time. It is drawn as failed. A run with another fault has no value of it either.

use crate::outcome::histogram::merge;
use crate::outcome::{Ending, KindOutcome, RunOutcome};
use crate::plan::{Metric, Run, Stop};
use hdrhistogram::Histogram;

/// How a metric is named and read.
pub struct Meaning {
    /// Such as `throughput`.
    pub name: &'static str,
    /// Unit of the values, such as `B/s`.
    pub unit: &'static str,
    /// Whether larger values are better.
    pub more_is_better: bool,
}

/// How `metric` is named and read.
pub fn meaning(metric: Metric) -> Meaning {
    let (name, unit, more_is_better) = match metric {
        Metric::OperationsPerSecond => ("throughput", "operations/s", true),
        Metric::BytesPerSecond => ("throughput", "B/s", true),
        Metric::RowsPerSecond => ("throughput", "rows/s", true),
        Metric::Seconds => ("time taken", "s", false),
        Metric::MeanMillis => ("mean latency", "ms", false),
        Metric::StalePercent => ("stale reads", "%", false),
    };
    Meaning {
        name,
        unit,
        more_is_better,
    }
}

/// The run's value in `metric`, if it may be shown as a result.
pub fn value(run: &RunOutcome, metric: Metric) -> Option<f64> {
    let may_show = match metric {
        Metric::StalePercent => run.passed_but_for_stale_reads(),
        _ => run.ending == Ending::Passed,
    };
    if may_show { measured(run, metric) } else { None }
}

fn measured(run: &RunOutcome, metric: Metric) -> Option<f64> {
    let per_second = |amount: u64| (run.seconds > 0.0).then(|| amount as f64 / run.seconds);
    let value = match metric {
        Metric::OperationsPerSecond => per_second(sum(run, |kind| kind.operations)),
        Metric::BytesPerSecond => per_second(sum(run, |kind| kind.bytes)),
        Metric::RowsPerSecond => per_second(sum(run, |kind| kind.rows)),
        Metric::Seconds => Some(run.seconds),
        Metric::MeanMillis => Latency::of_kinds(&run.kinds).map(|latency| latency.mean / 1000.0),
        Metric::StalePercent => {
            (run.verdict.checked > 0).then(|| 100.0 * run.verdict.stale as f64 / run.verdict.checked as f64)
        }
    };
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

/// The sum of a count over the run's kinds.
pub fn sum(run: &RunOutcome, count: impl Fn(&KindOutcome) -> u64) -> u64 {
    run.kinds.iter().map(count).fold(0, u64::saturating_add)
}

/// Operations that failed.
pub fn failures(run: &RunOutcome) -> u64 {
    sum(run, |kind| kind.failures.values().copied().fold(0, u64::saturating_add))
}

/// Requests that drivers repeated.
pub fn retries(run: &RunOutcome) -> u64 {
    run.workers
        .iter()
        .map(|worker| worker.retries)
        .fold(0, u64::saturating_add)
}

/// Operations for each CPU second of all server processes; absent if their CPU time is unknown.
pub fn per_server_cpu_second(run: &RunOutcome) -> Option<f64> {
    let cpu: f64 = run.server_cpu.values().sum();
    (cpu > 0.0).then(|| sum(run, |kind| kind.operations) as f64 / cpu)
}

/// The generator's CPU for each operation, µs.
pub fn generator_micros(run: &RunOutcome) -> Option<f64> {
    let cpu: f64 = run.workers.iter().map(|worker| worker.cpu_seconds).sum();
    let operations = sum(run, |kind| kind.operations);
    (operations > 0 && cpu > 0.0).then(|| cpu * 1e6 / operations as f64)
}

/// Share of the time in which the threads of the busiest worker were running; absent if their number was not recorded.
pub fn generator_busy(run: &RunOutcome) -> Option<f64> {
    let busy = run.workers.iter().filter(|worker| worker.threads > 0);
    let share = busy.map(|worker| worker.cpu_seconds / (f64::from(worker.threads) * run.seconds));
    share.filter(|share| share.is_finite()).reduce(f64::max)
}

/// Change of throughput from the first to the last quarter of a run's time, as a share of the first. Only for runs longer
/// than a minute, since shorter ones show no drift. A second in which nothing ended is not in the series, but it is part
/// of its quarter: a store that stalls has a lower rate. The time is that of `plan`: the series also has the warm-up, and
/// operations that ended late.
pub fn drift(run: &RunOutcome, plan: &Run) -> Option<f64> {
    let measured = match plan.stop {
        Stop::Seconds(seconds) => run.seconds.min(seconds),
        Stop::Operations(_) => run.seconds,
    };
    let begin = plan.warmup_seconds.ceil();
    let end = (plan.warmup_seconds + measured).floor();
    let quarter = ((end - begin) / 4.0).floor();
    if measured <= 60.0 || quarter < 1.0 {
        return None;
    }
    let rate = |is_in: &dyn Fn(f64) -> bool| {
        let seconds = run.series.iter().filter(|second| is_in(second.at));
        seconds.map(|second| second.operations as f64).sum::<f64>() / quarter
    };
    let first = rate(&|at| at > begin && at <= begin + quarter);
    let last = rate(&|at| at > end - quarter && at <= end);
    (first > 0.0).then(|| last / first - 1.0)
}

/// Latencies of many operations, µs. Those of failed calls are exact to three digits.
pub struct Latency {
    /// Mean of the exact values.
    pub mean: f64,
    /// Standard deviation of the exact values.
    pub deviation: f64,
    /// Largest exact value.
    pub max: u64,
    /// All of them.
    pub histogram: Histogram<u64>,
}

impl Latency {
    /// The latency of all `kinds` together. Absent if nothing was counted, or the histograms cannot be read.
    pub fn of_kinds<'a>(kinds: impl IntoIterator<Item = &'a KindOutcome>) -> Option<Self> {
        let kinds: Vec<_> = kinds.into_iter().collect();
        let steps = kinds.iter().map(|kind| kind.steps as f64).sum::<f64>();
        let histogram = merge(kinds.iter().map(|kind| &kind.histogram)).ok()?;
        if steps == 0.0 || histogram.is_empty() {
            return None;
        }
        let mean = kinds.iter().map(|kind| kind.micros_sum).sum::<f64>() / steps;
        let square = kinds.iter().map(|kind| kind.micros_square_sum).sum::<f64>() / steps;
        let max = kinds.iter().map(|kind| kind.micros_max).max()?;
        Some(Self {
            mean,
            deviation: (square - mean * mean).max(0.0).sqrt(),
            max,
            histogram,
        })
    }

    /// How long the failed calls of `kinds` took. Absent if there are none, or the histograms cannot be read.
    pub fn of_failed<'a>(kinds: impl IntoIterator<Item = &'a KindOutcome>) -> Option<Self> {
        let histogram = merge(kinds.into_iter().map(|kind| &kind.failed)).ok()?;
        (!histogram.is_empty()).then(|| Self {
            mean: histogram.mean(),
            deviation: histogram.stdev(),
            max: histogram.max(),
            histogram,
        })
    }

    /// The latency that `percent` of the operations did not exceed; never more than the exact largest.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.histogram.value_at_percentile(percent).min(self.max.max(1)) as f64
    }
}

/// A value over repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest.
    pub low: f64,
    /// Largest.
    pub high: f64,
    /// How many.
    pub repeats: usize,
}

impl Spread {
    /// Of `values`; absent if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        let fold = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        let (low, high) = (fold(f64::min)?, fold(f64::max)?);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self {
            mean,
            low,
            high,
            repeats: values.len(),
        })
    }

    /// In another unit.
    pub fn times(&self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            low: self.low * factor,
            high: self.high * factor,
            repeats: self.repeats,
        }
    }

    /// This one divided by `base`: the means' ratio, and its possible range given both ranges.
    pub fn over(&self, base: &Self) -> Option<Self> {
        let repeats = self.repeats.min(base.repeats);
        (base.low > 0.0).then(|| Self {
            mean: self.mean / base.mean,
            low: self.low / base.high,
            high: self.high / base.low,
            repeats,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;
    use crate::outcome::{Second, WorkerOutcome};

    fn run() -> RunOutcome {
        let kind = KindOutcome {
            operations: 500,
            rows: 5000,
            bytes: 1_000_000,
            ..KindOutcome::default()
        };
        RunOutcome {
            seconds: 2.0,
            kinds: vec![kind.clone(), kind],
            ..RunOutcome::default()
        }
    }

    #[test]
    fn values_are_amounts_over_the_measured_time() {
        assert_eq!(value(&run(), Metric::OperationsPerSecond), Some(500.0));
        assert_eq!(value(&run(), Metric::RowsPerSecond), Some(5000.0));
        assert_eq!(value(&run(), Metric::BytesPerSecond), Some(1e6));
        assert_eq!(value(&run(), Metric::Seconds), Some(2.0));
        assert_eq!(value(&run(), Metric::MeanMillis), None);
        assert_eq!(value(&run(), Metric::StalePercent), None);
        assert_eq!(
            value(&RunOutcome { seconds: 0.0, ..run() }, Metric::OperationsPerSecond),
            None
        );
    }

    #[test]
    fn a_failed_run_has_no_value_but_its_staleness() {
        let mut failed = RunOutcome {
            ending: Ending::Failed(vec!["5 stale reads".into()]),
            ..run()
        };
        failed.verdict.checked = 1000;
        failed.verdict.stale = 5;
        assert_eq!(value(&failed, Metric::OperationsPerSecond), None);
        assert_eq!(value(&failed, Metric::StalePercent), Some(0.5));
        failed.ending = Ending::Failed(vec!["the last worker died".into(), "5 stale reads".into()]);
        assert_eq!(value(&failed, Metric::StalePercent), None);
        failed.ending = Ending::Skipped("never ran".into());
        assert_eq!(value(&failed, Metric::StalePercent), None);
    }

    #[test]
    fn latencies_of_a_run_are_those_of_its_histogram() {
        let bundle = fabricated::bundle(1.0);
        let latency = Latency::of_kinds(&bundle.runs[0].kinds).unwrap();
        assert!((latency.mean / latency.histogram.mean() - 1.0).abs() < 0.002);
        assert!((latency.deviation / latency.histogram.stdev() - 1.0).abs() < 0.002);
        assert_eq!(latency.percentile(100.0), latency.max as f64);
        assert!(Latency::of_kinds(&[]).is_none());
    }

    #[test]
    fn the_generator_is_as_busy_as_its_busiest_worker() {
        let worker = |threads, cpu_seconds| WorkerOutcome {
            threads,
            cpu_seconds,
            ..WorkerOutcome::default()
        };
        let busy = |workers: &[WorkerOutcome], seconds| {
            generator_busy(&RunOutcome {
                seconds,
                workers: workers.to_vec(),
                ..run()
            })
        };
        assert_eq!(busy(&[worker(4, 2.0), worker(2, 3.8)], 2.0), Some(0.95));
        assert_eq!(busy(&[worker(0, 2.0)], 2.0), None, "an earlier version");
        assert_eq!(busy(&[worker(4, 2.0)], 0.0), None);
    }

    /// A run of 80 seconds. Those without operations are not in its series.
    fn long(operations: impl Fn(u32) -> u64) -> RunOutcome {
        let seconds = (1..=80).map(|at| Second {
            at: f64::from(at),
            operations: operations(at),
            ..Second::default()
        });
        RunOutcome {
            seconds: 80.0,
            series: seconds.filter(|second| second.operations > 0).collect(),
            ..run()
        }
    }

    /// The plan of a run.
    fn plan(warmup_seconds: f64, seconds: f64) -> Run {
        Run {
            warmup_seconds,
            stop: Stop::Seconds(seconds),
            ..Run::default()
        }
    }

    #[test]
    fn drift_compares_quarters_of_long_runs() {
        let falling = long(|at| if at <= 40 { 100 } else { 80 });
        assert!((drift(&falling, &plan(0.0, 80.0)).unwrap() + 0.2).abs() < 1e-9);
        let short = RunOutcome {
            seconds: 60.0,
            ..falling
        };
        assert_eq!(drift(&short, &plan(0.0, 60.0)), None);
        assert_eq!(drift(&long(|_| 0), &plan(0.0, 80.0)), None);
    }

    #[test]
    fn drift_leaves_out_the_warm_up_and_operations_that_ended_late() {
        // Seconds 6 to 75 are measured. Those before are slow, and so are those after.
        let mut run = long(|at| if (6..=75).contains(&at) { 100 } else { 10 });
        // An open loop counts up to its last operation, a closed one does not.
        for seconds in [70.5, 74.5] {
            run.seconds = seconds;
            assert_eq!(drift(&run, &plan(5.0, 70.5)), Some(0.0));
        }
    }

    #[test]
    fn a_stall_lowers_the_rate_of_its_quarter() {
        let near = |run: RunOutcome, expected: f64| {
            let found = drift(&run, &plan(0.0, 80.0)).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
        };
        let stalled = |from: u32, to: u32| long(move |at| if (from..=to).contains(&at) { 0 } else { 100 });
        near(stalled(65, 74), -0.5);
        // Nothing ended any more.
        near(stalled(71, 80), -0.5);
        near(stalled(1, 10), 1.0);
        near(stalled(25, 55), 0.0);
        near(stalled(61, 80), -1.0);
    }

    #[test]
    fn ratios_have_the_range_that_both_spreads_allow() {
        let a = Spread::of([10.0, 12.0]).unwrap();
        let b = Spread::of([4.0, 5.0]).unwrap();
        let ratio = a.over(&b).unwrap();
        assert_eq!((ratio.low, ratio.high), (2.0, 3.0));
        assert!((ratio.mean - 11.0 / 4.5).abs() < 1e-12);
        assert!(a.over(&Spread::of([0.0]).unwrap()).is_none());
        assert!(Spread::of([]).is_none() && Spread::of([f64::NAN]).is_none());
    }
}
