//! Mixed load before the first experiment: virtual machines compile, caches fill, files are made.
//!
//! The evaluations ran for hours, so the beginning did not matter to them. In a short suite the beginning would be most
//! of the measured time, to the disadvantage of servers that start slowly. The figures of this load are kept, and not
//! charted; the report has the number of operations.
//!
//! Seconds are enough for a server that is compiled already. A virtual machine compiles a method after some number of
//! calls, so a target on one goes on until it has done about a given number of operations, within a limit of time. The rate of
//! the timed runs so far tells how long that takes. It rises as more is compiled.

use crate::outcome::RunOutcome;
use crate::plan::{
    Activity, Experiment, KeyFormat, KeyOrder, Keys, Operation, Role, Run, Stage, Stop, ValueSource, Values, Workload,
};
use crate::target::TableSpec;

/// Rows loaded first.
const RECORDS: u64 = 50_000;
const TABLE: &str = "bench-warm";
/// The run that loads them.
const LOAD: &str = "load";

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
    /// About this many operations on a target on a virtual machine before it is measured; zero for no more than on others.
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

    /// The part that a target on a virtual machine still needs after these runs. It begins with another load of the table,
    /// which takes as long as the one before, and does as many operations.
    pub fn second<'a>(&self, runs: impl IntoIterator<Item = &'a RunOutcome>) -> Option<Experiment> {
        let (loads, timed): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.label == LOAD);
        let operations = |runs: &[&RunOutcome]| {
            let kinds = runs.iter().flat_map(|run| &run.kinds);
            kinds.map(|kind| kind.operations).fold(0, u64::saturating_add)
        };
        let seconds = |runs: &[&RunOutcome]| runs.iter().map(|run| run.seconds).sum::<f64>();
        // Buffered puts are many times as fast as other operations.
        let rate = operations(&timed) as f64 / seconds(&timed);
        let with_load = operations(&loads).saturating_mul(2).saturating_add(operations(&timed));
        let needed = self.jvm_operations.saturating_sub(with_load) as f64 / rate;
        let seconds = needed.min(self.jvm_seconds_max - 2.0 * seconds(&loads) - seconds(&timed));
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
            LOAD,
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
    use crate::outcome::KindOutcome;

    /// Seconds of the timed runs of the second part, after a load and timed runs of this many operations and seconds.
    fn second(warming: &Warming, load: (u64, f64), timed: (u64, f64)) -> Option<f64> {
        let run = |label: &str, (operations, seconds): (u64, f64)| RunOutcome {
            label: label.into(),
            seconds,
            kinds: vec![KindOutcome {
                operations,
                ..KindOutcome::default()
            }],
            ..RunOutcome::default()
        };
        let experiment = warming.second(&[run(LOAD, load), run("scans", timed)])?;
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
        let load = (50_000, 1.0);
        // 40,000 operations/s. The other half million has 50,000 of the second load.
        near(second(&warming, load, (400_000, 10.0)), 12.5);
        // A minute, less two loads and the timed runs.
        near(second(&warming, load, (20_000, 10.0)), 48.0);
        near(second(&warming, (50_000, 20.0), (20_000, 10.0)), 10.0);
        assert_eq!(second(&warming, (50_000, 25.0), (20_000, 10.0)), None);
        assert_eq!(second(&warming, load, (900_000, 10.0)), None);
        assert_eq!(second(&warming, load, (899_999, 10.0)), None);
        assert_eq!(second(&warming, load, (0, 10.0)), None);
        assert_eq!(second(&warming, load, (0, 0.0)), None);
    }

    #[test]
    fn the_time_that_the_user_gives_holds_for_every_target() {
        let given = Warming::new(Some(2.0), 1);
        assert_eq!(second(&given, (50_000, 1.0), (20_000, 2.0)), None);
        assert!(Warming::new(Some(0.0), 1).first().is_none());
    }
}
