//! A bundle's runs in the order of the report.
//!
//! By experiment, point and target, repeats together. Pure.
//!
//! Rule: a cell of which any repeat did not pass has no figure. Those of the other repeats would hide the failure, and
//! would win comparisons that the target did not complete.

use super::metric::{self, Latency, Spread};
use super::number;
use crate::bundle::{Bundle, Witness};
use crate::outcome::{Ending, KindOutcome, RunOutcome};
use crate::plan::{Experiment, Metric, Role, Run, Stage};
use std::collections::BTreeMap;

/// A run may be limited by the generator if the generator's own maximum is less than this multiple of it.
pub const WITNESS_FACTOR: f64 = 1.5;

/// Share of the time from which on the generator's threads may have been the limit. An operation waits for its thread, so
/// latencies grow before all of the time is used.
pub const BUSY_MAX: f64 = 0.9;

/// One experiment's results.
pub struct Results<'a> {
    /// Their bundle.
    pub bundle: &'a Bundle,
    /// The plan.
    pub experiment: &'a Experiment,
    /// One for each run of the plan except warm-ups, in the plan's order.
    pub rows: Vec<Row<'a>>,
}

/// One run of the plan on all targets.
pub struct Row<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its results, by target.
    pub cells: Vec<Cell<'a>>,
}

/// One run of the plan on one target: its repeats.
#[derive(Default)]
pub struct Cell<'a> {
    /// In the order in which they were run.
    pub runs: Vec<&'a RunOutcome>,
}

/// The results of all experiments of `bundle`.
pub fn of_bundle(bundle: &Bundle) -> Vec<Results<'_>> {
    let mut outcomes: BTreeMap<(&str, &str, usize), Vec<&RunOutcome>> = BTreeMap::new();
    for run in &bundle.runs {
        outcomes
            .entry((&run.experiment, &run.label, run.party))
            .or_default()
            .push(run);
    }
    let row = |experiment: &'_ Experiment, run: &'_ Run| {
        let cell = |party| {
            outcomes
                .get(&(experiment.id.as_str(), run.label.as_str(), party))
                .cloned()
        };
        (0..bundle.parties.len())
            .map(|party| Cell {
                runs: cell(party).unwrap_or_default(),
            })
            .collect::<Vec<_>>()
    };
    let results = bundle.suite.experiments.iter().map(|experiment| {
        let runs = experiment.stages.iter().filter_map(|stage| match stage {
            Stage::Run(run) if run.role != Role::Warm => Some(run.as_ref()),
            _ => None,
        });
        Results {
            bundle,
            experiment,
            rows: runs
                .map(|run| Row {
                    run,
                    cells: row(experiment, run),
                })
                .collect(),
        }
    });
    results.collect()
}

impl<'a> Results<'a> {
    /// Rows with a place in the chart, by series, in the plan's order.
    pub fn series(&self) -> Vec<(&'a str, Vec<&Row<'a>>)> {
        let mut series: Vec<(&str, Vec<&Row<'_>>)> = Vec::new();
        for row in &self.rows {
            let Some(point) = &row.run.point else { continue };
            match series.iter_mut().find(|(name, _)| *name == point.series) {
                Some((_, rows)) => rows.push(row),
                None => series.push((&point.series, vec![row])),
            }
        }
        series
    }

    /// Sentences about targets that did not flush a table though the plan asks for it, with the reason.
    pub fn unflushed(&self) -> Vec<String> {
        let mut counts: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        let cells = self.rows.iter().flat_map(|row| &row.cells);
        for run in cells.flat_map(|cell| &cell.runs) {
            if let Some(why) = &run.unflushed {
                *counts.entry((run.party, why)).or_default() += 1;
            }
        }
        let sentence = |((party, why), count): ((usize, &str), usize)| {
            let party = self.bundle.parties.get(party).map_or("", |party| &party.name);
            let runs = if count == 1 { "run" } else { "runs" };
            format!("{party} did not flush its table before {count} {runs}, whose reads may come from memory ({why}).")
        };
        counts.into_iter().map(sentence).collect()
    }

    /// Whether there is no result at all.
    pub fn is_empty(&self) -> bool {
        self.rows
            .iter()
            .all(|row| row.cells.iter().all(|cell| cell.runs.is_empty()))
    }
}

impl Row<'_> {
    /// Its name in tables: its point with the axis' unit, or its label.
    pub fn name(&self, experiment: &Experiment) -> String {
        let Some(point) = &self.run.point else {
            return self.run.label.clone();
        };
        let x = position(experiment, &point.x);
        match (point.series.is_empty(), x.is_empty()) {
            (true, true) => self.run.label.clone(),
            (true, false) => x,
            (false, true) => point.series.clone(),
            (false, false) => format!("{}, {x}", point.series),
        }
    }
}

/// A position on the experiment's axis with its unit.
pub fn position(experiment: &Experiment, x: &str) -> String {
    match (
        experiment.axis.numeric.then(|| x.parse::<u64>()),
        experiment.axis.unit.as_str(),
    ) {
        (Some(Ok(count)), "") => number::count(count),
        (Some(Ok(count)), unit) => format!("{}{}{unit}", number::count(count), number::SPACE),
        (_, "") => x.to_owned(),
        (_, unit) => format!("{x}{}{unit}", number::SPACE),
    }
}

impl<'a> Cell<'a> {
    /// All repeats, if all of them passed.
    pub fn passed(&self) -> impl Iterator<Item = &'a RunOutcome> {
        let all = self.runs.iter().all(|run| run.ending == Ending::Passed);
        self.runs.iter().copied().filter(move |_| all)
    }

    /// Its value in `metric`, unless a repeat that did not pass has none.
    pub fn value(&self, metric: Metric) -> Option<Spread> {
        let values = || self.runs.iter().map(|run| (run, metric::value(run, metric)));
        if values().any(|(run, value)| run.ending != Ending::Passed && value.is_none()) {
            return None;
        }
        Spread::of(values().filter_map(|(_, value)| value))
    }

    /// Mean of a figure over all repeats, if all of them passed.
    pub fn mean(&self, figure: impl Fn(&RunOutcome) -> Option<f64>) -> Option<f64> {
        Spread::of(self.passed().filter_map(figure)).map(|spread| spread.mean)
    }

    /// Latencies of all repeats, if all of them passed.
    pub fn latency(&self) -> Option<Latency> {
        Latency::of_kinds(self.passed().flat_map(|run| &run.kinds))
    }

    /// The failures, if any, with the number of failed repeats if others passed.
    pub fn problem(&self) -> Option<String> {
        let mut causes: Vec<String> = Vec::new();
        for run in &self.runs {
            let cause = match &run.ending {
                Ending::Passed => continue,
                Ending::Failed(all) => format!("failed: {}", all.join("; ")),
                Ending::Skipped(reason) => format!("skipped: {reason}"),
            };
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        if self.runs.is_empty() {
            return Some("no outcome".to_owned());
        }
        if causes.is_empty() {
            return None;
        }
        let bad = self.runs.iter().filter(|run| run.ending != Ending::Passed).count();
        let some = if bad < self.runs.len() {
            format!("{bad} of {} repeats ", self.runs.len())
        } else {
            String::new()
        };
        Some(format!("{some}{}", causes.join("; ")))
    }

    /// Whether the reason is in [`Ending::Failed`].
    pub fn failed(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.ending, Ending::Failed(_)))
    }

    /// Whether the generator may have been the limit: it came close to its maximum, or had no time left.
    pub fn is_limited(&self, bundle: &Bundle) -> bool {
        let close = self
            .generator_use(bundle)
            .is_some_and(|share| share * WITNESS_FACTOR > 1.0);
        close || self.generator_busy().is_some_and(|share| share > BUSY_MAX)
    }

    /// Share of the time in which the generator's threads were running, in the busiest repeat.
    pub fn generator_busy(&self) -> Option<f64> {
        self.passed().filter_map(metric::generator_busy).reduce(f64::max)
    }

    /// The run's share of the generator's maximum, if controls for all kinds exist.
    pub fn generator_use(&self, bundle: &Bundle) -> Option<f64> {
        let shares = self.passed().filter_map(|run| {
            let protocol = bundle.parties.get(run.party)?.url.split("://").next()?;
            let busy = run.kinds.iter().filter(|kind| kind.steps > 0 && run.seconds > 0.0);
            let share = |kind: &KindOutcome| {
                let limit = witness(bundle, protocol, &kind.name, run.clients)?.operations_per_second;
                // Scans are counted by rows on both sides: their operations are keys, most of which may hold no row.
                let scans = kind.name.contains("scan");
                let done = if scans { kind.rows } else { kind.operations } as f64 / run.seconds;
                (limit > 0.0).then_some(done / limit)
            };
            busy.map(share).sum::<Option<f64>>()
        });
        shares.reduce(f64::max)
    }
}

/// The control for a kind of operation: of those with no more clients than the run had, the fastest.
///
/// Controls have names such as `get, 16 clients`. Single-row writes of all kinds cost the generator as much as a put.
fn witness<'a>(bundle: &'a Bundle, protocol: &str, kind: &str, clients: u32) -> Option<&'a Witness> {
    let family = match kind.split('#').next()? {
        "get" => "get",
        "put" | "insert" | "increment" | "check-and-put" => "put",
        "buffered-put" => "buffered put",
        "scan" | "short-scan" => "scan",
        _ => return None,
    };
    let named = |witness: &&Witness| {
        let name = witness.operation.split(',').next().unwrap_or_default();
        witness.protocol == protocol && name.split(" of ").next() == Some(family)
    };
    let had = |witness: &Witness| {
        let words: Vec<_> = witness.operation.split(' ').collect();
        let count = words
            .iter()
            .position(|word| word.starts_with("client"))
            .and_then(|at| words.get(at.checked_sub(1)?));
        count.and_then(|count| count.parse::<u32>().ok()).unwrap_or(1)
    };
    let fitting = bundle
        .witnesses
        .iter()
        .filter(named)
        .filter(|witness| had(witness) <= clients.max(1));
    fitting.max_by(|a, b| a.operations_per_second.total_cmp(&b.operations_per_second))
}

/// Relation of a target's value to the first target's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Better, and not by chance: the repeats' ranges do not overlap.
    Better,
    /// Worse, likewise.
    Worse,
    /// The ranges meet.
    Even,
}

/// Relation of `cell` to `base`, and the ratio turned so that more than one is better. No ratio if one value is zero,
/// as for a target without stale reads next to one with some.
pub fn advantage(cell: &Cell<'_>, base: &Cell<'_>, metric: Metric) -> Option<(Option<Spread>, Standing)> {
    let (value, base) = (cell.value(metric)?, base.value(metric)?);
    let more = metric::meaning(metric).more_is_better;
    let (larger, smaller) = if more { (value, base) } else { (base, value) };
    let standing = match (larger, smaller) {
        (larger, smaller) if larger.low > smaller.high => Standing::Better,
        (larger, smaller) if larger.high < smaller.low => Standing::Worse,
        _ => Standing::Even,
    };
    Some((larger.over(&smaller).filter(|ratio| ratio.mean > 0.0), standing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;

    #[test]
    fn every_run_of_the_plan_has_a_row_with_all_parties() {
        let bundle = fabricated::bundle(1.0);
        let results = of_bundle(&bundle);
        assert_eq!(results.len(), bundle.suite.experiments.len());
        let reads = &results[1];
        assert_eq!(
            reads
                .series()
                .iter()
                .map(|(name, rows)| (*name, rows.len()))
                .collect::<Vec<_>>(),
            [("uniform", 6), ("zipf 0.8", 6)]
        );
        assert!(
            reads
                .rows
                .iter()
                .all(|row| row.cells.len() == 3 && row.cells.iter().all(|cell| cell.runs.len() == 2))
        );
        assert_eq!(reads.rows[0].name(reads.experiment), "uniform, 0.25\u{a0}GB");
        assert!(results.last().unwrap().is_empty());
    }

    #[test]
    fn failed_and_skipped_cells_have_causes_and_no_value() {
        let bundle = fabricated::bundle(1.0);
        let results = of_bundle(&bundle);
        let lost = &results[0].rows[3].cells[2];
        assert!(lost.value(Metric::BytesPerSecond).is_none() && lost.latency().is_none() && lost.failed());
        assert!(
            lost.problem().unwrap().starts_with("failed: 11 rows"),
            "{:?}",
            lost.problem()
        );
        let skipped = &results[4].rows[0].cells[1];
        assert!(skipped.problem().unwrap().starts_with("skipped: ") && !skipped.failed());
        assert_eq!(Cell::default().problem().unwrap(), "no outcome");
        assert_eq!(results[0].rows[0].cells[0].problem(), None);
    }

    #[test]
    fn a_cell_of_which_some_repeats_failed_says_so() {
        let mut bundle = fabricated::bundle(1.0);
        let first = bundle.runs.iter_mut().find(|run| run.experiment == "B12").unwrap();
        first.ending = Ending::Failed(vec!["x".into()]);
        let results = of_bundle(&bundle);
        let cell = &results[3].rows[0].cells[0];
        assert_eq!(cell.problem().unwrap(), "1 of 2 repeats failed: x");
        assert!(cell.value(Metric::RowsPerSecond).is_none() && cell.latency().is_none());
        assert_eq!(cell.mean(|run| Some(run.seconds)), None);
        assert_eq!(cell.generator_use(&bundle), None);
        let other = &results[3].rows[0].cells[1];
        assert!(other.value(Metric::RowsPerSecond).is_some());
        assert_eq!(advantage(other, cell, Metric::RowsPerSecond), None);
    }

    #[test]
    fn stale_reads_are_a_value_unless_another_repeat_has_none() {
        let run = |ending| {
            let mut run = RunOutcome {
                ending,
                ..RunOutcome::default()
            };
            (run.verdict.checked, run.verdict.stale) = (100, 5);
            run
        };
        let failed = run(Ending::Failed(vec!["5 stale reads".into()]));
        let (passed, skipped) = (run(Ending::Passed), run(Ending::Skipped("no table".into())));
        let value = |runs: &[&'_ RunOutcome]| Cell { runs: runs.to_vec() }.value(Metric::StalePercent);
        assert_eq!(value(&[&failed, &passed]).unwrap().repeats, 2);
        assert_eq!(value(&[&failed, &skipped]), None);
    }

    #[test]
    fn standing_is_turned_so_that_better_is_better() {
        let cell = |seconds: f64| RunOutcome {
            seconds,
            ..RunOutcome::default()
        };
        let (fast, slow) = (cell(1.0), cell(4.0));
        let (fast, slow) = (Cell { runs: vec![&fast] }, Cell { runs: vec![&slow] });
        let (ratio, standing) = advantage(&fast, &slow, Metric::Seconds).unwrap();
        assert_eq!((ratio.unwrap().mean, standing), (4.0, Standing::Better));
        assert_eq!(advantage(&slow, &fast, Metric::Seconds).unwrap().1, Standing::Worse);
        assert_eq!(advantage(&slow, &slow, Metric::Seconds).unwrap().1, Standing::Even);
    }

    #[test]
    fn ranges_that_meet_are_no_difference() {
        let run = |seconds: f64| RunOutcome {
            seconds,
            ..RunOutcome::default()
        };
        let runs = [5.0, 15.0, 10.0, 20.0, 16.0].map(run);
        let [a, b, c, d, e] = &runs;
        let cell = |runs: &[&'_ RunOutcome]| {
            advantage(
                &Cell { runs: vec![c, d] },
                &Cell { runs: runs.to_vec() },
                Metric::Seconds,
            )
            .unwrap()
            .1
        };
        assert_eq!(cell(&[a, b]), Standing::Even);
        assert_eq!(cell(&[e, d]), Standing::Even);
        assert_eq!(cell(&[a]), Standing::Worse);
    }

    #[test]
    fn zero_is_better_or_worse_without_a_ratio() {
        let cell = |stale: u64| {
            let mut run = RunOutcome::default();
            (run.verdict.checked, run.verdict.stale) = (100, stale);
            run
        };
        let (none, some) = (cell(0), cell(5));
        let (none, some) = (Cell { runs: vec![&none] }, Cell { runs: vec![&some] });
        assert_eq!(
            advantage(&none, &some, Metric::StalePercent),
            Some((None, Standing::Better))
        );
        assert_eq!(
            advantage(&some, &none, Metric::StalePercent),
            Some((None, Standing::Worse))
        );
        assert_eq!(
            advantage(&none, &none, Metric::StalePercent),
            Some((None, Standing::Even))
        );
    }

    #[test]
    fn the_generators_share_adds_up_over_kinds() {
        let bundle = fabricated::bundle(1.0);
        let run = bundle
            .runs
            .iter()
            .find(|run| run.experiment == "B05" && run.party == 1)
            .unwrap();
        let rate = metric::value(run, Metric::OperationsPerSecond).unwrap();
        let cell = Cell { runs: vec![run] };
        assert!((cell.generator_use(&bundle).unwrap() - rate / 95_000.0).abs() < 1e-9);
        let found = |kind, clients| witness(&bundle, "hbase", kind, clients).map(|witness| witness.operation.as_str());
        assert_eq!(found("get#2", 64), Some("get, 16 clients"));
        assert_eq!(found("get", 2), Some("get, 1 client"));
        assert_eq!(found("increment", 16), Some("put, 16 clients"));
        assert_eq!(found("short-scan", 4), Some("scan of 1,000 rows, 4 clients"));
        assert_eq!(found("buffered-put", 4), None);
        assert_eq!(found("view-profile", 4), None);
        let without = Bundle {
            witnesses: Vec::new(),
            ..bundle.clone()
        };
        assert_eq!(cell.generator_use(&without), None);
    }
}
