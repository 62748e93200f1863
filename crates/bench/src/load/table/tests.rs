//! Every kind of operation on an honest table in memory, and on lying ones.
//!
//! Reads must notice each lie.
#![allow(clippy::single_range_in_vec_init, reason = "one span is a list of one")]

mod fake;
mod lying;

use super::*;
use crate::load::Written;
use crate::plan::{KeyFormat, KeyOrder, Keys, Values};
use fake::{Fake, Lie};

const SEED: u64 = 11;

fn workload(mix: Vec<(Operation, f64)>, records: u64, order: KeyOrder, format: KeyFormat) -> Workload {
    Workload {
        table: "bench-t".into(),
        mix,
        keys: Keys { records, order, format },
        values: Values {
            bytes: 40,
            columns: 2,
            ..Values::default()
        },
        verify: true,
    }
}

fn padded() -> KeyFormat {
    KeyFormat::Padded { digits: 10 }
}

/// One worker process and its table.
#[derive(Default)]
struct Bench {
    tables: Arc<Tables>,
    fake: Arc<Fake>,
    written: Vec<Written>,
}

impl Bench {
    /// Loads `[0, records)` in order.
    fn loaded(records: u64, format: KeyFormat) -> Self {
        let mut bench = Self::default();
        let put = vec![(Operation::BufferedPut { buffer_bytes: 1_000 }, 1.0)];
        let load = workload(put, records, KeyOrder::Sequential, format);
        let loaded = bench.run(&load, 0..records);
        assert_eq!((loaded.operations, loaded.rows), (records as u32, records as u32));
        bench
    }

    fn client(&self, workload: &Workload) -> Box<dyn Actor> {
        self.client_of(workload, 1)
    }

    fn client_of(&self, workload: &Workload, workers: u32) -> Box<dyn Actor> {
        self.tables.prepare(workload, SEED, workers, &self.written).unwrap();
        self.client_again(workload)
    }

    /// Another client of the run that was prepared last.
    fn client_again(&self, workload: &Workload) -> Box<dyn Actor> {
        let context = ActorContext {
            connection: Arc::clone(&self.fake) as Arc<dyn Connection>,
            worker: 0,
            workers: 1,
            client: 0,
            clients: 1,
            seed: SEED,
        };
        actor(workload, &self.tables, context).unwrap()
    }

    /// Carries a range out with one client, as the engine does. Returns the sums of all steps.
    fn run(&mut self, workload: &Workload, range: Range<u64>) -> Step {
        let mut client = self.client(workload);
        let sum = run(client.as_mut(), range.clone()).unwrap();
        self.written.push(Written {
            workload: workload.clone(),
            seed: SEED,
            spans: vec![range],
            ..Written::default()
        });
        sum
    }

    /// As [`Self::run`], and every response must be right.
    fn run_right(&mut self, workload: &Workload, range: Range<u64>) -> Step {
        let sum = self.run(workload, range);
        assert!(sum.verdict.is_right(), "{:?}", sum.verdict);
        sum
    }

    fn lie(&self, lie: Lie) {
        *self.fake.lie.lock() = lie;
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn run(client: &mut dyn Actor, range: Range<u64>) -> Result<Step> {
    block_on(carry_out(client, range))
}

async fn carry_out(client: &mut dyn Actor, range: Range<u64>) -> Result<Step> {
    let mut sum = Step::default();
    let mut acknowledged = 0;
    let mut add = |step: Step| {
        sum.operations += step.operations;
        acknowledged += step.acknowledged.unwrap_or(step.operations);
        sum.rows += step.rows;
        sum.bytes += step.bytes;
        sum.verdict.merge(&step.verdict);
        step.operations
    };
    client.begin(range.clone());
    let mut index = range.start;
    while index < range.end {
        index += u64::from(add(client.step(index).await?)).max(1);
    }
    assert_eq!(add(client.finish().await?), 0);
    assert_eq!(acknowledged, sum.operations);
    Ok(sum)
}

fn only(operation: Operation) -> Vec<(Operation, f64)> {
    vec![(operation, 1.0)]
}

fn scan() -> Operation {
    Operation::Scan { rows_per_fetch: None }
}

fn short_scan() -> Operation {
    Operation::ShortScan {
        rows: 20,
        vary: true,
        rows_per_fetch: None,
    }
}

fn formats() -> [KeyFormat; 4] {
    let prefixed = KeyFormat::Prefixed {
        prefix: "row".into(),
        digits: 6,
    };
    [
        padded(),
        prefixed,
        KeyFormat::YcsbHashed,
        KeyFormat::DateHash { days: 30 },
    ]
}

#[test]
fn an_honest_table_is_right_about_everything() {
    for format in formats() {
        let mut bench = Bench::loaded(500, format.clone());
        assert_eq!(bench.fake.rows(), 500);
        for (operation, order) in [
            (Operation::Get, KeyOrder::Uniform),
            (short_scan(), KeyOrder::Zipf { exponent: 0.99 }),
            (scan(), KeyOrder::Sequential),
            (Operation::Put, KeyOrder::Uniform),
            (Operation::CheckAndPut, KeyOrder::Zipf { exponent: 0.8 }),
            (Operation::ReadModifyWrite, KeyOrder::Uniform),
            (Operation::Get, KeyOrder::Uniform),
            (scan(), KeyOrder::Sequential),
        ] {
            let sum = bench.run_right(&workload(only(operation.clone()), 500, order, format.clone()), 0..500);
            assert_eq!(sum.operations, 500, "{operation:?}");
            assert!(sum.rows >= 500, "{operation:?}: {} rows", sum.rows);
            let is_read = operation != Operation::Put;
            assert_eq!(sum.verdict.checked > 0, is_read, "{operation:?}");
        }
        assert_eq!(crate::load::expected_rows(&bench.written), 500);
    }
}

#[test]
fn mixes_of_reads_and_writes_are_right() {
    let mix = vec![
        (Operation::Get, 0.4),
        (Operation::Put, 0.2),
        (Operation::BufferedPut { buffer_bytes: 500 }, 0.1),
        (Operation::CheckAndPut, 0.1),
        (Operation::ReadModifyWrite, 0.1),
        (short_scan(), 0.1),
    ];
    for format in formats() {
        let mut bench = Bench::loaded(50, format.clone());
        let mixed = workload(mix.clone(), 50, KeyOrder::Zipf { exponent: 0.99 }, format);
        for _ in 0..3 {
            let sum = bench.run_right(&mixed, 0..3_000);
            assert!(sum.verdict.checked > 2_000);
        }
    }
}

#[test]
fn inserts_and_reads_of_the_latest_are_right() {
    for format in formats() {
        let mut bench = Bench::loaded(100, format.clone());
        let mix = vec![(Operation::Get, 0.85), (Operation::Insert, 0.1), (short_scan(), 0.05)];
        let mixed = workload(mix, 100, KeyOrder::Latest { exponent: 0.99 }, format.clone());
        bench.run_right(&mixed, 0..2_000);
        assert_eq!(bench.fake.rows(), 300);
        assert_eq!(crate::load::expected_rows(&bench.written), 300);
        // Another process checks everything: it finds rows of an unknown writer.
        bench.tables = Arc::default();
        let check = bench.run_right(&workload(only(scan()), 100, KeyOrder::Sequential, format), 0..100);
        assert_eq!((check.rows, check.verdict.checked), (300, 300));
    }
}

#[test]
fn a_table_filled_at_random_holds_what_was_replayed() {
    let mut bench = Bench::default();
    bench.run_right(
        &workload(only(Operation::Put), 1_000, KeyOrder::Uniform, padded()),
        0..700,
    );
    let expected = crate::load::expected_rows(&bench.written);
    assert_eq!(expected, bench.fake.rows());
    assert!(
        (450..550).contains(&expected),
        "about 1000 (1 - e^-0.7), found {expected}"
    );
    let gets = bench.run_right(
        &workload(only(Operation::Get), 1_000, KeyOrder::Sequential, padded()),
        0..1_000,
    );
    assert_eq!(u64::from(gets.rows), expected);
    let scanned = bench.run_right(&workload(only(scan()), 1_000, KeyOrder::Sequential, padded()), 0..1_000);
    assert_eq!((u64::from(scanned.rows), scanned.operations), (expected, 1_000));
}

#[test]
fn counters_count() {
    let mut bench = Bench::default();
    let increments = workload(only(Operation::Increment), 20, KeyOrder::Uniform, padded());
    let sum = bench.run_right(&increments, 0..500);
    assert_eq!(sum.verdict.checked, 500);
    bench.run_right(&increments, 500..700);
    // Rows with only a counter are no fault in such a table.
    bench.run_right(&workload(only(Operation::Get), 20, KeyOrder::Uniform, padded()), 0..50);
    bench.lie(Lie::LoseEveryNthWrite(50));
    assert!(bench.run(&increments, 700..900).verdict.wrong > 0);
}

/// Increments of 20 counters, and the scan that checks them.
fn increments_and_check() -> (Workload, Workload) {
    (
        workload(only(Operation::Increment), 20, KeyOrder::Uniform, padded()),
        workload(only(scan()), 20, KeyOrder::Sequential, padded()),
    )
}

#[test]
fn a_check_finds_lost_and_doubled_increments() {
    let (increments, check) = increments_and_check();
    let counted = || {
        let mut bench = Bench::default();
        bench.run_right(&increments, 0..500);
        assert_eq!(bench.run_right(&check, 0..20).verdict.checked, 20);
        bench
    };
    let mut bench = counted();
    bench.fake.forget_newest_version();
    assert_eq!(bench.run(&check, 0..20).verdict.wrong, 1, "lost");
    // By another process too, and by reads of single rows.
    bench.tables = Arc::default();
    assert_eq!(bench.run(&check, 0..20).verdict.wrong, 1, "lost");
    let gets = workload(only(Operation::Get), 20, KeyOrder::Sequential, padded());
    assert_eq!(bench.run(&gets, 0..20).verdict.wrong, 1, "lost");
    let mut bench = counted();
    run(bench.client(&increments).as_mut(), 500..501).unwrap();
    assert_eq!(bench.run(&check, 0..20).verdict.wrong, 1, "doubled");
    // A worker that was lost may have done it before another one.
    bench.written[0].repeated = vec![500..501];
    bench.run_right(&check, 0..20);
}

#[test]
fn failed_increments_may_or_may_not_count() {
    for lie in [Lie::FailEveryNthWriteDone(5), Lie::FailEveryNthWriteUndone(5)] {
        let (increments, check) = increments_and_check();
        let mut bench = Bench::default();
        bench.lie(lie);
        let mut client = bench.client(&increments);
        let mut written = Written {
            workload: increments,
            seed: SEED,
            ..Written::default()
        };
        for index in 0..500 {
            match run(client.as_mut(), index..index + 1) {
                Ok(sum) => {
                    assert!(sum.verdict.is_right(), "{:?}", sum.verdict);
                    written.spans.push(index..index + 1);
                }
                Err(_) => written.uncertain.push(index..index + 1),
            }
        }
        assert_eq!(written.uncertain.len(), 100);
        bench.written.push(written);
        bench.lie(Lie::None);
        bench.run_right(&check, 0..20);
    }
}

#[test]
fn a_dropped_row_is_missed_by_every_kind_of_read() {
    for format in formats() {
        for operation in [Operation::Get, scan(), Operation::ReadModifyWrite] {
            let mut bench = Bench::loaded(300, format.clone());
            bench.fake.drop_nth_row(77);
            let sum = bench.run(
                &workload(only(operation.clone()), 300, KeyOrder::Sequential, format.clone()),
                0..300,
            );
            assert_eq!(sum.verdict.missing, 1, "{operation:?} {format:?}: {:?}", sum.verdict);
        }
    }
    for format in formats() {
        let mut bench = Bench::loaded(300, format.clone());
        bench.fake.drop_nth_row(77);
        let sum = bench.run(&workload(only(short_scan()), 300, KeyOrder::Uniform, format), 0..300);
        assert!(sum.verdict.missing > 0);
    }
}

#[test]
fn lies_about_values_and_scans_are_noticed() {
    type Count = fn(&Verdict) -> u64;
    let cases: [(Lie, Count); 6] = [
        (Lie::FlipBitEveryNth(100), |v| v.wrong),
        (Lie::DropColumnEveryNth(100), |v| v.wrong),
        (Lie::SkipEveryNth(100), |v| v.missing),
        (Lie::RepeatEveryNth(100), |v| v.unexpected),
        (Lie::SwapEveryNth(100), |v| v.unexpected + v.missing),
        (Lie::AnotherRowEveryNth(100), |v| v.unexpected + v.wrong),
    ];
    for format in [padded(), KeyFormat::YcsbHashed] {
        for (lie, count) in &cases {
            for operation in [Operation::Get, scan(), short_scan()] {
                let is_of_scans = matches!(lie, Lie::RepeatEveryNth(_) | Lie::SwapEveryNth(_));
                if is_of_scans && operation == Operation::Get {
                    continue;
                }
                let mut bench = Bench::loaded(400, format.clone());
                bench.lie(lie.clone());
                let order = if operation == Operation::Get {
                    KeyOrder::Uniform
                } else {
                    KeyOrder::Sequential
                };
                let sum = bench.run(&workload(only(operation.clone()), 400, order, format.clone()), 0..400);
                assert!(
                    count(&sum.verdict) > 0,
                    "{lie:?} {operation:?} {format:?}: {:?}",
                    sum.verdict
                );
                assert!(!sum.verdict.examples.is_empty());
            }
        }
    }
}

#[test]
fn a_stale_answer_and_a_lost_write_are_noticed() {
    let mix = vec![(Operation::Get, 0.5), (Operation::Put, 0.5)];
    for lie in [Lie::StaleEveryNth(100), Lie::LoseEveryNthWrite(100)] {
        let mut bench = Bench::loaded(50, padded());
        let mixed = workload(mix.clone(), 50, KeyOrder::Uniform, padded());
        bench.run_right(&mixed, 0..1_000);
        bench.lie(lie.clone());
        let sum = bench.run(&mixed, 1_000..4_000);
        assert!(sum.verdict.stale > 0, "{lie:?}: {:?}", sum.verdict);
        assert_eq!(
            (sum.verdict.wrong, sum.verdict.missing, sum.verdict.unexpected),
            (0, 0, 0)
        );
    }
    // A write lost by an earlier run is found by a scan that checks afterwards.
    let mut bench = Bench::loaded(50, padded());
    let mixed = workload(mix, 50, KeyOrder::Uniform, padded());
    bench.run_right(&mixed, 0..1_000);
    bench.fake.forget_newest_version();
    let sum = bench.run(&workload(only(scan()), 50, KeyOrder::Sequential, padded()), 0..50);
    assert_eq!(sum.verdict.stale, 1, "{:?}", sum.verdict);
}

#[test]
fn a_lost_insert_is_noticed() {
    let mut bench = Bench::loaded(50, padded());
    bench.lie(Lie::LoseEveryNthWrite(20));
    let mix = vec![(Operation::Get, 0.5), (Operation::Insert, 0.5)];
    let sum = bench.run(
        &workload(mix, 50, KeyOrder::Latest { exponent: 0.8 }, padded()),
        0..2_000,
    );
    assert!(sum.verdict.missing > 0, "{:?}", sum.verdict);
}

#[test]
fn a_condition_that_held_must_not_be_refused() {
    let mut bench = Bench::loaded(50, padded());
    bench.lie(Lie::RefuseEveryNthCondition(50));
    let sum = bench.run(
        &workload(only(Operation::CheckAndPut), 50, KeyOrder::Uniform, padded()),
        0..200,
    );
    assert_eq!(sum.verdict.wrong, 4, "{:?}", sum.verdict);
}

#[test]
fn rows_are_missed_among_others_that_may_or_may_not_be_there() {
    for format in formats() {
        let mut bench = Bench::loaded(300, format.clone());
        let insert = workload(only(Operation::Insert), 300, KeyOrder::Sequential, format.clone());
        bench.run_right(&insert, 0..300);
        let inserts = bench.written.last_mut().unwrap();
        inserts.uncertain = std::mem::take(&mut inserts.spans);
        let coder = crate::load::keys::KeyCoder::new(&format).unwrap();
        let dropped: Vec<u64> = (0..40)
            .map(|n| coder.number(&bench.fake.drop_nth_row(3 * n)).unwrap())
            .collect();
        let loaded = dropped.iter().filter(|&&number| number < 300).count() as u64;
        let verdict = bench
            .run(&workload(only(scan()), 300, KeyOrder::Sequential, format), 0..300)
            .verdict;
        assert_eq!((verdict.missing, verdict.unexpected), (loaded, 0));
    }
}

#[test]
fn rows_that_nobody_wrote_are_unexpected() {
    let mut bench = Bench::loaded(50, padded());
    // The same rows, in a table of which only half was to be loaded.
    bench.written[0].spans = vec![0..25];
    let gets = bench.run(
        &workload(only(Operation::Get), 50, KeyOrder::Sequential, padded()),
        0..50,
    );
    assert_eq!(gets.verdict.unexpected, 25);
    let scanned = bench.run(&workload(only(scan()), 50, KeyOrder::Sequential, padded()), 0..50);
    assert_eq!(scanned.verdict.unexpected, 25);
}

#[test]
fn a_process_that_replaces_another_raises_no_alarm() {
    let mix = vec![
        (Operation::Get, 0.5),
        (Operation::Put, 0.3),
        (Operation::CheckAndPut, 0.2),
    ];
    let mut bench = Bench::loaded(50, padded());
    let mixed = workload(mix, 50, KeyOrder::Uniform, padded());
    // It did an unrecorded half of a run, and died.
    run(bench.client(&mixed).as_mut(), 0..700).unwrap();
    bench.tables = Arc::default();
    bench.run_right(&mixed, 0..2_000);
    // And a worker that joins for the next run.
    bench.tables = Arc::default();
    bench.run_right(&mixed, 2_000..3_000);
}

#[test]
fn two_processes_at_once_raise_no_alarm() {
    let mix = vec![
        (Operation::Get, 0.4),
        (Operation::Put, 0.3),
        (Operation::CheckAndPut, 0.3),
    ];
    let one = Bench::loaded(20, padded());
    let other = Bench {
        tables: Arc::default(),
        fake: Arc::clone(&one.fake),
        written: one.written.clone(),
    };
    let mixed = workload(mix, 20, KeyOrder::Zipf { exponent: 0.99 }, padded());
    let mut clients = [one.client_of(&mixed, 2), other.client_of(&mixed, 2)];
    for index in 0..4_000u64 {
        let client = &mut clients[(index % 3 % 2) as usize];
        let sum = run(client.as_mut(), index..index + 1).unwrap();
        assert!(sum.verdict.is_right(), "{:?}", sum.verdict);
    }
}

#[test]
fn failed_writes_may_or_may_not_appear() {
    for lie in [Lie::FailEveryNthWriteDone(5), Lie::FailEveryNthWriteUndone(5)] {
        let bench = Bench::loaded(10, padded());
        bench.lie(lie);
        let mix = vec![
            (Operation::Get, 0.5),
            (Operation::Put, 0.4),
            (Operation::ReadModifyWrite, 0.1),
        ];
        let mixed = workload(mix, 10, KeyOrder::Uniform, padded());
        let mut client = bench.client(&mixed);
        let mut failures = 0;
        for index in 0..3_000 {
            match run(client.as_mut(), index..index + 1) {
                Ok(sum) => assert!(sum.verdict.is_right(), "{:?}", sum.verdict),
                Err(_) => failures += 1,
            }
        }
        assert!(failures > 200);
    }
}

#[test]
fn a_table_made_anew_is_not_mistaken_for_the_old_one() {
    let mut bench = Bench::loaded(20, padded());
    let mixed = workload(
        vec![(Operation::Get, 0.5), (Operation::Put, 0.5)],
        20,
        KeyOrder::Uniform,
        padded(),
    );
    bench.run_right(&mixed, 0..500);
    bench.fake.clear();
    bench.written.clear();
    let load = workload(only(Operation::Put), 20, KeyOrder::Sequential, padded());
    bench.run_right(&load, 0..20);
    bench.run_right(&mixed, 0..500);
}

#[test]
fn what_others_did_to_a_table_meanwhile_is_not_judged_by_an_old_ledger() {
    let mut bench = Bench::loaded(20, padded());
    let half = vec![(Operation::Get, 0.5), (Operation::Put, 0.5)];
    bench.run_right(&workload(half, 20, KeyOrder::Uniform, padded()), 0..500);
    // Another process creates the table again and overwrites little of it, while this one takes no part.
    bench.fake.clear();
    bench.written.clear();
    let own = std::mem::take(&mut bench.tables);
    bench.run_right(
        &workload(only(Operation::Put), 20, KeyOrder::Sequential, padded()),
        0..20,
    );
    let few = vec![(Operation::Get, 0.9), (Operation::Put, 0.1)];
    bench.run_right(&workload(few, 20, KeyOrder::Uniform, padded()), 0..50);
    bench.tables = own;
    bench.run_right(
        &workload(only(Operation::Get), 20, KeyOrder::Sequential, padded()),
        0..20,
    );
}

#[test]
fn witnesses_judge_nothing() {
    let mut bench = Bench::default();
    for operation in [
        Operation::Get,
        Operation::Put,
        short_scan(),
        scan(),
        Operation::CheckAndPut,
        Operation::Increment,
    ] {
        let mut witness = workload(only(operation), 20, KeyOrder::Sequential, padded());
        witness.verify = false;
        let sum = bench.run_right(&witness, 0..20);
        assert_eq!((sum.verdict.checked, sum.operations), (0, 20));
    }
}

#[test]
fn long_ranges_are_scanned_in_parts() {
    let mut bench = Bench::loaded(25_000, padded());
    let mut client = bench.client(&workload(only(scan()), 25_000, KeyOrder::Sequential, padded()));
    client.begin(3..24_000);
    let steps: Vec<u32> = [3, 10_003, 20_003]
        .map(|i| block_on(client.step(i)).unwrap().operations)
        .to_vec();
    assert_eq!(steps, [10_000, 10_000, 3_997]);
    let whole = bench.run_right(
        &workload(only(scan()), 25_000, KeyOrder::Sequential, padded()),
        0..25_000,
    );
    assert_eq!((whole.rows, whole.verdict.checked), (25_000, 25_000));
}

#[test]
fn workloads_that_do_not_fit_the_table_are_refused() {
    let bench = Bench::loaded(20, padded());
    let refused = |change: &dyn Fn(&mut Workload)| {
        let mut other = workload(only(Operation::Put), 20, KeyOrder::Uniform, padded());
        change(&mut other);
        bench.tables.prepare(&other, 0, 1, &bench.written).is_err()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|w| w.values.bytes = 50));
    assert!(refused(&|w| w.keys.format = KeyFormat::YcsbHashed));
    assert!(refused(&|w| w.keys.records = 10_000_000_001));
    assert!(refused(&|w| w.mix = vec![(scan(), 1.0), (Operation::Get, 1.0)]));
    assert!(refused(
        &|w| w.mix = only(Operation::BufferedPut { buffer_bytes: 1 << 40 })
    ));
}

#[test]
fn kinds_are_named_for_what_is_done() {
    let mix = vec![
        (Operation::Get, 1.0),
        (short_scan(), 1.0),
        (short_scan(), 1.0),
        (scan(), 1.0),
    ];
    let names = kinds(&workload(mix, 1, KeyOrder::Uniform, padded()));
    assert_eq!(names, ["get", "short-scan", "short-scan#2", "scan"]);
}

#[test]
fn operations_beyond_the_table_scan_nothing() {
    for format in [KeyFormat::Padded { digits: 2 }, KeyFormat::YcsbHashed] {
        let mut bench = Bench::loaded(100, format.clone());
        let sum = bench.run_right(&workload(only(scan()), 100, KeyOrder::Sequential, format), 90..130);
        assert!(sum.rows <= 30, "{}", sum.rows);
        assert_eq!(sum.operations, 40);
    }
}

/// Many concurrent clients of one process, on a slow table.
fn run_at_once(bench: &Bench, workload: &Workload, clients: u64, each: u64) -> Verdict {
    bench.fake.slow_down();
    let clients = (0..clients).map(|client| {
        let mut actor = bench.client_again(workload);
        async move {
            carry_out(actor.as_mut(), client * each..(client + 1) * each)
                .await
                .unwrap()
                .verdict
        }
    });
    let mut sum = Verdict::default();
    for verdict in block_on(futures::future::join_all(clients)) {
        sum.merge(&verdict);
    }
    sum
}

fn everything() -> Vec<(Operation, f64)> {
    vec![
        (Operation::Get, 0.3),
        (Operation::Put, 0.2),
        (Operation::BufferedPut { buffer_bytes: 500 }, 0.1),
        (Operation::CheckAndPut, 0.1),
        (Operation::ReadModifyWrite, 0.1),
        (short_scan(), 0.1),
        (Operation::Insert, 0.1),
    ]
}

#[test]
fn many_clients_at_once_are_right() {
    for format in formats() {
        let mut bench = Bench::loaded(20, format.clone());
        let order = KeyOrder::Zipf { exponent: 0.99 };
        let mixed = workload(everything(), 20, order, format.clone());
        bench.client(&mixed);
        let verdict = run_at_once(&bench, &mixed, 16, 400);
        assert!(verdict.is_right(), "{verdict:?}");
        assert!(verdict.checked > 16 * 200);
        bench.written.push(Written {
            workload: mixed,
            seed: SEED,
            spans: vec![0..16 * 400],
            ..Written::default()
        });
        let check = bench.run_right(&workload(only(scan()), 20, KeyOrder::Sequential, format), 0..20);
        assert_eq!(u64::from(check.rows), bench.fake.rows());
        assert_eq!(crate::load::expected_rows(&bench.written), bench.fake.rows());
    }
}

#[test]
fn lies_are_noticed_among_many_clients() {
    type Count = fn(&Verdict) -> u64;
    let cases: [(Lie, Count); 4] = [
        (Lie::StaleEveryNth(50), |v| v.stale),
        (Lie::LoseEveryNthWrite(50), |v| v.stale + v.missing),
        (Lie::RefuseEveryNthCondition(5), |v| v.wrong),
        (Lie::IgnoreConditions, |v| v.wrong),
    ];
    for (lie, count) in cases {
        let bench = Bench::loaded(20, padded());
        let mixed = workload(everything(), 20, KeyOrder::Uniform, padded());
        bench.client(&mixed);
        bench.lie(lie.clone());
        let verdict = run_at_once(&bench, &mixed, 8, 1_000);
        assert!(count(&verdict) > 0, "{lie:?}: {verdict:?}");
    }
}

#[test]
fn a_torn_row_is_wrong() {
    let mut bench = Bench::loaded(50, padded());
    let mixed = workload(
        vec![(Operation::Get, 0.5), (Operation::Put, 0.5)],
        50,
        KeyOrder::Uniform,
        padded(),
    );
    bench.run_right(&mixed, 0..1_000);
    bench.lie(Lie::TearEveryNth(100));
    let verdict = bench.run(&mixed, 1_000..2_000).verdict;
    assert!(verdict.wrong > 0 && verdict.stale == 0, "{verdict:?}");
    assert!(verdict.examples.iter().any(|text| text.contains("torn")));
}
