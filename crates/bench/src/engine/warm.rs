//! Mixed load before the first experiment: virtual machines compile, caches fill, files are made.
//!
//! The evaluations ran for hours, so the beginning did not matter to them. In a short suite the beginning would be most
//! of the measured time, to the disadvantage of servers that start slowly. The figures of this load are kept, and not
//! charted; the report has the number of operations.
//!
//! Seconds are enough for a server that is compiled already. A virtual machine compiles a method after some number of
//! calls, so a target on one goes on until it has done a number of operations, within a limit of time.

use crate::plan::{
    Activity, Experiment, KeyFormat, KeyOrder, Keys, Operation, Role, Run, Stage, Stop, ValueSource, Values, Workload,
};
use crate::target::TableSpec;

/// Rows loaded first.
const RECORDS: u64 = 50_000;
const TABLE: &str = "bench-warm";

/// Seconds unless the user gives others.
const SECONDS: f64 = 10.0;
/// Operations after which HBase did twice as much per CPU second as after its start (`docs/rivals.md`).
const JVM_OPERATIONS: u64 = 1_000_000;
/// A slow target would take minutes for these operations, longer than a quick suite.
const JVM_SECONDS_MAX: f64 = 60.0;
/// Less time than this is not worth another load of the table.
const SECONDS_MIN: f64 = 0.1;

/// How targets are warmed up.
#[derive(Debug, Clone, Copy)]
pub struct Warming {
    /// About this many seconds for every target; none for zero.
    pub seconds: f64,
    /// Operations that a target on a virtual machine does before it is measured; zero for no more than the others.
    pub jvm_operations: u64,
    /// Longest warm-up of such a target in seconds.
    pub jvm_seconds_max: f64,
    /// Seed of its random choices.
    pub seed: u64,
}

impl Warming {
    /// With the time that the user gave, which then holds for every target, or with the default.
    pub fn new(seconds: Option<f64>, seed: u64) -> Self {
        Self {
            seconds: seconds.unwrap_or(SECONDS),
            jvm_operations: if seconds.is_none() { JVM_OPERATIONS } else { 0 },
            jvm_seconds_max: JVM_SECONDS_MAX,
            seed,
        }
    }

    /// The part that every target has.
    pub fn first(&self) -> Option<Experiment> {
        (self.seconds > 0.0).then(|| experiment("warm-up", self.seconds, self.seed))
    }

    /// The part that a target on a virtual machine still needs after this many operations in this many seconds.
    pub fn second(&self, operations: u64, seconds: f64) -> Option<Experiment> {
        let rate = operations as f64 / seconds;
        let needed = self.jvm_operations.saturating_sub(operations) as f64 / rate;
        let seconds = needed.min(self.jvm_seconds_max - seconds);
        // Not so for a rate that is no number, or zero: nothing is to be gained from a target that does not respond.
        let is_useful = rate > 0.0 && seconds >= SECONDS_MIN;
        is_useful.then(|| experiment("warm-up-jvm", seconds, self.seed))
    }
}

/// Mixed load of about this many seconds.
fn experiment(id: &str, seconds: f64, seed: u64) -> Experiment {
    let buffered = Operation::BufferedPut {
        buffer_bytes: 2_000_000,
    };
    let scan = Operation::ShortScan {
        rows: 100,
        vary: true,
        rows_per_fetch: None,
    };
    let timed = |share: f64| Stop::Seconds(seconds * share);
    let stages = vec![
        Stage::Create(TableSpec {
            name: TABLE.into(),
            families: vec!["f0".into()],
            max_versions: 1,
            ..TableSpec::default()
        }),
        run(
            "load",
            KeyOrder::Sequential,
            vec![(buffered, 1.0)],
            4,
            Stop::Operations(RECORDS),
            seed,
        ),
        run(
            "puts-and-gets",
            KeyOrder::Uniform,
            vec![(Operation::Put, 0.5), (Operation::Get, 0.5)],
            16,
            timed(0.6),
            seed,
        ),
        run("scans", KeyOrder::Uniform, vec![(scan, 1.0)], 8, timed(0.4), seed),
    ];
    Experiment {
        id: id.into(),
        title: "Warm-up".into(),
        about: "Mixed load before the first experiment. Not a result.".into(),
        stages,
        ..Experiment::default()
    }
}

fn run(label: &str, order: KeyOrder, mix: Vec<(Operation, f64)>, clients: u32, stop: Stop, seed: u64) -> Stage {
    let workload = Workload {
        table: TABLE.into(),
        mix,
        keys: Keys {
            records: RECORDS,
            order,
            format: KeyFormat::Padded { digits: 20 },
        },
        values: Values {
            bytes: 1_000,
            source: ValueSource::Incompressible,
            columns: 1,
            ..Values::default()
        },
        verify: true,
    };
    Stage::Run(Box::new(Run {
        label: label.into(),
        role: Role::Warm,
        activity: Activity::Table(workload),
        clients,
        stop,
        seed,
        ..Run::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of the second part.
    fn second(warming: &Warming, operations: u64, seconds: f64) -> Option<f64> {
        let experiment = warming.second(operations, seconds)?;
        let seconds = experiment.stages.iter().filter_map(|stage| match stage {
            Stage::Run(run) => match run.stop {
                Stop::Seconds(seconds) => Some(seconds),
                Stop::Operations(_) => None,
            },
            _ => None,
        });
        Some(seconds.sum())
    }

    #[test]
    fn a_virtual_machine_goes_on_until_its_operations_or_a_minute() {
        let warming = Warming::new(None, 1);
        assert!(warming.first().is_some());
        let near = |found: Option<f64>, expected: f64| {
            assert!(
                found.is_some_and(|found| (found - expected).abs() < 1e-6),
                "{found:?}, expected {expected}"
            );
        };
        near(second(&warming, 500_000, 10.0), 10.0);
        near(second(&warming, 20_000, 10.0), 50.0);
        assert_eq!(second(&warming, 1_000_000, 10.0), None);
        assert_eq!(second(&warming, 999_999, 10.0), None);
        assert_eq!(second(&warming, 0, 10.0), None);
        assert_eq!(second(&warming, 0, 0.0), None);
    }

    #[test]
    fn the_time_that_the_user_gives_holds_for_every_target() {
        assert_eq!(second(&Warming::new(Some(2.0), 1), 20_000, 2.0), None);
        assert!(Warming::new(Some(0.0), 1).first().is_none());
    }
}
