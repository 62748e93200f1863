//! One experiment: question, charts in its metric, tables, the document's figures, distributions, time, resources.

use super::chart::bars::{Bar, Bars};
use super::chart::lines::{Axis, Line, Lines, Point};
use super::results::{Results, Row};
use super::{distribution, metric, number, published, rating, resources, table};
use crate::plan::{Experiment, Metric};
use maud::{Markup, html};

/// The experiment's section.
pub fn section(results: &Results<'_>) -> Markup {
    let experiment = results.experiment;
    html! {
        section id={ "x-" (experiment.id) } {
            h2 { span.id { (experiment.id) } " " (experiment.title) }
            @if !experiment.about.is_empty() { p.about { (experiment.about) } }
            @if !experiment.differences.is_empty() {
                p.differs { b { "Differs from the document: " } (experiment.differences.join(" ")) }
            }
            @let unflushed = results.unflushed();
            @if !unflushed.is_empty() {
                p.differs { b { "Differs between targets: " } (unflushed.join(" ")) }
            }
            @match &experiment.unavailable {
                Some(reason) => { p.bad { "Not run: " (reason) } },
                None if results.is_empty() => { p.bad { "Nothing was run: the bench ended before it." } },
                None => { (body(results)) },
            }
        }
    }
}

fn body(results: &Results<'_>) -> Markup {
    let names: Vec<_> = results.bundle.parties.iter().map(|party| party.name.clone()).collect();
    html! {
        (super::chart::legend(&names))
        (charts(results))
        (rating::section(results))
        (table::throughput(results))
        (table::latency(results))
        (table::checks(results))
        (published::section(results))
        (distribution::over_time(results))
        (distribution::details(results))
        (resources::of_experiment(results))
    }
}

/// A chart for each series in the experiment's metric.
fn charts(results: &Results<'_>) -> Markup {
    let experiment = results.experiment;
    let meaning = metric::meaning(experiment.metric);
    let series = results.series();
    html! {
        @if series.is_empty() { p.note { "No chart: none of its runs has a place on an axis." } }
        div.charts {
            @for (name, rows) in &series {
                figure {
                    figcaption {
                        b { (if name.is_empty() { experiment.title.as_str() } else { name }) }
                        ": " (meaning.name)
                        (if meaning.more_is_better { ", more is better" } else { ", less is better" })
                        (marks(results, rows))
                    }
                    @match chart(results, name, rows) {
                        Some(chart) => (chart),
                        None => p.note { "No chart: none of these runs has a result." },
                    }
                }
            }
        }
    }
}

/// Explanation of the marks of runs that did not pass, if there are any.
fn marks(results: &Results<'_>, rows: &[&Row<'_>]) -> &'static str {
    let bad = || {
        rows.iter()
            .flat_map(|row| &row.cells)
            .filter(|cell| cell.problem().is_some())
    };
    let valued = bad().any(|cell| cell.value(results.experiment.metric).is_some());
    match (valued, bad().next().is_some()) {
        (true, _) if results.experiment.metric == Metric::StalePercent => "; hollow: failed for it",
        (false, true) => "; ✕: failed or skipped",
        _ => "",
    }
}

fn chart(results: &Results<'_>, name: &str, rows: &[&Row<'_>]) -> Option<Markup> {
    let experiment = results.experiment;
    let numbers: Vec<Option<f64>> = rows
        .iter()
        .map(|row| x(row).filter(|_| experiment.axis.numeric))
        .collect();
    match numbers.iter().copied().collect::<Option<Vec<f64>>>() {
        Some(numbers) if numbers.len() > 1 => line_chart(results, name, rows, &numbers),
        _ => bar_chart(results, name, rows),
    }
}

/// A row's position as a number.
pub fn x(row: &Row<'_>) -> Option<f64> {
    let x: f64 = row.run.point.as_ref()?.x.parse().ok()?;
    x.is_finite().then_some(x)
}

fn line_chart(results: &Results<'_>, title: &str, rows: &[&Row<'_>], numbers: &[f64]) -> Option<Markup> {
    let experiment = results.experiment;
    let mut placed: Vec<_> = numbers.iter().copied().zip(rows).collect();
    placed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let line = |(party, name): (usize, &String)| {
        let mut line = Line {
            name: name.clone(),
            party,
            ..Line::default()
        };
        for (x, row) in &placed {
            let Some(cell) = row.cells.get(party) else { continue };
            match cell.value(experiment.metric) {
                Some(value) => line.points.push(Point {
                    x: *x,
                    y: value.mean,
                    range: (value.repeats > 1).then_some((value.low, value.high)),
                    tip: tip(name, row, experiment, value.mean),
                }),
                None => line.failed.push((*x, cell.problem().unwrap_or_default())),
            }
        }
        line
    };
    let names: Vec<_> = results.bundle.parties.iter().map(|party| party.name.clone()).collect();
    let meaning = metric::meaning(experiment.metric);
    let lines = Lines {
        title,
        x: Axis {
            name: &experiment.axis.label,
            unit: &experiment.axis.unit,
            logarithmic: true,
        },
        y: Axis {
            name: meaning.name,
            unit: meaning.unit,
            logarithmic: false,
        },
        lines: names.iter().enumerate().map(line).collect(),
        markers: true,
        ..Lines::default()
    };
    lines.draw()
}

fn bar_chart(results: &Results<'_>, title: &str, rows: &[&Row<'_>]) -> Option<Markup> {
    let experiment = results.experiment;
    let meaning = metric::meaning(experiment.metric);
    let groups =
        rows.iter().map(|row| {
            let x = row.run.point.as_ref().map_or("", |point| point.x.as_str());
            let bars = row.cells.iter().zip(&results.bundle.parties).map(|(cell, party)| {
                match cell.value(experiment.metric) {
                    Some(value) => Bar::Value {
                        mean: value.mean,
                        low: value.low,
                        high: value.high,
                        tip: tip(&party.name, row, experiment, value.mean),
                        failed: cell.failed(),
                    },
                    None => cell.problem().map_or(Bar::Absent, Bar::Failed),
                }
            });
            (x.to_owned(), bars.collect())
        });
    let bars = Bars {
        title,
        x: (&experiment.axis.label, &experiment.axis.unit),
        y: (meaning.name, meaning.unit),
        groups: groups.collect(),
    };
    bars.draw()
}

fn tip(party: &str, row: &Row<'_>, experiment: &Experiment, value: f64) -> String {
    format!(
        "{party}, {}: {} {}",
        row.name(experiment),
        number::short(value),
        metric::meaning(experiment.metric).unit
    )
}
