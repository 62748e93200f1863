//! The control: the generator against an echo server, whose cost every report prints.
//!
//! No server can appear faster than this generator is on this machine. A run close to that limit measured the
//! generator. Everything is as in a real run (workers, ranges, histograms), but the responses are prepared.

use crate::bundle::Witness;
use crate::engine::dispatcher::{Dispatcher, Observer, Order};
use crate::outcome::{Ending, RunOutcome, Second};
use crate::plan::{Activity, KeyFormat, KeyOrder, Keys, Operation, Role, Run, Stop, ValueSource, Values, Workload};
use crate::xray::ProcessTime;
use std::collections::BTreeMap;

/// Seconds for each operation.
const SECONDS: f64 = 1.0;
/// Rows of 1000 bytes, the size that nearly all documents share.
const VALUE_BYTES: u32 = 1_000;

/// Measures the generator over one protocol.
pub async fn measure(dispatcher: &mut Dispatcher, protocol: &str) -> Vec<Witness> {
    let buffered = Operation::BufferedPut {
        buffer_bytes: 12_000_000,
    };
    let scan = Operation::ShortScan {
        rows: 1_000,
        vary: false,
        rows_per_fetch: None,
    };
    let subjects = [
        ("get, 1 client", Operation::Get, 1),
        ("get, 16 clients", Operation::Get, 16),
        ("put, 16 clients", Operation::Put, 16),
        ("buffered put, 4 clients", buffered, 4),
        ("scan of 1,000 rows, 4 clients", scan, 4),
    ];
    let mut witnesses = Vec::new();
    let target = format!("null://{protocol}");
    for (name, operation, clients) in subjects {
        let run = run(name, operation, clients);
        let order = Order {
            run: &run,
            target: &target,
            written: &[],
        };
        let outcome = dispatcher.run(&order, &mut Nobody).await;
        if outcome.ending == Ending::Passed {
            witnesses.extend(witness(protocol, name, &outcome));
        }
    }
    witnesses
}

fn run(name: &str, operation: Operation, clients: u32) -> Run {
    // A buffer is flushed whole, so its rows must be counted to the end.
    let stop = match operation {
        Operation::BufferedPut { .. } => Stop::Operations(400_000),
        _ => Stop::Seconds(SECONDS),
    };
    Run {
        label: name.to_owned(),
        role: Role::Warm,
        activity: Activity::Table(Workload {
            table: "bench-witness".into(),
            mix: vec![(operation, 1.0)],
            keys: Keys {
                records: 1_000_000,
                order: KeyOrder::Uniform,
                format: KeyFormat::Padded { digits: 20 },
            },
            values: Values {
                bytes: VALUE_BYTES,
                source: ValueSource::Incompressible,
                columns: 1,
                ..Values::default()
            },
            verify: false,
        }),
        clients,
        stop,
        warmup_seconds: if matches!(stop, Stop::Seconds(_)) { 0.3 } else { 0.0 },
        seed: 1,
        ..Run::default()
    }
}

fn witness(protocol: &str, name: &str, outcome: &RunOutcome) -> Option<Witness> {
    let kind = outcome.kinds.first()?;
    // The cost of a scan is counted per row, all other costs per operation.
    let operations = kind.operations.max(kind.rows) as f64;
    let cpu: f64 = outcome.workers.iter().map(|w| w.cpu_seconds).sum();
    let histogram = kind.histogram.decode().ok()?;
    (operations > 0.0 && outcome.seconds > 0.0).then(|| Witness {
        protocol: protocol.to_owned(),
        operation: name.to_owned(),
        operations_per_second: operations / outcome.seconds,
        generator_micros: cpu * 1e6 / operations,
        p50_micros: histogram.value_at_quantile(0.5),
    })
}

struct Nobody;

impl Observer for Nobody {
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime> {
        BTreeMap::new()
    }

    fn progress(&mut self, _: &Run, _: f64, _: u64, _: u64, _: Option<&Second>) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}
