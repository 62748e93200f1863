//! Mixed load before the first experiment: virtual machines compile, caches fill, files are made.
//!
//! The evaluations ran for hours, so the beginning did not matter to them. In a short suite the beginning would be most
//! of the measured time, to the disadvantage of servers that start slowly. The figures of this load are kept, and not
//! charted.

use crate::plan::{
    Activity, Experiment, KeyFormat, KeyOrder, Keys, Operation, Role, Run, Stage, Stop, ValueSource, Values, Workload,
};
use crate::target::TableSpec;

/// Rows loaded first.
const RECORDS: u64 = 50_000;
const TABLE: &str = "bench-warm";

/// The experiment of about this many seconds; none for zero.
pub fn experiment(seconds: f64, seed: u64) -> Option<Experiment> {
    if seconds <= 0.0 {
        return None;
    }
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
    Some(Experiment {
        id: "warm-up".into(),
        title: "Warm-up".into(),
        about: "Mixed load before the first experiment. Not a result.".into(),
        stages,
        ..Experiment::default()
    })
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
