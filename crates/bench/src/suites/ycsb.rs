//! YCSB's core workloads: "Benchmarking Cloud Serving Systems with YCSB", 2010.
//!
//! Rows of ten columns with 100 bytes each, under hashed keys; popular rows by Zipf's law with the exponent 0.99. The
//! paper had 20 million rows on each of six servers, and showed latency against the offered rate. Its figures are
//! images, so none are compared. Increments and conditional writes are ours: the family has them and YCSB does not.

use super::dataset::Dataset;
use super::recipe::{Measure, Recipe};
use super::sizing::Sizing;
use crate::plan::{Experiment, KeyFormat, KeyOrder, Metric, OpenLoop, Operation, ValueSource, Values};

/// Rows on all of the paper's six servers.
const ROWS: u64 = 120_000_000;

/// Seconds of a run.
const SECONDS: f64 = 600.0;

/// Threads of the paper's client.
const THREADS: u32 = 100;

const ZIPF: KeyOrder = KeyOrder::Zipf { exponent: 0.99 };

const WHOLE_ROWS: &str = "Updates write all ten columns; YCSB writes one of them unless `writeallfields` is set. A reader can then check whole rows.";

const NO_FIGURES: &str = "The paper's figures are images; there is nothing to compare with.";

pub(super) fn experiments(sizing: &Sizing) -> Vec<Experiment> {
    vec![load(sizing), workloads(sizing), offered_rate(sizing), atomic(sizing)]
}

fn dataset(sizing: &Sizing, name: &str) -> Dataset {
    let values = Values {
        bytes: 100,
        bytes_max: None,
        source: ValueSource::Incompressible,
        columns: 10,
        families: 0,
    };
    Dataset::new(name, sizing.count(ROWS, 30_000), KeyFormat::YcsbHashed, values)
}

fn recipe<'a>(sizing: &'a Sizing, id: &str, title: &str, about: &str) -> Recipe<'a> {
    Recipe::new(sizing, id, title, about).differs(NO_FIGURES)
}

fn load(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "load",
        "Load",
        "Rows inserted one by one, as YCSB's load phase does, and through write buffers.",
    )
    .names("client");
    let data = dataset(sizing, "ycsb-load");
    let buffered = sizing.buffered_put(data.row_bytes());
    let ways = [
        ("unbuffered", Operation::Put, sizing.clients(THREADS)),
        ("buffered", buffered, sizing.writers(THREADS)),
    ];
    for (x, operation, clients) in ways {
        let stop = sizing.operations_or(ROWS, 1.5);
        let run = Measure::table(data.only(operation, KeyOrder::Sequential), clients, stop);
        recipe.create(&data);
        recipe.measure(x, "load", x, run);
        recipe.check(&data, &format!("{x}-check"));
    }
    recipe.done()
}

/// Operations and key order of a core workload.
fn core(letter: &str) -> (Vec<(Operation, f64)>, KeyOrder) {
    let scan = Operation::ShortScan {
        rows: 100,
        vary: true,
        rows_per_fetch: None,
    };
    match letter {
        "A" => (vec![(Operation::Get, 0.5), (Operation::Put, 0.5)], ZIPF),
        "B" => (vec![(Operation::Get, 0.95), (Operation::Put, 0.05)], ZIPF),
        "D" => (
            vec![(Operation::Get, 0.95), (Operation::Insert, 0.05)],
            KeyOrder::Latest { exponent: 0.99 },
        ),
        "E" => (vec![(scan, 0.95), (Operation::Insert, 0.05)], ZIPF),
        "F" => (vec![(Operation::Get, 0.5), (Operation::ReadModifyWrite, 0.5)], ZIPF),
        _ => (vec![(Operation::Get, 1.0)], ZIPF),
    }
}

fn workloads(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "workloads",
        "Workloads A to F",
        "A: half reads, half updates. B: 95 % reads. C: reads only. D: reads of the latest inserts. E: short scans. F: \
         read-modify-write. In YCSB's recommended order: one table for A, B, C, F and D, another one for E.",
    )
    .names("workload")
    .differs(WHOLE_ROWS);
    let data = dataset(sizing, "ycsb");
    for letters in [&["A", "B", "C", "F", "D"][..], &["E"]] {
        let group = letters.concat().to_lowercase();
        recipe.create(&data);
        recipe.load(&data, &format!("load-{group}"), THREADS);
        recipe.settle(&data);
        for letter in letters {
            let (mix, order) = core(letter);
            let label = letter.to_lowercase();
            let run = |stop| Measure::table(data.mix(mix.clone(), order), sizing.clients(THREADS), stop);
            recipe.measure(&label, "closed loop", letter, run(sizing.seconds(SECONDS, 1.2)));
            // Inserts number their keys from the table's size on, so a second run of D or E would write the same rows.
            if !mix.iter().any(|(operation, _)| *operation == Operation::Insert) {
                recipe.open_loop(&format!("{label}-open"), run(sizing.seconds(SECONDS, 1.0)));
            }
        }
        recipe.check(&data, &format!("check-{group}"));
    }
    recipe.done()
}

fn offered_rate(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "offered-rate",
        "Latency by offered rate",
        "The form of the paper's own charts: requests come at a fixed rate, whatever the store does, and each is timed from \
         when it was due. A rate that cannot be kept shows as latency that grows with the length of the run.",
    )
    .metric(Metric::MeanMillis)
    .numbers("offered rate", "requests/s")
    .differs(WHOLE_ROWS);
    let data = dataset(sizing, "ycsb-rate");
    recipe.create(&data);
    recipe.load(&data, "load", THREADS);
    for (letter, series) in [("A", "A: half updates"), ("B", "B: 95 % reads")] {
        let (mix, order) = core(letter);
        for rate in [500_u32, 1_000, 2_000, 4_000, 8_000] {
            let run = Measure::table(data.mix(mix.clone(), order), 256, sizing.seconds(SECONDS, 0.8));
            recipe.measure(
                &format!("{}-{rate}", letter.to_lowercase()),
                series,
                &rate.to_string(),
                run,
            );
            if let Some(run) = recipe.last_run() {
                run.rate = Some(OpenLoop {
                    per_second: f64::from(rate),
                    poisson: true,
                });
            }
        }
    }
    recipe.check(&data, "check");
    recipe.done()
}

fn atomic(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "atomic",
        "Increments and conditional writes",
        "Operations that read before they write, in the server: counters, and rows that are written if they are as expected.",
    )
    .names("operation")
    .differs("Not part of YCSB.");
    let rows = sizing.count(1_000_000, 10_000);
    let counters = Dataset {
        records: rows,
        ..dataset(sizing, "counters")
    };
    let stop = sizing.seconds(SECONDS, 1.0);
    recipe.create(&counters);
    let run = Measure::table(
        counters.only(Operation::Increment, KeyOrder::Uniform),
        sizing.clients(THREADS),
        stop,
    );
    recipe.measure("increment", "atomic", "increment", run);
    recipe.check(&counters, "increment-check");
    recipe.drop_table(&counters);
    let data = Dataset {
        records: rows,
        ..dataset(sizing, "conditional")
    };
    recipe.create(&data);
    recipe.load(&data, "load", THREADS);
    let run = Measure::table(
        data.only(Operation::CheckAndPut, KeyOrder::Uniform),
        sizing.clients(THREADS),
        stop,
    );
    recipe.measure("check-and-put", "atomic", "check and put", run);
    recipe.check(&data, "check-and-put-check");
    recipe.done()
}
