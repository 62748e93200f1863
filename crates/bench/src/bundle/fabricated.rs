//! A fabricated bundle for tests and for work on the report's layout.
//!
//! NOTHING IN IT WAS MEASURED: all figures come from the formulas below, and the names of its targets say so.
//!
//! Compiled into tests, and into `examples/sample_report.rs`. Both have a `bench` that names this crate.

use super::bench::bundle::{Bundle, FORMAT, Party, Witness};
use super::bench::outcome::histogram::{self, merge_kinds, record};
use super::bench::outcome::{
    EncodedHistogram, Ending, Event, KindOutcome, RunOutcome, STALE_READS, Second, Skew, WorkerOutcome,
};
use super::bench::plan::{
    Activity, Axis, Experiment, Metric, Point, Published, Role, Run, Stage, Stop, Suite, Workload,
};
use super::bench::xray::{DiskSample, GcPause, HostSample, ProcessSample, Watched, Xray};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Seconds since 1970 at which the fabricated suite started.
const STARTED_AT: f64 = 1_767_225_600.0;
/// Times that each experiment was run on each target.
const REPEATS: u32 = 2;

/// A small deterministic generator.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between `1 - spread` and `1 + spread`.
    fn around_one(&mut self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.unit() - 1.0)
    }

    /// Roughly normal, mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// A whole bundle: three targets, two repeats, every kind of chart, failed, skipped and impossible runs. `factor`
/// multiplies the first target's throughput, so that two bundles differ.
pub fn bundle(factor: f64) -> Bundle {
    static PLAIN: OnceLock<Bundle> = OnceLock::new();
    if factor == 1.0 {
        PLAIN.get_or_init(|| made(factor)).clone()
    } else {
        made(factor)
    }
}

fn made(factor: f64) -> Bundle {
    let suite = suite();
    let mut dice = Dice(42);
    let mut bundle = Bundle {
        format: FORMAT,
        tool: "stele-bench 0.1.0 (fabricated test data)".into(),
        command: [
            "stele-bench",
            "run",
            "fabricated",
            "--scale",
            "quick",
            "--out",
            "a folder",
        ]
        .map(String::from)
        .into(),
        started_at: STARTED_AT,
        repeats: Some(REPEATS),
        machine: [
            ("processor", "Fabricated Processor 3.0 GHz"),
            ("cores", "2"),
            ("memory", "16 GiB"),
            ("kernel", "Linux 6.1.0"),
            ("file system", "ext4"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        parties: parties(),
        witnesses: vec![
            witness("hbase", "get, 1 client", 9_000.0),
            witness("hbase", "get, 16 clients", 95_000.0),
            witness("hbase", "put, 16 clients", 90_000.0),
            witness("hbase", "scan of 1,000 rows, 4 clients", 900_000.0),
            witness("bigtable", "get, 16 clients", 31_000.0),
        ],
        ..Bundle::default()
    };
    let mut clock = 5.0;
    for experiment in &suite.experiments {
        for repeat in 1..=REPEATS {
            for party in 0..bundle.parties.len() {
                for stage in &experiment.stages {
                    let Stage::Run(run) = stage else { continue };
                    let outcome = outcome(experiment, run, party, repeat, factor, clock, &mut dice);
                    clock += outcome.seconds + 2.0;
                    bundle.runs.push(outcome);
                }
            }
        }
    }
    bundle.ended_at = STARTED_AT + clock;
    bundle.xray = xray(&bundle, &mut dice);
    bundle.suite = suite;
    bundle
}

fn parties() -> Vec<Party> {
    vec![
        party(
            "stele (fabricated)",
            "bigtable://127.0.0.1:8640/bench",
            "0.1.0",
            &[
                ("block_cache_bytes", "536870912"),
                ("wal_sync", "always"),
                ("memtable_bytes", "67108864"),
            ],
        ),
        party(
            "hbase (fabricated)",
            "hbase://127.0.0.1:16020",
            "2.6.4",
            &[
                ("hbase.wal.hsync", "true"),
                ("hfile.block.cache.size", "0.4"),
                ("heap", "8g"),
                ("hbase.hregion.memstore.mslab.enabled", "true"),
            ],
        ),
        party(
            "hbase-small (fabricated)",
            "hbase://127.0.0.1:16021",
            "2.6.4",
            &[
                ("hbase.wal.hsync", "true"),
                ("hfile.block.cache.size", "0.2"),
                ("heap", "2g"),
                ("hbase.hregion.memstore.mslab.enabled", "true"),
            ],
        ),
    ]
}

fn party(name: &str, url: &str, version: &str, settings: &[(&str, &str)]) -> Party {
    let process = name.split(' ').next().unwrap_or(name);
    Party {
        name: name.into(),
        version: version.into(),
        url: url.into(),
        processes: vec![Watched {
            name: process.into(),
            pid: 4242,
            gc_log: None,
        }],
        configuration: settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        data_dirs: vec!["/tmp/data".into()],
        description: vec![("tablet servers".into(), "1".into())],
    }
}

fn witness(protocol: &str, operation: &str, rate: f64) -> Witness {
    Witness {
        protocol: protocol.into(),
        operation: operation.into(),
        operations_per_second: rate,
        generator_micros: 1e6 / rate * 0.8,
        p50_micros: 85,
    }
}

fn suite() -> Suite {
    let writes = writes();
    let reads = experiment(
        "B07",
        "Random read by data set",
        Metric::OperationsPerSecond,
        ("data set", "GB", true),
        &["uniform", "zipf 0.8"],
        &["0.25", "0.5", "1", "2", "4", "8"],
    );
    let clients = experiment(
        "B05",
        "Get, put and 70/30 mix by clients",
        Metric::OperationsPerSecond,
        ("operation", "", false),
        &["16 clients", "64 clients"],
        &["get", "put", "mix"],
    );
    let fetch = experiment(
        "B12",
        "Scan by rows for each fetch",
        Metric::RowsPerSecond,
        ("rows for each fetch", "", true),
        &["scan"],
        &["1", "10", "20"],
    );
    let load = experiment(
        "B18",
        "BG load time",
        Metric::Seconds,
        ("threads", "", true),
        &["no image", "12 kB image"],
        &["1", "10", "100"],
    );
    let stale = experiment(
        "B22",
        "BG update mixes, staleness",
        Metric::StalePercent,
        ("update mix", "", false),
        &["10 threads"],
        &["very low", "low", "high"],
    );
    let long = experiment(
        "B24",
        "Server killed",
        Metric::OperationsPerSecond,
        ("", "", false),
        &["mix"],
        &["one server"],
    );
    let impossible = Experiment {
        unavailable: Some("the public protocols have no Map-Reduce".into()),
        ..experiment(
            "B06",
            "Map-Reduce scan",
            Metric::RowsPerSecond,
            ("", "", false),
            &[],
            &[],
        )
    };
    Suite {
        name: "fabricated".into(),
        document: "Fabricated test data: nothing on this page was measured".into(),
        scale: 0.001,
        experiments: vec![writes, reads, clients, fetch, load, stale, long, impossible],
    }
}

fn writes() -> Experiment {
    let sizes = ["10000", "1000", "100", "10"];
    let published = |system: &str, x: &str, value: Option<f64>| Published {
        system: system.into(),
        point: Point {
            series: "random write".into(),
            x: x.into(),
        },
        value,
        note: if value.is_none() {
            "concurrent mode failure".into()
        } else {
            String::new()
        },
    };
    Experiment {
        published: [(188e6, 93.5e6), (183e6, 84e6)]
            .iter()
            .zip(sizes)
            .flat_map(|((hypertable, hbase), x)| {
                [
                    published("Hypertable", x, Some(*hypertable)),
                    published("HBase", x, Some(*hbase)),
                ]
            })
            .chain([
                published("Hypertable", "100", Some(113e6)),
                published("HBase", "100", None),
            ])
            .chain([
                published("Hypertable", "10", Some(34e6)),
                published("HBase", "10", None),
            ])
            .collect(),
        ..experiment(
            "B01",
            "Random write by value size",
            Metric::BytesPerSecond,
            ("value size", "B", true),
            &["random write"],
            &sizes,
        )
    }
}

fn experiment(
    id: &str,
    title: &str,
    metric: Metric,
    axis: (&str, &str, bool),
    series: &[&str],
    points: &[&str],
) -> Experiment {
    let stages = series.iter().flat_map(|series| {
        points.iter().map(move |x| {
            Stage::Run(Box::new(Run {
                label: format!("{series}-{x}").replace([' ', '.'], "-"),
                point: Some(Point {
                    series: (*series).into(),
                    x: (*x).into(),
                }),
                activity: Activity::Table(Workload {
                    table: "bench-t".into(),
                    verify: true,
                    ..Workload::default()
                }),
                clients: 32,
                stop: Stop::Seconds(8.0),
                ..Run::default()
            }))
        })
    });
    Experiment {
        id: id.into(),
        title: title.into(),
        about: "The question and the method of the document would stand here, if this were not fabricated.".into(),
        differences: vec![
            "One machine instead of sixteen.".into(),
            "A thousandth of the volume.".into(),
        ],
        metric,
        axis: Axis {
            label: axis.0.into(),
            unit: axis.1.into(),
            numeric: axis.2,
        },
        stages: stages.collect(),
        ..Experiment::default()
    }
}

/// Operations per second that the formulas give a point.
fn rate(experiment: &str, point: &Point, party: usize) -> f64 {
    let x: f64 = point.x.parse().unwrap_or(1.0);
    let base = match (experiment, point.series.as_str()) {
        ("B01", _) => 120e6 / (x + 900.0),
        ("B07", "uniform") => 22_000.0 / (1.0 + x),
        ("B07", _) => 26_000.0 / (1.0 + x / 3.0),
        ("B12", _) => 900.0,
        ("B18", _) => 3_000.0 * (1.0 + x.ln()),
        _ => 14_000.0,
    };
    let bend = if experiment == "B07" && x < 0.6 {
        [1.0, 1.25, 1.1]
    } else {
        [1.0, 0.62, 0.45]
    };
    base * bend.get(party).copied().unwrap_or(1.0)
}

fn outcome(
    experiment: &Experiment,
    run: &Run,
    party: usize,
    repeat: u32,
    factor: f64,
    clock: f64,
    dice: &mut Dice,
) -> RunOutcome {
    let point = run.point.clone().unwrap_or_default();
    let x: f64 = point.x.parse().unwrap_or(1.0);
    let mut outcome = RunOutcome {
        experiment: experiment.id.clone(),
        label: run.label.clone(),
        role: Role::Measure,
        point: run.point.clone(),
        party,
        repeat,
        started_at: STARTED_AT + clock,
        clients: run.clients,
        ..RunOutcome::default()
    };
    if experiment.id == "B18" && party == 1 {
        outcome.ending = Ending::Skipped("an earlier stage failed: the table could not be made".into());
        return outcome;
    }
    let rate = rate(&experiment.id, &point, party) * if party == 0 { factor } else { 1.0 } * dice.around_one(0.04);
    outcome.seconds = match experiment.id.as_str() {
        "B18" => 20_000.0 / rate,
        "B24" => 120.0,
        _ => 8.0,
    };
    let rows = if experiment.id == "B12" { x } else { 1.0 };
    let bytes = if experiment.id == "B01" { x + 20.0 } else { 1_020.0 };
    let name = if experiment.id == "B01" { "put" } else { "get" };
    let samples = 2_000u64;
    let weight = ((rate * outcome.seconds / samples as f64 / 2.0) as u64).max(1);
    for worker in 0..2 {
        let kind = kind(name, 32e6 / rate, samples, weight, rows, bytes, dice);
        outcome.workers.push(WorkerOutcome {
            worker,
            place: format!("fabricated:{}", 1000 + worker),
            cpu_seconds: kind.steps as f64 * 11e-6,
            client_seconds: kind.micros_sum / 1e6,
            kinds: vec![kind],
            retries: u64::from(party == 1) * 3,
            ..WorkerOutcome::default()
        });
    }
    outcome.kinds = merge_kinds(outcome.workers.iter().map(|worker| worker.kinds.as_slice())).unwrap_or_default();
    outcome.server_cpu = BTreeMap::from([(
        ["stele", "hbase", "hbase-small"]
            .get(party)
            .map_or("server", |name| name)
            .to_owned(),
        outcome.seconds * dice.around_one(0.1) * 1.3,
    )]);
    outcome.series = series(&outcome, rate, dice);
    finish(&mut outcome, experiment, &point);
    outcome
}

/// Endings, events and other results of some experiments.
fn finish(outcome: &mut RunOutcome, experiment: &Experiment, point: &Point) {
    outcome.verdict.checked = outcome.kinds.iter().map(|kind| kind.operations).sum();
    if point.series.starts_with("zipf") {
        outcome.skew = Some(Skew {
            top_1_percent: 0.31,
            top_10_percent: 0.58,
            top_20_percent: 0.718,
            distinct: 80_000,
            operations: 200_000,
        });
    }
    if experiment.id == "B12" {
        (outcome.expected_rows, outcome.returned_rows) = (Some(100_000), Some(100_000));
    }
    if experiment.id == "B01" && outcome.party == 2 && point.x == "10" {
        outcome.verdict.missing = 11;
        outcome.verdict.examples = vec!["row 00000000000000004711 is missing <script>alert(1)</script>".into()];
        (outcome.expected_rows, outcome.returned_rows) = (Some(100_000), Some(99_989));
        outcome.ending = Ending::Failed(vec!["11 rows of 100000 were not returned".into()]);
    }
    if experiment.id == "B22" && outcome.party > 0 {
        outcome.verdict.stale = outcome.verdict.checked / 400;
        outcome.ending = Ending::Failed(vec![format!("{} {STALE_READS}", outcome.verdict.stale)]);
    }
    if experiment.id == "B24" {
        outcome.events = vec![
            Event {
                at: 40.0,
                text: "command that kills a server: kill 4242".into(),
            },
            Event {
                at: 75.0,
                text: "worker 1 died; its range 4000..5000 was given to worker 0".into(),
            },
        ];
    }
}

fn kind(name: &str, mean: f64, samples: u64, weight: u64, rows: f64, bytes: f64, dice: &mut Dice) -> KindOutcome {
    let mut histogram = histogram::new();
    let mut kind = KindOutcome {
        name: name.into(),
        ..KindOutcome::default()
    };
    for _ in 0..samples {
        let tail = if dice.unit() < 0.01 { 8.0 } else { 1.0 };
        let micros = (mean * 0.8 * (0.5 * dice.normal()).exp() * tail) as u64;
        for _ in 0..weight.min(4) {
            record(&mut histogram, micros);
        }
        let weight = weight.min(4) as f64;
        kind.micros_sum += micros as f64 * weight;
        kind.micros_square_sum += (micros as f64).powi(2) * weight;
        kind.micros_max = kind.micros_max.max(micros);
    }
    kind.steps = histogram.len();
    kind.operations = samples * weight;
    kind.rows = (kind.operations as f64 * rows) as u64;
    kind.bytes = (kind.rows as f64 * bytes) as u64;
    kind.histogram = EncodedHistogram::encode(&histogram);
    kind
}

fn series(outcome: &RunOutcome, rate: f64, dice: &mut Dice) -> Vec<Second> {
    (1..=outcome.seconds as u64)
        .map(|second| {
            let outage = outcome.experiment == "B24" && (40..52).contains(&second);
            let drift = if outcome.experiment == "B24" && outcome.party == 2 {
                1.0 - second as f64 / 400.0
            } else {
                1.0
            };
            let operations = if outage {
                0.0
            } else {
                rate * drift * dice.around_one(0.08)
            };
            Second {
                at: second as f64,
                operations: operations as u64,
                failures: 0,
                bytes: (operations * 1020.0) as u64,
                p50_micros: (25e6 / rate) as u64,
                p99_micros: (120e6 / rate) as u64,
                max_micros: (400e6 / rate) as u64,
            }
        })
        .collect()
}

fn xray(bundle: &Bundle, dice: &mut Dice) -> Xray {
    let mut xray = Xray::default();
    let mut busy = [0.0f64; 4];
    let mut disk = DiskSample::default();
    let names = ["stele", "hbase", "hbase-small", "generator"];
    for second in 0..=(bundle.ended_at - STARTED_AT) as u64 {
        let at = second as f64;
        let within =
            |run: &&RunOutcome| (run.started_at - STARTED_AT..run.started_at - STARTED_AT + run.seconds).contains(&at);
        let active = bundle.runs.iter().find(within).map(|run| run.party);
        for (process, name) in names.iter().enumerate() {
            let load = if Some(process) == active {
                1.3
            } else if process == 3 && active.is_some() {
                0.4
            } else {
                0.01
            };
            busy[process] += load * dice.around_one(0.1);
            xray.processes.push(ProcessSample {
                at,
                process: (*name).into(),
                user_seconds: busy[process] * 0.75,
                system_seconds: busy[process] * 0.25,
                resident_bytes: [400u64, 3_000, 1_900, 60][process] << 20,
                minor_faults: second * 100,
                major_faults: second / 50,
                read_bytes: second << 16,
                written_bytes: (busy[process] * 2e7) as u64,
            });
        }
        disk.operations += 120;
        disk.written_bytes += 40 << 20;
        disk.read_bytes += 3 << 20;
        disk.busy_millis += 300;
        disk.wait_millis += 700;
        xray.hosts.push(HostSample {
            at,
            cpu_seconds: BTreeMap::from([
                ("user".into(), at * 1.2),
                ("system".into(), at * 0.4),
                ("iowait".into(), at * 0.05),
                ("idle".into(), at * 0.35),
            ]),
            received_bytes: BTreeMap::from([("lo".into(), second * 9_000_000)]),
            sent_bytes: BTreeMap::from([("lo".into(), second * 9_000_000)]),
            disks: BTreeMap::from([("sda".into(), disk.clone())]),
        });
        if second % 7 == 3 {
            xray.pauses.push(GcPause {
                process: "hbase".into(),
                at,
                millis: 12.0 + 30.0 * dice.unit(),
                cause: "G1 Evacuation Pause (young)".into(),
            });
        }
    }
    xray
}
