//! Compares several executions of one suite, such as those of two versions.

use super::metric::{self, Spread};
use super::number::{self, SPACE};
use super::results::{self, Cell, Results, Row, Standing};
use crate::bundle::Bundle;
use maud::{Markup, html};

/// Smallest change that is marked, however small the spread: machines differ by as much from day to day.
const CHANGE_MIN: f64 = 0.1;

/// Change of a run between the first bundle and a later one.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Values in both. The ratio is turned so that more than one is better (absent if one value is zero), with its
    /// mark.
    Ratio(Option<Spread>, Mark),
    /// It had a value and has none now, for this reason.
    Lost(String),
    /// It has a value now and had none.
    Gained,
    /// No value in either.
    Neither,
}

/// Whether a change is larger than chance and than a tenth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// By more than a tenth, and the repeats' ranges do not overlap.
    Better,
    /// Likewise.
    Worse,
    /// Neither.
    None,
}

/// The table of all bundles against the first. A sentence if there is nothing to compare.
pub fn section(bundles: &[Bundle]) -> Markup {
    let [first, later @ ..] = bundles else {
        return html! { p.note { "No bundles." } };
    };
    if later.is_empty() {
        return html! { p.note { "One bundle: nothing to compare it with." } };
    }
    let base = results::of_bundle(first);
    let others: Vec<_> = later.iter().map(results::of_bundle).collect();
    html! {
        section {
            h2 { "Changes against the first bundle" }
            ol { @for bundle in bundles { li { (bundle.tool) ", " (bundle.suite.name) " at scale " (super::head::scale(bundle.suite.scale)) ", " (number::date(bundle.started_at)) } } }
            p.note {
                "Ratios are turned so that more than 1 is better, with the range that the repeats of both allow. Marked: changes of more than "
                (CHANGE_MIN * 100.0) (SPACE) "% whose ranges do not include 1."
            }
            @if later.iter().any(|bundle| bundle.suite.scale != first.suite.scale) {
                p.bad { "The bundles are of different scales: their figures should not be compared." }
            }
            @if bundles.iter().any(|bundle| bundle.runs.iter().all(|run| run.repeat <= 1)) {
                p.bad { "A bundle has one repeat of each run: how much runs differ by chance is not known, and marks may be chance." }
            }
            @for results in &base { (experiment(results, &others)) }
        }
    }
}

fn experiment(base: &Results<'_>, others: &[Vec<Results<'_>>]) -> Markup {
    let meaning = metric::meaning(base.experiment.metric);
    let rows: Vec<_> = base
        .rows
        .iter()
        .filter(|row| row.cells.iter().any(|cell| !cell.runs.is_empty()))
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { span.id { (base.experiment.id) } " " (base.experiment.title) }
            div.wide { table {
                thead { tr {
                    th { "run" } th.who { "target" } th { "first, " (meaning.unit) }
                    @for index in 0..others.len() { th { "bundle " (index + 2) } th { "ratio" } }
                } }
                @for row in rows {
                    tbody { @for (party, cell) in row.cells.iter().enumerate() {
                        @let name = base.bundle.parties.get(party).map_or("", |party| party.name.as_str());
                        tr {
                            @if party == 0 { th rowspan=(row.cells.len()) { (row.name(base.experiment)) } }
                            td.who { (name) }
                            td { (value(base, cell)) }
                            @for other in others { (other_cells(base, row, name, cell, other)) }
                        }
                    } }
                }
            } }
        }
    }
}

fn value(results: &Results<'_>, cell: &Cell<'_>) -> Markup {
    match cell.value(results.experiment.metric) {
        Some(value) => html! { (number::short(value.mean)) },
        None => html! { span.bad { (cell.problem().unwrap_or_default()) } },
    }
}

fn other_cells(base: &Results<'_>, row: &Row<'_>, party: &str, cell: &Cell<'_>, other: &[Results<'_>]) -> Markup {
    let Some((results, found)) = find(other, base, row, party) else {
        return html! { td colspan="2" { "not there" } };
    };
    html! {
        td { (value(results, found)) }
        @match change(base, cell, found) {
            Change::Ratio(ratio, mark) => {
                td class=(match mark { Mark::Better => "better", Mark::Worse => "worse", Mark::None => "" }) {
                    @if let Some(ratio) = ratio { (number::ratio(ratio.mean)) " " span.range { (number::ratio(ratio.low)) "–" (number::ratio(ratio.high)) } } @else { "–" }
                    @match mark { Mark::Better => " ▲", Mark::Worse => " ▼", Mark::None => "" }
                }
            },
            Change::Lost(_) => td.worse { "fails now ▼" },
            Change::Gained => td.better { "passes now ▲" },
            Change::Neither => td { "–" },
        }
    }
}

/// The same run on the target of the same name in another bundle.
fn find<'a, 'b>(
    other: &'b [Results<'a>],
    base: &Results<'_>,
    row: &Row<'_>,
    party: &str,
) -> Option<(&'b Results<'a>, &'b Cell<'a>)> {
    let results = other
        .iter()
        .find(|results| results.experiment.id == base.experiment.id)?;
    let index = results.bundle.parties.iter().position(|about| about.name == party)?;
    let row = results.rows.iter().find(|found| found.run.label == row.run.label)?;
    Some((results, row.cells.get(index)?))
}

/// How `later` stands to `first`.
pub fn change(base: &Results<'_>, first: &Cell<'_>, later: &Cell<'_>) -> Change {
    let chosen = base.experiment.metric;
    match (
        first.value(chosen),
        later.value(chosen),
        results::advantage(later, first, chosen),
    ) {
        (_, _, Some((ratio, standing))) => {
            // Without a ratio one of the two is zero: any change from or to zero is a large one.
            let large = ratio.is_none_or(|ratio| (ratio.mean - 1.0).abs() > CHANGE_MIN);
            let mark = match standing {
                Standing::Better if large => Mark::Better,
                Standing::Worse if large => Mark::Worse,
                _ => Mark::None,
            };
            Change::Ratio(ratio, mark)
        }
        (Some(_), None, _) => Change::Lost(later.problem().unwrap_or_default()),
        (None, Some(_), _) => Change::Gained,
        _ => Change::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;
    use crate::outcome::Ending;

    fn marks(first: &Bundle, later: &Bundle, experiment: usize) -> Vec<Change> {
        let (base, later) = (results::of_bundle(first), results::of_bundle(later));
        let (base, later) = (&base[experiment], &later[experiment]);
        let pairs = base
            .rows
            .iter()
            .zip(&later.rows)
            .flat_map(|(a, b)| a.cells.iter().zip(&b.cells));
        pairs.map(|(a, b)| change(base, a, b)).collect()
    }

    #[test]
    fn a_planted_regression_is_marked_and_noise_is_not() {
        let (first, later) = (fabricated::bundle(1.0), fabricated::bundle(0.7));
        for (index, change) in marks(&first, &later, 1).into_iter().enumerate() {
            let found = match &change {
                Change::Ratio(_, mark) => Some(*mark),
                _ => None,
            };
            // The fabricated first target is every third cell.
            let expected = if index % 3 == 0 { Mark::Worse } else { Mark::None };
            assert_eq!(found, Some(expected), "{index}: {change:?}");
        }
        assert!(section(&[first, later]).into_string().contains('▼'));
    }

    #[test]
    fn a_run_that_fails_now_is_a_regression() {
        let first = fabricated::bundle(1.0);
        let mut later = first.clone();
        for run in later
            .runs
            .iter_mut()
            .filter(|run| run.experiment == "B07" && run.party == 0)
        {
            run.ending = Ending::Failed(vec!["lost rows".into()]);
        }
        assert_eq!(marks(&first, &later, 1)[0], Change::Lost("failed: lost rows".into()));
        assert_eq!(marks(&later, &first, 1)[0], Change::Gained);
        assert!(section(&[first, later]).into_string().contains("fails now"));
    }

    #[test]
    fn bundles_without_common_runs_are_said_to_be_so() {
        let first = fabricated::bundle(1.0);
        let other = Bundle {
            parties: Vec::new(),
            ..Bundle::default()
        };
        assert!(section(&[first.clone(), other]).into_string().contains("not there"));
        assert!(section(&[first]).into_string().contains("nothing to compare"));
        assert!(section(&[]).into_string().contains("No bundles"));
    }
}
