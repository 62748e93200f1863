//! The engine against a target in memory: counts, verdicts, and reaction to dead workers.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::panic,
    reason = "tests of a load generator, which uses real sockets and processes"
)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stele_bench::bundle::{Bundle, Party};
use stele_bench::engine::conductor::{Conductor, Rival};
use stele_bench::engine::dispatcher::{Dispatcher, Hiring, Observer, Order};
use stele_bench::engine::progress::Progress;
use stele_bench::engine::warm::Warming;
use stele_bench::engine::worker::{self, Join};
use stele_bench::outcome::{Ending, RunOutcome, Second};
use stele_bench::plan::{
    Activity, Disruption, Experiment, KeyFormat, KeyOrder, Keys, OpenLoop, Operation, Role, Run, Stage, Stop, Values,
    Workload,
};
use stele_bench::target::{self, Connection, TableSpec, Target, TargetError};
use stele_bench::xray::{ProcessTime, Watched};

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
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime> {
        BTreeMap::new()
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
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime> {
        BTreeMap::new()
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
    let target = target::open(url).await.expect("a target");
    let runs = vec![load(), mixed(0.5), check()];
    let runs = runs.into_iter().map(|run| Stage::Run(Box::new(run)));
    let stages = [Stage::Create(spec())].into_iter().chain(runs).collect();
    conduct(target, url, stages, workers).await
}

/// The outcomes of one experiment.
async fn conduct(target: Arc<dyn Target>, url: &str, stages: Vec<Stage>, workers: u32) -> Vec<RunOutcome> {
    let mut dispatcher = with_threads(workers).await;
    let party = Party {
        name: "memory".into(),
        url: url.into(),
        ..Party::default()
    };
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

/// The warm-ups and the outcomes of two experiments of one run on two targets, of which the second is on a virtual machine.
/// Each test has targets of its own.
async fn conduct_two(test: &str, warming: &Warming, repeats: u32) -> Bundle {
    let mut dispatcher = with_threads(1).await;
    let mut rivals = Vec::new();
    for name in ["native", "virtual"] {
        let url = format!("memory://{name}-{test}");
        let gc_log = (name == "virtual").then(|| "gc.log".to_owned());
        let process = Watched {
            gc_log,
            ..Watched::default()
        };
        let party = Party {
            name: name.into(),
            url: url.clone(),
            processes: vec![process],
            ..Party::default()
        };
        let target = target::open(&url).await.expect("a target");
        rivals.push(Rival { party, target });
    }
    let mut bundle = Bundle::default();
    let mut conductor = Conductor {
        dispatcher: &mut dispatcher,
        rivals: &rivals,
        repeats,
        pause_seconds: 0.0,
        progress: Progress::new(3),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    conductor.warm_up(warming, &mut bundle).await;
    let experiment = |id: &str| Experiment {
        id: id.into(),
        stages: vec![Stage::Create(spec()), Stage::Run(Box::new(load()))],
        ..Experiment::default()
    };
    conductor
        .experiments(&["T02", "T03"].map(experiment), &mut bundle, |_| Ok(()))
        .await
        .expect("an end");
    bundle
}

#[test]
fn another_target_begins_in_each_repeat_and_each_experiment() {
    let turns = |repeats, id: &str| {
        let bundle = block_on(conduct_two("turns", &Warming::new(Some(0.0), 1), repeats));
        let runs = bundle.runs.iter().filter(|run| run.experiment == id);
        runs.map(|run| (run.repeat, run.party)).collect::<Vec<_>>()
    };
    assert_eq!(turns(3, "T02"), [(1, 0), (1, 1), (2, 1), (2, 0), (3, 0), (3, 1)]);
    assert_eq!(turns(1, "T03"), [(1, 1), (1, 0)]);
}

#[test]
fn a_target_on_a_virtual_machine_is_warmed_up_by_operations() {
    // No machine does as many operations in the first part, and none takes a minute for two loads of 50,000 rows.
    let warming = Warming {
        seconds: 0.2,
        jvm_operations: 300_000,
        jvm_seconds_max: 60.0,
        seed: 1,
    };
    let bundle = block_on(conduct_two("warmed", &warming, 1));
    let parts = |party| {
        let warm = bundle
            .runs
            .iter()
            .filter(move |run| run.party == party && run.role == Role::Warm);
        warm.map(|run| run.experiment.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(parts(0), ["warm-up"; 3]);
    assert_eq!(parts(1), [["warm-up"; 3], ["warm-up-jvm"; 3]].concat());
    assert!(bundle.runs.iter().all(|run| run.ending == Ending::Passed));
    assert!(bundle.warm_up(1).0 > bundle.warm_up(0).0);
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
    let latencies = mixed.series.iter().map(|s| (s.p50_micros, s.p99_micros, s.max_micros));
    let ordered = |(p50, p99, max): (u64, u64, u64)| 0 < p50 && p50 <= p99 && p99 <= max;
    assert!(latencies.into_iter().any(ordered), "{:?}", mixed.series);
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

/// Puts of 99 rows by one client, in ten ranges, while a server is killed.
fn disrupted() -> Run {
    let puts = vec![(Operation::Put, 1.0)];
    let mut run = run("pull", Role::Measure, puts, KeyOrder::Sequential, Stop::Operations(99));
    run.clients = 1;
    run.disruption = Some(Disruption {
        at_seconds: 0.0,
        command: "true".into(),
    });
    run
}

#[test]
fn a_failed_operation_does_not_hide_lost_rows_beside_it() {
    // Every range has a failure, and at least one row that is acknowledged and lost.
    let runs = block_on(disrupted_and_checked("memory://hidden?lie=drop:5&lie=fail:7"));
    assert!(causes(&runs[1]).contains("missing"), "{}", causes(&runs[1]));
    assert!(causes(&runs[0]).contains("the check"), "{}", causes(&runs[0]));
}

#[test]
fn failed_operations_alone_do_not_fail_a_run_in_which_a_server_is_killed() {
    // Call 99 is the last put, and 110 would be the first one after the check.
    let runs = block_on(disrupted_and_checked("memory://failing?lie=fail:11"));
    assert_eq!(runs[0].ending, Ending::Passed);
    assert_eq!(runs[0].kinds[0].failures.values().sum::<u64>(), 9);
    assert_eq!(runs[1].ending, Ending::Passed, "{:?}", runs[1].verdict.examples);
    let rows = (runs[1].expected_rows, runs[1].returned_rows, runs[1].unsure_rows);
    assert_eq!(rows, (Some(90), Some(90), 9));
}

/// One run of puts in which a command is to kill a server.
fn killed_by(command: &str, at_seconds: f64) -> RunOutcome {
    let url = "memory://killed";
    let mut run = disrupted();
    run.disruption = Some(Disruption {
        at_seconds,
        command: command.into(),
    });
    let runs = block_on(async {
        let target = target::open(url).await.expect("a target");
        let stages = vec![Stage::Create(spec()), Stage::Run(Box::new(run))];
        conduct(target, url, stages, 1).await
    });
    runs.into_iter().next().expect("a run")
}

#[test]
fn a_run_in_which_no_server_was_killed_fails() {
    let refused = causes(&killed_by("echo no such process >&2; false", 0.0));
    assert!(
        refused.contains("exit status: 1") && refused.contains("no such process"),
        "{refused}"
    );
    let unknown = causes(&killed_by("no-such-command-here", 0.0));
    assert!(unknown.contains("exit status: 127"), "{unknown}");
    let early = causes(&killed_by("true", 3_600.0));
    assert!(early.contains("was to be killed at 3600.0 s"), "{early}");
}

#[test]
fn a_command_that_outlives_its_run_is_waited_for() {
    let good = killed_by("sleep 1; echo gone", 0.0);
    assert_eq!(good.ending, Ending::Passed);
    assert!(
        good.events.iter().any(|event| event.text.contains("gone")),
        "{:?}",
        good.events
    );
    let bad = causes(&killed_by("sleep 1; exit 3", 0.0));
    assert!(bad.contains("exit status: 3"), "{bad}");
}

/// An observer whose user interrupts.
struct Interrupting;

impl Observer for Interrupting {
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime> {
        BTreeMap::new()
    }

    fn progress(&mut self, _: &Run, _: f64, _: u64, _: u64, _: Option<&Second>) {}

    fn is_interrupted(&self) -> bool {
        true
    }
}

/// Gets that go on until the run is broken off, while a command is to kill a server.
fn broken_off(command: &str) -> Run {
    let gets = vec![(Operation::Get, 1.0)];
    let mut run = run("gets", Role::Measure, gets, KeyOrder::Uniform, Stop::Seconds(600.0));
    if let Activity::Table(workload) = &mut run.activity {
        workload.verify = false;
    }
    run.disruption = Some(Disruption {
        at_seconds: 0.0,
        command: command.into(),
    });
    run
}

#[test]
fn a_command_that_outlives_a_run_that_was_broken_off_is_waited_for() {
    let outcome = block_on(async {
        let mut dispatcher = Dispatcher::listen(hiring(1)).await.expect("a dispatcher");
        let mut killer = Killer(Some(process(&dispatcher.address().to_string())));
        dispatcher.hire().await.expect("a worker");
        let run = broken_off("sleep 4; echo gone");
        let order = Order {
            run: &run,
            target: "null://hbase",
            written: &[],
        };
        dispatcher.run(&order, &mut killer).await
    });
    assert!(
        causes(&outcome).contains("the last worker died"),
        "{}",
        causes(&outcome)
    );
    let is_end = |text: &str| text.contains("gone") && text.contains("exit status: 0");
    assert!(
        outcome.events.iter().any(|event| is_end(&event.text)),
        "{:?}",
        outcome.events
    );
    assert!(outcome.seconds < 600.0);
}

#[test]
fn an_interrupt_ends_the_wait_for_the_command() {
    let outcome = block_on(async {
        let run = broken_off("sleep 50");
        let order = Order {
            run: &run,
            target: "memory://interrupted",
            written: &[],
        };
        let target = target::open(order.target).await.expect("a target");
        target.create_table(&spec()).await.expect("a table");
        with_threads(1).await.run(&order, &mut Interrupting).await
    });
    assert_eq!(causes(&outcome), "interrupted");
    let texts: Vec<_> = outcome.events.iter().map(|event| event.text.as_str()).collect();
    assert!(!texts.iter().any(|text| text.contains("ended")), "{texts:?}");
}

/// Puts, and a check that compares the rows with them.
async fn disrupted_and_checked(url: &str) -> Vec<RunOutcome> {
    let target = target::open(url).await.expect("a target");
    let mut check = check();
    check.clients = 1;
    let stages = vec![
        Stage::Create(spec()),
        Stage::Run(Box::new(disrupted())),
        Stage::Run(Box::new(check)),
    ];
    conduct(target, url, stages, 1).await
}

/// A target that cannot flush.
struct Unflushed(Arc<dyn Target>);

#[async_trait::async_trait]
impl Target for Unflushed {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn create_table(&self, table: &TableSpec) -> target::Result<()> {
        self.0.create_table(table).await
    }

    async fn drop_table(&self, name: &str) -> target::Result<()> {
        self.0.drop_table(name).await
    }

    async fn flush_table(&self, _: &str) -> target::Result<()> {
        Err(TargetError::Unsupported("it has no such call".into()))
    }

    async fn connect(&self) -> target::Result<Arc<dyn Connection>> {
        self.0.connect().await
    }

    async fn describe(&self) -> target::Result<Vec<(String, String)>> {
        self.0.describe().await
    }
}

/// A target that makes no table.
struct Refusing(Arc<dyn Target>, TargetError);

#[async_trait::async_trait]
impl Target for Refusing {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn create_table(&self, _: &TableSpec) -> target::Result<()> {
        Err(self.1.clone())
    }

    async fn drop_table(&self, name: &str) -> target::Result<()> {
        self.0.drop_table(name).await
    }

    async fn flush_table(&self, name: &str) -> target::Result<()> {
        self.0.flush_table(name).await
    }

    async fn connect(&self) -> target::Result<Arc<dyn Connection>> {
        self.0.connect().await
    }

    async fn describe(&self) -> target::Result<Vec<(String, String)>> {
        self.0.describe().await
    }
}

#[test]
fn counters_of_a_timed_run_are_those_of_its_increments() {
    let increments = || {
        let mix = vec![(Operation::Increment, 1.0)];
        let mut run = run("increment", Role::Measure, mix, KeyOrder::Uniform, Stop::Seconds(0.5));
        run.warmup_seconds = 0.1;
        Stage::Run(Box::new(run))
    };
    let counted = |url: &'static str, workers| {
        block_on(async move {
            let target = target::open(url).await.expect("a target");
            let stages = vec![Stage::Create(spec()), increments(), Stage::Run(Box::new(check()))];
            conduct(target, url, stages, workers).await
        })
    };
    for (url, workers) in [("memory://counters", 1), ("memory://counters-of-two", 2)] {
        let runs = counted(url, workers);
        for run in &runs {
            assert_eq!(run.ending, Ending::Passed, "{}: {:?}", run.label, run.verdict.examples);
        }
        assert!(runs[1].verdict.checked > 0 && Some(runs[1].verdict.checked) == runs[1].expected_rows);
    }
}

#[test]
fn runs_whose_table_could_not_be_made_failed() {
    let refused = |error: TargetError| {
        block_on(async move {
            let url = "memory://refusing";
            let target = Arc::new(Refusing(target::open(url).await.expect("a target"), error));
            let runs = [load(), mixed(0.5), check()].map(|run| Stage::Run(Box::new(run)));
            let stages = [Stage::Create(spec())].into_iter().chain(runs).collect();
            conduct(target, url, stages, 1).await
        })
    };
    let why = format!("making table {TABLE}: refused: no room");
    for run in refused(TargetError::Refused("no room".into())) {
        assert_eq!(run.ending, Ending::Failed(vec![why.clone()]), "{}", run.label);
    }
    // The target need not have everything.
    for run in refused(TargetError::Unsupported("no such table".into())) {
        assert!(
            matches!(run.ending, Ending::Skipped(_)),
            "{}: {:?}",
            run.label,
            run.ending
        );
    }
}

#[test]
fn runs_on_a_table_that_was_not_flushed_say_so() {
    let settled = |url: &'static str, refuses: bool| {
        block_on(async move {
            let mut target = target::open(url).await.expect("a target");
            if refuses {
                target = Arc::new(Unflushed(target));
            }
            let settle = Stage::Settle {
                table: TABLE.into(),
                pause_seconds: 0.0,
            };
            let runs = [load(), check()].map(|run| Stage::Run(Box::new(run)));
            let [load, check] = runs;
            conduct(target, url, vec![Stage::Create(spec()), load, settle, check], 1).await
        })
    };
    let runs = settled("memory://unflushed", true);
    assert_eq!(runs[0].unflushed, None);
    let why = runs[1].unflushed.as_deref().expect("a reason");
    assert!(why.contains("it has no such call"), "{why}");
    assert_eq!(settled("memory://flushed", false)[1].unflushed, None);
}

/// An observer whose server has these processes at its first look and at its last.
struct Processes(Vec<BTreeMap<String, ProcessTime>>);

impl Observer for Processes {
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime> {
        self.0.remove(0)
    }

    fn progress(&mut self, _: &Run, _: f64, _: u64, _: u64, _: Option<&Second>) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

#[test]
fn work_of_a_process_that_has_ended_gives_no_cpu_time_of_the_others() {
    let cpu = |before: &[(&str, u64)], after: &[(&str, u64)]| {
        let processes = |starts: &[(&str, u64)], seconds| {
            let time = |started_ticks| ProcessTime {
                pid: 1,
                started_ticks,
                seconds,
            };
            starts
                .iter()
                .map(|(name, at)| ((*name).to_owned(), time(*at)))
                .collect()
        };
        let mut observer = Processes(vec![processes(before, 1.0), processes(after, 3.0)]);
        let gets = vec![(Operation::Get, 1.0)];
        let mut run = run("gets", Role::Measure, gets, KeyOrder::Uniform, Stop::Seconds(0.1));
        if let Activity::Table(workload) = &mut run.activity {
            workload.verify = false;
        }
        let order = Order {
            run: &run,
            target: "memory://processes",
            written: &[],
        };
        let outcome = block_on(async {
            let target = target::open(order.target).await.expect("a target");
            target.drop_table(TABLE).await.expect("no table");
            target.create_table(&spec()).await.expect("a table");
            with_threads(1).await.run(&order, &mut observer).await
        });
        assert_eq!(outcome.ending, Ending::Passed);
        outcome.server_cpu
    };
    let both = [("node", 7), ("store", 8)];
    let known = BTreeMap::from([("node".to_owned(), 2.0), ("store".to_owned(), 2.0)]);
    assert_eq!(cpu(&both, &both), known);
    assert_eq!(cpu(&both, &both[1..]), BTreeMap::new(), "one was killed");
    assert_eq!(cpu(&both[1..], &both), BTreeMap::new(), "one was started");
    assert_eq!(
        cpu(&both, &[("node", 9), ("store", 8)]),
        BTreeMap::new(),
        "one is another"
    );
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

/// An open loop of one client, 200 puts in one second, on a target with a lie.
fn one_second_of_puts(url: &str) -> RunOutcome {
    block_on(async {
        let mut dispatcher = with_threads(1).await;
        let target = target::open(url).await.expect("a target");
        target.create_table(&spec()).await.expect("a table");
        let puts = vec![(Operation::Put, 1.0)];
        let mut run = run("puts", Role::Measure, puts, KeyOrder::Uniform, Stop::Seconds(1.0));
        run.clients = 1;
        run.rate = Some(OpenLoop {
            per_second: 200.0,
            poisson: false,
        });
        let order = Order {
            run: &run,
            target: url,
            written: &[],
        };
        dispatcher.run(&order, &mut Quiet).await
    })
}

fn failed_operations(outcome: &RunOutcome) -> u64 {
    outcome.kinds.iter().flat_map(|kind| kind.failures.values()).sum()
}

#[test]
fn a_stall_over_the_end_of_an_open_loop_is_charged_to_every_operation_that_was_due() {
    // The 180th put is due 105 ms before the end, and takes 200 ms.
    let outcome = one_second_of_puts("memory://tail?lie=slow:180");
    let kind = &outcome.kinds[0];
    assert_eq!(kind.operations + failed_operations(&outcome), 200);
    let histogram = kind.histogram.decode().expect("a histogram");
    // Those due during the stall waited for its end, which is 95 ms after that of the run.
    let late = histogram.count_between(90_000, 10_000_000);
    assert!(
        late >= 20 || failed_operations(&outcome) > 0,
        "{late} operations were late"
    );
    assert!(outcome.seconds > 1.05, "{}", outcome.seconds);
}

#[test]
fn operations_that_an_overloaded_target_never_reached_fail_the_run() {
    let outcome = one_second_of_puts("memory://overload?lie=slow:1");
    assert_eq!(outcome.kinds[0].operations + failed_operations(&outcome), 200);
    assert!(causes(&outcome).contains("not sent"), "{}", causes(&outcome));
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
