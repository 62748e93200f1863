//! The document's figures next to ours.
//!
//! Machines differ by decades, so shapes are compared and not figures. One comparison is of the ratio between the
//! document's two systems with the ratio between ours. The other is of the course of each curve from a point that all
//! curves have.

use super::chart::lines::{Axis, Line, Lines, Point};
use super::results::{Results, Row};
use super::{experiment, metric, number};
use crate::plan::Published;
use maud::{Markup, html};

/// Table and curves. Nothing if the document has no figures.
pub fn section(results: &Results<'_>) -> Markup {
    let published = &results.experiment.published;
    if published.is_empty() {
        return html! {};
    }
    let mut systems: Vec<&str> = Vec::new();
    for figure in published {
        if !systems.contains(&figure.system.as_str()) {
            systems.push(&figure.system);
        }
    }
    html! {
        h3 { "The document's figures next to ours" }
        (table(results, &systems))
        div.charts {
            @for (name, rows) in results.series() {
                @if let Some((place, chart)) = curves(results, &rows, &systems) {
                    figure {
                        figcaption { b { (name) } ": each curve as a multiple of its value at " (place) "; the document's dashed" }
                        (chart)
                    }
                }
            }
        }
    }
}

fn find<'a>(published: &'a [Published], system: &str, row: &Row<'_>) -> Option<&'a Published> {
    published
        .iter()
        .find(|figure| figure.system == system && Some(&figure.point) == row.run.point.as_ref())
}

fn table(results: &Results<'_>, systems: &[&str]) -> Markup {
    let experiment = results.experiment;
    let parties = &results.bundle.parties;
    let unit = metric::meaning(experiment.metric).unit;
    let rows = results.rows.iter().filter(|row| {
        systems
            .iter()
            .any(|system| find(&experiment.published, system, row).is_some())
    });
    let theirs = |row: &Row<'_>, index: usize| find(&experiment.published, systems.get(index)?, row)?.value;
    let ours = |row: &Row<'_>, index: usize| Some(row.cells.get(index)?.value(experiment.metric)?.mean);
    let ratio = |first: Option<f64>, second: Option<f64>| Some(first? / second.filter(|value| *value > 0.0)?);
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), number::short);
    html! {
        div.wide { table {
            caption { "Ratio against ratio, in " (unit) }
            thead { tr {
                th { "run" }
                @for system in systems { th { (system) } }
                @if let [first, second, ..] = systems { th { (first) " : " (second) } }
                @for party in parties { th { (party.name) } }
                @if let [first, rest @ ..] = parties.as_slice() { @for other in rest { th { (first.name) " : " (other.name) } } }
            } }
            tbody { @for row in rows { tr {
                th { (row.name(experiment)) }
                @for system in systems { (cell(find(&experiment.published, system, row))) }
                @if systems.len() > 1 { td.ratio { (shown(ratio(theirs(row, 0), theirs(row, 1)))) } }
                @for index in 0..parties.len() { td { (shown(ours(row, index))) } }
                @for index in 1..parties.len() { td.ratio { (shown(ratio(ours(row, 0), ours(row, index)))) } }
            } } }
        } }
    }
}

fn cell(figure: Option<&Published>) -> Markup {
    html! {
        @match figure {
            None => td { "–" },
            Some(Published { value: Some(value), note, .. }) => {
                td { (number::short(*value)) @if !note.is_empty() { abbr title=(note) { "*" } } }
            },
            Some(Published { value: None, note, .. }) => td.bad { "failed" @if !note.is_empty() { ": " (note) } },
        }
    }
}

/// Every curve as a multiple of its value at the first position that most curves have. Nothing unless the axis is
/// numeric and the document has two points of one system on it.
fn curves(results: &Results<'_>, rows: &[&Row<'_>], systems: &[&str]) -> Option<(String, Markup)> {
    let experiment = results.experiment;
    let mut placed: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((experiment::x(row)?, *row)))
        .collect();
    placed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = results.bundle.parties.len();
    let mut lines = Vec::new();
    for (party, about) in results.bundle.parties.iter().enumerate() {
        let value = |row: &Row<'_>| Some(row.cells.get(party)?.value(experiment.metric)?.mean);
        lines.push(Line {
            name: about.name.clone(),
            party,
            points: points(&placed, value),
            ..Line::default()
        });
    }
    for (index, system) in systems.iter().enumerate() {
        let points = points(&placed, |row| find(&experiment.published, system, row)?.value);
        let name = (*system).to_owned();
        lines.push(Line {
            name,
            party: count + index,
            points,
            dashed: true,
            ..Line::default()
        });
    }
    lines.retain(|line| line.points.len() > 1);
    if !experiment.axis.numeric || !lines.iter().any(|line| line.dashed) {
        return None;
    }
    let at = |line: &Line, x: f64| line.points.iter().find(|point| point.x == x).map(|point| point.y);
    let having = |x: f64| lines.iter().filter(|line| at(line, x).is_some()).count();
    let most = placed.iter().map(|(x, _)| having(*x)).max()?;
    let (reference, row) = placed.iter().find(|(x, _)| having(*x) == most)?;
    lines.retain_mut(|line| {
        let Some(base) = at(line, *reference) else { return false };
        line.points.iter_mut().for_each(|point| point.y /= base);
        true
    });
    let place = super::results::position(experiment, row.run.point.as_ref().map_or("", |point| &point.x));
    let chart = Lines {
        title: "shapes of the curves",
        x: Axis {
            name: &experiment.axis.label,
            unit: &experiment.axis.unit,
            logarithmic: true,
        },
        y: Axis {
            name: metric::meaning(experiment.metric).name,
            unit: "×",
            logarithmic: false,
        },
        lines,
        markers: true,
        ..Lines::default()
    };
    Some((place, chart.draw()?))
}

/// The positive values of a curve.
fn points(placed: &[(f64, &Row<'_>)], value: impl Fn(&Row<'_>) -> Option<f64>) -> Vec<Point> {
    let values = placed.iter().filter_map(|(x, row)| Some((*x, value(row)?)));
    values
        .filter(|(_, y)| y.is_finite() && *y > 0.0)
        .map(|(x, y)| Point::new(x, y))
        .collect()
}
