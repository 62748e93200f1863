//! The bench's own memory target and its faults, through the interface of real targets.

use super::{SEED, block_on, carry_out, everything, only, padded, scan, workload};
use crate::activity::{ActorContext, Step};
use crate::load::table::actor;
use crate::load::{Tables, Written};
use crate::outcome::Verdict;
use crate::plan::{KeyOrder, Operation, Workload};
use crate::target::{self, TableSpec};
use std::ops::Range;
use std::sync::Arc;

/// Loads a table, works on it, and checks it. Returns the verdicts of work and check.
async fn run_against(address: &str, mix: Vec<(Operation, f64)>) -> (Verdict, Verdict) {
    let target = target::open(address).await.unwrap();
    let load = workload(only(Operation::Put), 200, KeyOrder::Sequential, padded());
    let spec = TableSpec {
        name: load.table.clone(),
        families: crate::load::families(&load.values),
        max_versions: 1,
        ..TableSpec::default()
    };
    target.create_table(&spec).await.unwrap();
    let work = workload(mix, 200, KeyOrder::Uniform, padded());
    let check = workload(only(scan()), 200, KeyOrder::Sequential, padded());
    let connection = target.connect().await.unwrap();
    let tables = Tables::default();
    let mut written = Vec::new();
    let mut verdicts = Vec::new();
    for (workload, range) in [(load, 0..200), (work, 0..4_000), (check, 0..200)] {
        let context = ActorContext {
            connection: Arc::clone(&connection),
            worker: 0,
            workers: 1,
            client: 0,
            clients: 1,
            seed: SEED,
        };
        verdicts.push(run(&workload, &tables, context, range.clone(), &written).await.verdict);
        written.push(Written {
            workload,
            seed: SEED,
            spans: vec![range],
            ..Written::default()
        });
    }
    let check = verdicts.pop().unwrap();
    (verdicts.pop().unwrap(), check)
}

async fn run(
    workload: &Workload,
    tables: &Tables,
    context: ActorContext,
    range: Range<u64>,
    written: &[Written],
) -> Step {
    tables.prepare(workload, SEED, 1, written).unwrap();
    let mut client = actor(workload, tables, context).unwrap();
    carry_out(client.as_mut(), range).await.unwrap()
}

#[test]
fn an_honest_target_is_right() {
    let mut mix = everything();
    mix.push((Operation::Increment, 0.1));
    let (work, check) = block_on(run_against("memory://load-honest", mix));
    assert!(work.is_right() && work.checked > 2_000, "{work:?}");
    assert!(check.is_right() && check.checked >= 200, "{check:?}");
}

#[test]
fn every_lie_of_the_lying_target_is_noticed() {
    let mix = || vec![(Operation::Get, 0.5), (Operation::Put, 0.5)];
    let (work, check) = block_on(run_against("memory://load-drop?lie=drop:50", mix()));
    assert!(!work.is_right() && !check.is_right(), "{work:?} {check:?}");
    let (work, _) = block_on(run_against("memory://load-stale?lie=stale:50", mix()));
    assert!(work.stale > 0, "{work:?}");
    let (work, check) = block_on(run_against("memory://load-wrong?lie=wrong:50", mix()));
    assert!(work.wrong > 0 && check.wrong > 0, "{work:?} {check:?}");
    let (work, check) = block_on(run_against("memory://load-skip?lie=skip:50", mix()));
    assert!(work.is_right() && check.missing > 0, "{work:?} {check:?}");
}
