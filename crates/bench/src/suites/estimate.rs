//! Estimates the duration of a suite, before anything is known of the server.
//!
//! The rates are cautious: a server on two cores that it shares with the generator certainly reaches them. They limit
//! the contents of quick suites. A slower server takes longer than promised, without further consequences.

use crate::plan::{Activity, Operation, Run, SocialMode, Stage, Stop, Suite, Workload};

/// Seconds to make a table.
const CREATE: f64 = 1.0;

/// Added for each family: dropping the table deletes a file of each.
const CREATE_FAMILY: f64 = 0.005;

/// Seconds to drop a table, with or without creating it again.
const DROP: f64 = 1.0;

/// Seconds of a flush.
const FLUSH: f64 = 0.5;

/// Seconds between runs: clients connect, histograms are gathered.
const BETWEEN_RUNS: f64 = 0.1;

/// Bytes each second, for every operation.
const BYTES: f64 = 30e6;

/// Rows or operations each second, by one client and by many.
const CALLS_OF_ONE: f64 = 1_500.0;
const CALLS: f64 = 10_000.0;
const BUFFERED: f64 = 50_000.0;
const SCANNED: f64 = 100_000.0;

/// Users loaded each second by one client and by many: each is two calls, one of them for ten resources.
const USERS_OF_ONE: f64 = 300.0;
const USERS: f64 = 1_000.0;

/// Seconds that one target will take for a suite.
pub fn estimate_seconds(suite: &Suite) -> f64 {
    suite
        .experiments
        .iter()
        .map(|experiment| stages(&experiment.stages))
        .sum()
}

fn stages(stages: &[Stage]) -> f64 {
    // Most rows in the tables of the experiment, for scans of key spaces with gaps.
    let mut rows = std::collections::BTreeMap::new();
    let mut seconds = 0.0;
    for stage in stages {
        seconds += match stage {
            Stage::Create(table) => {
                let exists = rows.insert(table.name.clone(), 0.0).is_some();
                let drop = if exists { DROP } else { 0.0 };
                drop + CREATE + CREATE_FAMILY * table.families.len() as f64
            }
            Stage::Drop(name) => {
                rows.remove(name);
                DROP
            }
            Stage::Settle { pause_seconds, .. } => FLUSH + pause_seconds,
            Stage::Run(run) => BETWEEN_RUNS + run_seconds(run, &mut rows),
        };
    }
    seconds
}

fn run_seconds(run: &Run, rows: &mut std::collections::BTreeMap<String, f64>) -> f64 {
    let (seconds, operations) = match (run.stop, &run.activity) {
        (Stop::Seconds(seconds), activity) => {
            let seconds = seconds + run.warmup_seconds;
            (seconds, seconds * rate(activity, run.clients))
        }
        (Stop::Operations(n), Activity::Table(workload)) if is_scan(workload) => {
            let held = rows.get(&workload.table).copied().unwrap_or_default();
            let n = held.min(n as f64);
            (n / rate(&run.activity, run.clients), n)
        }
        (Stop::Operations(n), activity) => (n as f64 / rate(activity, run.clients), n as f64),
    };
    if let Activity::Table(workload) = &run.activity
        && workload.mix.iter().any(|(operation, _)| writes(operation))
    {
        let held = rows.entry(workload.table.clone()).or_default();
        *held = (*held + operations).min(workload.keys.records as f64);
    }
    seconds
}

fn is_scan(workload: &Workload) -> bool {
    workload
        .mix
        .iter()
        .all(|(operation, _)| matches!(operation, Operation::Scan { .. }))
}

/// Whether an operation can add rows.
pub(super) fn writes(operation: &Operation) -> bool {
    use Operation::{BufferedPut, CheckAndPut, Increment, Insert, Put, ReadModifyWrite};
    matches!(
        operation,
        Put | BufferedPut { .. } | Insert | Increment | CheckAndPut | ReadModifyWrite
    )
}

fn rate(activity: &Activity, clients: u32) -> f64 {
    match activity {
        Activity::Table(workload) => {
            let values = &workload.values;
            let row = f64::from(values.bytes_max.unwrap_or(values.bytes))
                * f64::from(values.columns.max(values.families).max(1));
            let calls = if clients == 1 { CALLS_OF_ONE } else { CALLS };
            let each = |operation: &Operation| match operation {
                Operation::BufferedPut { .. } => BUFFERED,
                Operation::Scan { rows_per_fetch } => {
                    rows_per_fetch.map_or(SCANNED, |rows| SCANNED.min(calls * f64::from(rows)))
                }
                Operation::ShortScan { .. } => calls / 10.0,
                Operation::ReadModifyWrite | Operation::CheckAndPut => calls / 2.0,
                _ => calls,
            };
            workload
                .mix
                .first()
                .map_or(calls, |(operation, _)| each(operation))
                .min(BYTES / row.max(1.0))
        }
        Activity::Social(social) => {
            let users = if clients == 1 { USERS_OF_ONE } else { USERS };
            let image = f64::from(social.image_bytes).max(1.0);
            match social.mode {
                SocialMode::Load => users.min(BYTES / image),
                SocialMode::Actions(_) => (users * 2.0).min(BYTES / image),
            }
        }
    }
}
