//! Checks a bundle's figures against one another.
//!
//! A changed figure is found even if the sums were computed again. `docs/formats/bench-bundle.md` lists the rules.
//! Pure.

use super::{Bundle, Problem};
use crate::outcome::histogram::{DIGITS, merge_kinds};
use crate::outcome::{EncodedHistogram, Ending, KindOutcome, RunOutcome};
use crate::plan::{Role, Stage};
use std::collections::{BTreeMap, BTreeSet};

/// Adds every disagreement within `bundle` to `problems`.
pub(super) fn check(bundle: &Bundle, problems: &mut Vec<Problem>) {
    for run in &bundle.runs {
        let place = place(bundle, run);
        let mut problem = |what: String| problems.push(Problem::new(place.clone(), what));
        if run.party >= bundle.parties.len() {
            problem(format!("target {}, and there are {}", run.party, bundle.parties.len()));
        }
        if !(run.seconds.is_finite() && run.seconds >= 0.0) {
            problem(format!("took {} seconds", run.seconds));
        }
        check_ending(bundle, run, &mut problem);
        for kind in run
            .kinds
            .iter()
            .chain(run.workers.iter().flat_map(|worker| &worker.kinds))
        {
            check_kind(kind, &mut problem);
        }
        check_sums(run, &mut problem);
    }
    check_coverage(bundle, problems);
}

fn place(bundle: &Bundle, run: &RunOutcome) -> String {
    let party = bundle
        .parties
        .get(run.party)
        .map_or("unknown target", |party| &party.name);
    format!("{} {} on {party}, repeat {}", run.experiment, run.label, run.repeat)
}

/// A run that passed has no fault in its figures. Failed operations are none where the plan kills a server.
fn check_ending(bundle: &Bundle, run: &RunOutcome, problem: &mut impl FnMut(String)) {
    match &run.ending {
        Ending::Skipped(_) => {}
        Ending::Failed(causes) if causes.is_empty() => problem("failed without a cause".into()),
        Ending::Failed(_) => {}
        Ending::Passed => {
            let failures = all_failures(run);
            if failures > 0 && !is_disrupted(bundle, run) {
                problem(format!("passed with {failures} failed operations"));
            }
            if !run.verdict.is_right() {
                problem(format!("passed with wrong responses: {:?}", run.verdict));
            }
            if !run.has_expected_rows() {
                problem(format!(
                    "passed with {:?} rows of {:?}",
                    run.returned_rows, run.expected_rows
                ));
            }
            if run.unsure_rows > 0 && !follows_failures(bundle, run) {
                let rows = run.unsure_rows;
                problem(format!(
                    "passed with {rows} unsure rows, and no operation failed before"
                ));
            }
        }
    }
}

fn failures(kind: &KindOutcome) -> u64 {
    kind.failures.values().copied().fold(0, u64::saturating_add)
}

fn all_failures(run: &RunOutcome) -> u64 {
    run.kinds.iter().map(failures).fold(0, u64::saturating_add)
}

/// Whether the plan kills servers during a run.
fn is_disrupted(bundle: &Bundle, run: &RunOutcome) -> bool {
    let experiments = bundle.suite.experiments.iter().filter(|e| e.id == run.experiment);
    experiments
        .flat_map(|experiment| &experiment.stages)
        .any(|stage| matches!(stage, Stage::Run(planned) if planned.label == run.label && planned.disruption.is_some()))
}

/// Whether an operation failed in another run of the same turn of the same target.
fn follows_failures(bundle: &Bundle, run: &RunOutcome) -> bool {
    let turn = |run: &RunOutcome| (run.experiment.clone(), run.party, run.repeat);
    let same = bundle.runs.iter().filter(|other| turn(other) == turn(run));
    same.filter(|other| other.label != run.label)
        .any(|other| all_failures(other) > 0)
}

/// A kind's histogram counts its steps. That of failed calls has no more of them than failed.
fn check_kind(kind: &KindOutcome, problem: &mut impl FnMut(String)) {
    match kind.failed.decode() {
        // An operation that was never sent has no latency.
        Ok(failed) if failed.len() > failures(kind) => problem(format!(
            "{}: {} latencies of {} failures",
            kind.name,
            failed.len(),
            failures(kind)
        )),
        Ok(_) => {}
        Err(error) => problem(format!("{}, failed calls: {error}", kind.name)),
    }
    let histogram = match kind.histogram.decode() {
        Ok(histogram) => histogram,
        Err(error) => return problem(format!("{}: {error}", kind.name)),
    };
    if histogram.len() != kind.steps {
        return problem(format!(
            "{}: histogram of {} values, {} steps",
            kind.name,
            histogram.len(),
            kind.steps
        ));
    }
    if kind.steps == 0 {
        return;
    }
    // A bucket is 10⁻³ of its value wide, and latencies below 1 µs are counted as 1 µs.
    let near = |a: f64, b: f64| (a - b).abs() <= 1.0 + a.abs().max(b.abs()) * 2.0 * 10f64.powi(-i32::from(DIGITS));
    let steps = kind.steps as f64;
    let mean = kind.micros_sum / steps;
    if !near(mean, histogram.mean()) {
        problem(format!(
            "{}: mean {mean:.1} µs, histogram's {:.1} µs",
            kind.name,
            histogram.mean()
        ));
    }
    if !near(kind.micros_max as f64, histogram.max() as f64) {
        problem(format!(
            "{}: largest {} µs, histogram's {} µs",
            kind.name,
            kind.micros_max,
            histogram.max()
        ));
    }
    if kind.micros_square_sum * (1.0 + 1e-9) < kind.micros_sum * mean {
        problem(format!(
            "{}: sum of squares {} is too small",
            kind.name, kind.micros_square_sum
        ));
    }
}

/// A run's kinds are the sums of its workers'.
fn check_sums(run: &RunOutcome, problem: &mut impl FnMut(String)) {
    let Ok(mut sums) = merge_kinds(run.workers.iter().map(|worker| worker.kinds.as_slice())) else {
        return; // The kind whose histogram cannot be read reports it.
    };
    let mut kinds = run.kinds.clone();
    for side in [&mut sums, &mut kinds] {
        side.retain(|kind| {
            *kind
                != KindOutcome {
                    name: kind.name.clone(),
                    ..KindOutcome::default()
                }
        });
        side.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let names = |kinds: &[KindOutcome]| kinds.iter().map(|kind| kind.name.clone()).collect::<Vec<_>>();
    if names(&sums) != names(&kinds) {
        return problem(format!("kinds {:?}, workers' {:?}", names(&kinds), names(&sums)));
    }
    for (kind, sum) in kinds.iter().zip(&sums) {
        let mut counts = |field: &str, found: u64, expected: u64| {
            if found != expected {
                problem(format!("{}: {found} {field}, workers' sum is {expected}", kind.name));
            }
        };
        counts("operations", kind.operations, sum.operations);
        counts("steps", kind.steps, sum.steps);
        counts("rows", kind.rows, sum.rows);
        counts("bytes", kind.bytes, sum.bytes);
        counts("µs at most", kind.micros_max, sum.micros_max);
        counts("failures", failures(kind), failures(sum));
        let near = |a: f64, b: f64| (a - b).abs() <= 1.0 + a.abs() * 1e-9;
        if !near(kind.micros_sum, sum.micros_sum) || !near(kind.micros_square_sum, sum.micros_square_sum) {
            problem(format!(
                "{}: {} µs in all, workers' sum is {}",
                kind.name, kind.micros_sum, sum.micros_sum
            ));
        }
        let is_same =
            |a: &EncodedHistogram, b: &EncodedHistogram| matches!((a.decode(), b.decode()), (Ok(a), Ok(b)) if a == b);
        if !is_same(&kind.histogram, &sum.histogram) || !is_same(&kind.failed, &sum.failed) {
            problem(format!("{}: histogram is not the sum of the workers'", kind.name));
        }
    }
}

/// Repeats without an outcome that are named for one run and target; more of them would say nothing new.
const MISSING_NAMED_MAX: usize = 8;

/// Repeats with an outcome, by experiment and label, then by target.
type Outcomes<'b> = BTreeMap<(&'b str, &'b str), BTreeMap<usize, BTreeSet<u32>>>;

/// Every run of the suite has one outcome for every target in each repeat. No other run has one.
fn check_coverage(bundle: &Bundle, problems: &mut Vec<Problem>) {
    let mut outcomes = Outcomes::new();
    let mut seen = BTreeSet::new();
    for run in &bundle.runs {
        // Warming up is not part of the suite.
        if run.role != Role::Warm {
            let parties = outcomes.entry((&run.experiment, &run.label)).or_default();
            parties.entry(run.party).or_default().insert(run.repeat);
        }
        if !seen.insert((&run.experiment, &run.label, run.party, run.repeat)) {
            problems.push(Problem::new(place(bundle, run), "there twice"));
        }
    }
    // A bundle that does not record its repeats has at least those that were found.
    let found = || outcomes.values().flat_map(BTreeMap::values).flatten();
    let repeats = bundle.repeats.or_else(|| found().max().copied()).unwrap_or(1);
    for experiment in bundle
        .suite
        .experiments
        .iter()
        .filter(|experiment| experiment.unavailable.is_none())
    {
        for stage in &experiment.stages {
            let Stage::Run(run) = stage else { continue };
            if run.role == Role::Warm {
                continue;
            }
            let parties = outcomes
                .remove(&(experiment.id.as_str(), run.label.as_str()))
                .unwrap_or_default();
            for (index, party) in bundle.parties.iter().enumerate() {
                let found = parties.get(&index).cloned().unwrap_or_default();
                if let Some(problem) = check_repeats(&found, repeats) {
                    let place = format!("{} {} on {}", experiment.id, run.label, party.name);
                    problems.push(Problem::new(place, format!("{problem} (target {index})")));
                }
            }
        }
    }
    for (experiment, label) in outcomes.into_keys() {
        problems.push(Problem::new(format!("{experiment} {label}"), "not in the suite"));
    }
}

/// Whether these are the repeats from the first to the last.
fn check_repeats(found: &BTreeSet<u32>, repeats: u32) -> Option<String> {
    if let Some(other) = found.iter().find(|repeat| !(1..=repeats).contains(*repeat)) {
        return Some(format!("repeat {other}, and there are {repeats}"));
    }
    if found.is_empty() {
        return Some("no outcome".to_owned());
    }
    let missing = (1..=repeats).filter(|repeat| !found.contains(repeat));
    let named: Vec<String> = missing
        .take(MISSING_NAMED_MAX)
        .map(|repeat| repeat.to_string())
        .collect();
    let count = u64::from(repeats) - found.len() as u64;
    (count > 0).then(|| {
        let more = if count > named.len() as u64 { ", …" } else { "" };
        format!("no outcome of {count} of {repeats} repeats: {}{more}", named.join(", "))
    })
}
