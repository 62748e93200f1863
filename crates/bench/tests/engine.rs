//! The engine against a target in memory: counts, verdicts, and reaction to dead workers.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::panic,
    reason = "tests of a load generator, which uses real sockets and processes"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stele_bench::bundle::{Bundle, Party};
use stele_bench::engine::conductor::{Conductor, Rival};
use stele_bench::engine::dispatcher::{Dispatcher, Hiring, Observer, Order};
use stele_bench::engine::progress::Progress;
use stele_bench::engine::worker::{self, Join};
use stele_bench::outcome::{Ending, RunOutcome, Second};
use stele_bench::plan::{
    Activity, Experiment, KeyFormat, KeyOrder, Keys, OpenLoop, Operation, Role, Run, Stage, Stop, Values, Workload,
};
use stele_bench::target::{self, TableSpec};

const TABLE: &str = "bench-test";
const RECORDS: u64 = 20_000;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

fn hiring(remote: u32) -> Hiring {
    Hiring {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        local: 0,
        remote,
        threads: 2,
        token: "secret".into(),
    }
}

/// A dispatcher with workers in this process, which share `memory://` targets with it.
async fn with_threads(workers: u32) -> Dispatcher {
    let mut dispatcher = Dispatcher::listen(hiring(workers)).await.expect("a dispatcher");
    for _ in 0..workers {
        let join = Join {
            address: dispatcher.address().to_string(),
            token: "secret".into(),
            threads: 2,
        };
        std::thread::spawn(move || block_on(worker::run(join)));
    }
    dispatcher.hire().await.expect("workers");
    dispatcher
}

/// A run on a machine with other load may be disturbed; this many in a row are not.
const ATTEMPTS: usize = 5;

/// Whether one of a few attempts is as it must be. An engine that is wrong is wrong in each of them.
fn undisturbed(attempt: impl Fn() -> Result<(), String>) {
    let mut disturbed = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(what) => disturbed.push(what),
        }
    }
    panic!("{disturbed:#?}");
}

fn ensure(holds: bool, what: String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what) }
}

/// Kills a worker when the first operations are done.
struct Killer(Option<Child>);

impl Observer for Killer {
    fn server_cpu(&mut self) -> std::collections::BTreeMap<String, f64> {
        std::collections::BTreeMap::new()
    }

    fn progress(&mut self, _: &Run, _: f64, done: u64, _: u64, _: Option<&Second>) {
        if let Some(mut doomed) = self.0.take_if(|_| done > 0) {
            doomed.kill().expect("a process to kill");
            doomed.wait().expect("its end");
        }
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

struct Quiet;

impl Observer for Quiet {
    fn server_cpu(&mut self) -> std::collections::BTreeMap<String, f64> {
        std::collections::BTreeMap::new()
    }

    fn progress(&mut self, _: &Run, _: f64, _: u64, _: u64, _: Option<&Second>) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

fn spec() -> TableSpec {
    TableSpec {
        name: TABLE.into(),
        families: vec!["f0".into()],
        max_versions: 1,
        ..TableSpec::default()
    }
}

fn run(label: &str, role: Role, mix: Vec<(Operation, f64)>, order: KeyOrder, stop: Stop) -> Run {
    Run {
        label: label.into(),
        role,
        activity: Activity::Table(Workload {
            table: TABLE.into(),
            mix,
            keys: Keys {
                records: RECORDS,
                order,
                format: KeyFormat::Padded { digits: 12 },
            },
            values: Values {
                bytes: 100,
                columns: 1,
                ..Values::default()
            },
            verify: true,
        }),
        clients: 7,
        stop,
        seed: 3,
        ..Run::default()
    }
}

fn load() -> Run {
    let buffered = Operation::BufferedPut { buffer_bytes: 50_000 };
    run(
        "load",
        Role::Load,
        vec![(buffered, 1.0)],
        KeyOrder::Sequential,
        Stop::Operations(RECORDS),
    )
}

fn check() -> Run {
    let scan = Operation::Scan { rows_per_fetch: None };
    run(
        "check",
        Role::Check,
        vec![(scan, 1.0)],
        KeyOrder::Sequential,
        Stop::Operations(RECORDS),
    )
}

fn mixed(seconds: f64) -> Run {
    let mix = vec![(Operation::Get, 0.6), (Operation::Put, 0.4)];
    run(
        "mixed",
        Role::Measure,
        mix,
        KeyOrder::Zipf { exponent: 0.99 },
        Stop::Seconds(seconds),
    )
}

/// Load, mix and check on one target.
async fn experiment(url: &str, workers: u32) -> Vec<RunOutcome> {
    let mut dispatcher = with_threads(workers).await;
    let target = target::open(url).await.expect("a target");
    let party = Party {
        name: "memory".into(),
        url: url.into(),
        ..Party::default()
    };
    let stages = vec![
        Stage::Create(spec()),
        Stage::Run(Box::new(load())),
        Stage::Run(Box::new(mixed(0.5))),
        Stage::Run(Box::new(check())),
    ];
    let experiment = Experiment {
        id: "T01".into(),
        stages,
        ..Experiment::default()
    };
    let mut bundle = Bundle::default();
    let mut conductor = Conductor {
        dispatcher: &mut dispatcher,
        rivals: &[Rival { party, target }],
        repeats: 1,
        pause_seconds: 0.0,
        progress: Progress::new(3),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    conductor
        .experiments(&[experiment], &mut bundle, |_| Ok(()))
        .await
        .expect("an end");
    bundle.runs
}

fn causes(outcome: &RunOutcome) -> String {
    match &outcome.ending {
        Ending::Failed(causes) => causes.join("; "),
        other => panic!("{} was to fail, and {other:?}", outcome.label),
    }
}

#[test]
fn an_honest_target_passes_and_every_operation_is_counted_once() {
    let runs = block_on(experiment("memory://honest", 2));
    for run in &runs {
        assert_eq!(run.ending, Ending::Passed, "{}: {:?}", run.label, run.verdict.examples);
    }
    let [load, mixed, check] = runs.as_slice() else {
        panic!("{} runs", runs.len());
    };
    assert_eq!(load.kinds.iter().map(|k| k.operations).sum::<u64>(), RECORDS);
    assert_eq!(load.workers.len(), 2);
    assert_eq!(
        (check.expected_rows, check.returned_rows),
        (Some(RECORDS), Some(RECORDS))
    );
    assert!(mixed.verdict.checked > 1_000, "{:?}", mixed.verdict);
    for kind in &mixed.kinds {
        assert_eq!(
            kind.histogram.decode().expect("a histogram").len(),
            kind.steps,
            "{}",
            kind.name
        );
    }
    let skew = mixed.skew.as_ref().expect("a skew");
    assert!(skew.top_20_percent > 0.6, "{skew:?}");
}

#[test]
fn a_target_that_drops_one_row_in_thousands_fails_with_all_that_wrote_to_it() {
    let runs = block_on(experiment("memory://drops?lie=drop:9973", 1));
    assert!(causes(&runs[2]).contains("missing"), "{}", causes(&runs[2]));
    assert!(causes(&runs[0]).contains("the check"), "{}", causes(&runs[0]));
}

#[test]
fn a_target_that_answers_stale_values_fails() {
    let runs = block_on(experiment("memory://stale?lie=stale:500", 1));
    assert!(causes(&runs[1]).contains("stale"), "{}", causes(&runs[1]));
}

#[test]
fn a_target_that_leaves_rows_out_of_scans_fails() {
    let runs = block_on(experiment("memory://skips?lie=skip:7001", 1));
    assert!(causes(&runs[2]).contains("missing"), "{}", causes(&runs[2]));
}

#[test]
fn a_target_that_changes_bytes_fails() {
    let runs = block_on(experiment("memory://wrong?lie=wrong:300", 1));
    assert!(causes(&runs[1]).contains("wrong"), "{}", causes(&runs[1]));
}

#[test]
fn a_timed_run_takes_its_time_and_no_more() {
    undisturbed(timed_run);
}

fn timed_run() -> Result<(), String> {
    let outcome = block_on(async {
        let mut dispatcher = with_threads(1).await;
        let target = target::open("memory://timed").await.expect("a target");
        target.create_table(&spec()).await.expect("a table");
        let puts = vec![(Operation::Put, 1.0)];
        let mut run = run("puts", Role::Measure, puts, KeyOrder::Uniform, Stop::Seconds(1.0));
        run.warmup_seconds = 0.5;
        dispatcher
            .run(
                &Order {
                    run: &run,
                    target: "memory://timed",
                    written: &[],
                },
                &mut Quiet,
            )
            .await
    });
    assert_eq!(outcome.ending, Ending::Passed);
    assert!((outcome.seconds - 1.0).abs() < 0.01, "{}", outcome.seconds);
    let counted: u64 = outcome.kinds.iter().map(|k| k.operations).sum();
    let performed: u64 = outcome.series.iter().map(|s| s.operations).sum();
    // A third of the time is warm-up, so a third of the operations, roughly, are not counted.
    ensure(
        counted < performed && counted > performed / 3,
        format!("{counted} of {performed}"),
    )?;
    let busy: f64 = outcome.workers.iter().map(|w| w.client_seconds).sum();
    ensure(
        busy <= 7.0 * 1.2,
        format!("{busy} client seconds of 7 clients in one second"),
    )
}

#[test]
fn an_open_loop_keeps_its_rate_and_charges_a_stall_to_every_operation_that_was_due() {
    undisturbed(open_loop);
}

fn open_loop() -> Result<(), String> {
    let outcome = block_on(async {
        let mut dispatcher = with_threads(1).await;
        let url = "memory://open?lie=slow:200";
        let target = target::open(url).await.expect("a target");
        target.create_table(&spec()).await.expect("a table");
        let puts = vec![(Operation::Put, 1.0)];
        let mut run = run("puts", Role::Measure, puts, KeyOrder::Uniform, Stop::Seconds(2.0));
        // One client: when it is held up for 200 ms, the 40 operations due meanwhile are all late.
        run.clients = 1;
        run.rate = Some(OpenLoop {
            per_second: 200.0,
            poisson: false,
        });
        dispatcher
            .run(
                &Order {
                    run: &run,
                    target: url,
                    written: &[],
                },
                &mut Quiet,
            )
            .await
    });
    let kind = &outcome.kinds[0];
    assert!(kind.operations <= 400, "{} operations", kind.operations);
    ensure(kind.operations >= 350, format!("{} operations", kind.operations))?;
    let histogram = kind.histogram.decode().expect("a histogram");
    let late = histogram.count_between(20_000, 10_000_000);
    assert!(histogram.max() >= 190_000, "the stall itself: {}", histogram.max());
    assert!(late >= 20, "{late} operations were late by more than 20 ms");
    ensure(late <= 60, format!("{late} operations were late by more than 20 ms"))
}

#[test]
fn a_killed_worker_is_noticed_and_its_ranges_are_done_by_another() {
    let (outcome, mut survivor) = block_on(async {
        let mut dispatcher = Dispatcher::listen(hiring(2)).await.expect("a dispatcher");
        let address = dispatcher.address().to_string();
        let doomed = process(&address);
        let survivor = process(&address);
        dispatcher.hire().await.expect("workers");
        let mut killer = Killer(Some(doomed));
        let gets = vec![(Operation::Get, 1.0)];
        let mut run = run(
            "gets",
            Role::Measure,
            gets,
            KeyOrder::Uniform,
            Stop::Operations(100_000),
        );
        run.rate = Some(OpenLoop {
            per_second: 40_000.0,
            poisson: false,
        });
        if let Activity::Table(workload) = &mut run.activity {
            workload.verify = false;
        }
        let outcome = dispatcher
            .run(
                &Order {
                    run: &run,
                    target: "null://hbase",
                    written: &[],
                },
                &mut killer,
            )
            .await;
        assert!(killer.0.is_none(), "nobody was killed");
        (outcome, survivor)
    });
    // Ends because the dispatcher is gone, with the runtime that held its sockets.
    survivor.wait().expect("its end");
    assert_eq!(outcome.ending, Ending::Passed);
    assert_eq!(outcome.done, std::slice::from_ref(&(0..100_000)));
    let texts: Vec<_> = outcome.events.iter().map(|e| e.text.as_str()).collect();
    assert!(
        texts.iter().any(|t| t.contains("died") && t.contains("done again")),
        "{texts:?}"
    );
}

fn process(address: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_stele-bench"))
        .args(["worker", "--join", address, "--threads", "1"])
        .env("STELE_BENCH_TOKEN", "secret")
        .spawn()
        .expect("a worker process")
}

#[test]
fn a_worker_without_the_token_is_turned_away() {
    block_on(async {
        let dispatcher = Dispatcher::listen(hiring(1)).await.expect("a dispatcher");
        let join = Join {
            address: dispatcher.address().to_string(),
            token: "guess".into(),
            threads: 1,
        };
        // It is told nothing, and its connection is closed.
        let end = tokio::time::timeout(Duration::from_secs(5), worker::run(join)).await;
        assert!(end.is_ok());
    });
}
