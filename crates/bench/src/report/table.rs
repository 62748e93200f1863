//! An experiment's tables: throughput and cost, latency, and errors in responses.

use super::metric::{self, Spread};
use super::number::{self, SPACE};
use super::results::{Cell, Results, Row, Standing, advantage};
use crate::outcome::{KindOutcome, RunOutcome};
use crate::plan::Metric;
use maud::{Markup, html};

/// Stands in the place of a missing figure.
const NONE: &str = "–";

fn or_none(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), number::short)
}

/// `12,300`, and the range of repeats in small print.
fn spread(value: &Spread) -> Markup {
    html! {
        (number::short(value.mean))
        @if value.repeats > 1 { " " span.range { (number::short(value.low)) "–" (number::short(value.high)) } }
    }
}

/// One line for each run and target. `line` renders the cells after the target's name, `width` of them.
fn lines(results: &Results<'_>, width: usize, line: impl Fn(&Row<'_>, &Cell<'_>) -> Markup) -> Markup {
    html! {
        @for row in &results.rows {
            tbody {
                @for (party, (cell, about)) in row.cells.iter().zip(&results.bundle.parties).enumerate() {
                    tr {
                        @if party == 0 { th rowspan=(row.cells.len()) { (row.name(results.experiment)) } }
                        td.who { (about.name) }
                        @if cell.passed().next().is_some() {
                            (line(row, cell))
                        } @else {
                            td.bad colspan=(width) { (cell.problem().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
    }
}

/// Throughput, ratios, and cost.
pub fn throughput(results: &Results<'_>) -> Markup {
    let chosen = results.experiment.metric;
    let meaning = metric::meaning(chosen);
    let extra = is_extra(chosen);
    let first = results.bundle.parties.first().map_or("", |party| party.name.as_str());
    html! {
        div.wide { table {
            caption { "Throughput and cost" @if results.bundle.parties.len() > 1 { "; ratios of " (meaning.name) " to " (first) ", with the range that repeats allow" } }
            thead { tr {
                th { "run" } th.who { "target" }
                @if extra { th { (meaning.name) ", " (meaning.unit) } }
                th { "ratio" }
                th { "operations/s" } th { "rows/s" } th { "MB/s" } th { "per server CPU" (SPACE) "s" }
                th { "generator CPU, µs" } th { "errors" } th { "retries" } th { "seconds" }
            } }
            (lines(results, 9 + usize::from(extra), |row, cell| throughput_line(results, row, cell)))
        } }
    }
}

/// Whether the metric needs a column of its own.
fn is_extra(metric: Metric) -> bool {
    matches!(metric, Metric::Seconds | Metric::MeanMillis | Metric::StalePercent)
}

fn throughput_line(results: &Results<'_>, row: &Row<'_>, cell: &Cell<'_>) -> Markup {
    let chosen = results.experiment.metric;
    let is_first = row.cells.first().is_some_and(|first| std::ptr::eq(first, cell));
    let against = row
        .cells
        .first()
        .filter(|_| !is_first)
        .and_then(|first| advantage(cell, first, chosen));
    let plain = row
        .cells
        .first()
        .filter(|_| !is_first)
        .and_then(|first| cell.value(chosen)?.over(&first.value(chosen)?));
    let class = against.map_or("", |(_, standing)| match standing {
        Standing::Better => "better",
        Standing::Worse => "worse",
        Standing::Even => "",
    });
    let limited = cell.is_limited(results.bundle);
    let total = |count: fn(&RunOutcome) -> u64| cell.runs.iter().map(|run| count(run)).fold(0, u64::saturating_add);
    let rate = |metric, unit: f64| match cell.value(metric) {
        Some(value) if metric == chosen => spread(&value.times(1.0 / unit)),
        value => html! { (or_none(value.map(|value| value.mean / unit))) },
    };
    html! {
        @if is_extra(chosen) { td { (cell.value(chosen).map_or_else(|| html! { (NONE) }, |value| spread(&value))) } }
        td class=(class) { (plain.map_or_else(|| html! {}, |ratio| spread(&ratio))) }
        td {
            (rate(Metric::OperationsPerSecond, 1.0))
            @if limited { abbr title="the generator was close to its maximum or had no time left: it may have been the limit" { "†" } }
        }
        td { (rate(Metric::RowsPerSecond, 1.0)) }
        td { (rate(Metric::BytesPerSecond, 1e6)) }
        td { (or_none(cell.mean(metric::per_server_cpu_second))) }
        td { (or_none(cell.mean(metric::generator_micros))) }
        td { (number::count(total(metric::failures))) }
        td { (number::count(total(metric::retries))) }
        td { (or_none(cell.mean(|run| Some(run.seconds)))) }
    }
}

/// Percentiles of the latency tables.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Latency of all operations, and of each kind if there are several.
pub fn latency(results: &Results<'_>) -> Markup {
    html! {
        div.wide { table {
            caption { "Latency, ms, of one call; all repeats together" }
            thead { tr {
                th { "run" } th.who { "target" } th { "mean" } th { "sd" }
                @for percentile in PERCENTILES { th { "p" (percentile) } }
                th { "max" } th { "calls" }
            } }
            (lines(results, 8, |_, cell| html! { (latency_cells(cell.latency(), None)) }))
            (by_kind(results))
            (failed_calls(results))
        } }
    }
}

/// A line for each target whose calls failed in a run that passed: one that kills servers. The latencies above are
/// those of calls that succeeded, and a client waits for a failed one too.
fn failed_calls(results: &Results<'_>) -> Markup {
    html! {
        @for row in &results.rows {
            @for (cell, party) in row.cells.iter().zip(&results.bundle.parties) {
                @if let Some(latency) = metric::Latency::of_failed(cell.passed().flat_map(|run| &run.kinds)) {
                    tbody.kinds { tr {
                        th { (row.name(results.experiment)) ", " (party.name) }
                        td.who { "failed calls" }
                        (latency_cells(Some(latency), None))
                    } }
                }
            }
        }
    }
}

fn latency_cells(latency: Option<metric::Latency>, steps: Option<u64>) -> Markup {
    let Some(latency) = latency else {
        return html! { td colspan="8" { "no calls" } };
    };
    html! {
        td { (number::millis(latency.mean)) } td { (number::millis(latency.deviation)) }
        @for percentile in PERCENTILES { td { (number::millis(latency.percentile(percentile))) } }
        td { (number::millis(latency.max as f64)) }
        td { (number::count(steps.unwrap_or(latency.histogram.len()))) }
    }
}

/// A line for each kind of operation, for runs that mix kinds.
fn by_kind(results: &Results<'_>) -> Markup {
    html! {
        @for row in &results.rows {
            @for (cell, party) in row.cells.iter().zip(&results.bundle.parties) {
                @let names = kind_names(cell);
                @if names.len() > 1 {
                    tbody.kinds {
                        @for (index, name) in names.iter().enumerate() {
                            @let parts: Vec<&KindOutcome> = cell.passed().flat_map(|run| &run.kinds).filter(|kind| kind.name == *name).collect();
                            tr {
                                @if index == 0 { th rowspan=(names.len()) { (row.name(results.experiment)) ", " (party.name) } }
                                td.who { (name) }
                                (latency_cells(metric::Latency::of_kinds(parts.iter().copied()), None))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn kind_names(cell: &Cell<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for kind in cell.passed().flat_map(|run| &run.kinds).filter(|kind| kind.steps > 0) {
        if !names.contains(&kind.name) {
            names.push(kind.name.clone());
        }
    }
    names
}

/// Results of the checks: compared, expected, stale; and the real skew of the keys.
pub fn checks(results: &Results<'_>) -> Markup {
    let has = |run: &RunOutcome| run.verdict.checked > 0 || run.expected_rows.is_some() || run.skew.is_some();
    let rows: Vec<_> = results
        .rows
        .iter()
        .filter(|row| row.cells.iter().any(|cell| cell.runs.iter().any(|run| has(run))))
        .collect();
    if rows.is_empty() {
        return html! { p.note { "No responses were checked in these runs." } };
    }
    html! {
        details { summary { "Responses: checked, expected, stale; measured skew of keys" }
            div.wide { table {
                thead { tr {
                    th { "run" } th.who { "target" } th { "repeat" } th { "responses checked" } th { "missing" } th { "unexpected" } th { "wrong" }
                    th { "stale" } th { "stale, %" } th { "rows returned" } th { "rows expected" }
                    th { "operations on busiest 1 / 10 / 20" (SPACE) "% of keys" }
                } }
                @for row in rows {
                    tbody {
                        @for (cell, party) in row.cells.iter().zip(&results.bundle.parties) {
                            @for run in cell.runs.iter().filter(|run| has(run)) {
                                tr { th { (row.name(results.experiment)) } td.who { (party.name) } (check_cells(run)) }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn check_cells(run: &RunOutcome) -> Markup {
    let verdict = &run.verdict;
    let stale = (verdict.checked > 0).then(|| 100.0 * verdict.stale as f64 / verdict.checked as f64);
    let rows = |rows: Option<u64>| rows.map_or(NONE.to_owned(), number::count);
    let bad = |count: u64| if count > 0 { "bad" } else { "" };
    let short = if run.has_expected_rows() { "" } else { "bad" };
    html! {
        td { (run.repeat) } td { (number::count(verdict.checked)) }
        @for count in [verdict.missing, verdict.unexpected, verdict.wrong, verdict.stale] {
            td class=(bad(count)) { (number::count(count)) }
        }
        td class=(bad(verdict.stale)) { (or_none(stale)) }
        td class=(short) { (rows(run.returned_rows)) }
        td { (rows(run.expected_rows)) @if run.unsure_rows > 0 { " to " (number::count(run.expected_rows.unwrap_or_default().saturating_add(run.unsure_rows))) } }
        td {
            @match &run.skew {
                Some(skew) => {
                    @for (index, share) in [skew.top_1_percent, skew.top_10_percent, skew.top_20_percent].iter().enumerate() {
                        @if index > 0 { " / " } (format!("{:.1}", share * 100.0))
                    }
                    (SPACE) "%"
                },
                None => (NONE),
            }
        }
    }
}
