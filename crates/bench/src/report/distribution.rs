//! Distributions of latency, and throughput over time.

use super::chart::lines::{Axis, Line, Lines, Point};
use super::metric::{self, Latency};
use super::number;
use super::results::{Results, Row};
use crate::outcome::RunOutcome;
use crate::plan::Run;
use maud::{Markup, html};

/// Bins for each decade of the whole distribution: neighbours differ by a seventh.
const BINS_PER_DECADE: f64 = 16.0;
/// Bins of the zoomed distribution.
const BINS_ZOOMED: usize = 50;
/// The range of the 2010 evaluation by hstack, µs; narrower if all latencies are shorter.
const ZOOM_MICROS: f64 = 20_000.0;
/// Most points of a line over time; longer runs are averaged.
const MOMENTS_MAX: usize = 400;

/// Most events listed with one chart. The bundle has all.
const EVENTS_MAX: usize = 12;

/// Throughput over time of runs that had an event or took longer than a minute.
pub fn over_time(results: &Results<'_>) -> Markup {
    let worth = |run: &RunOutcome| run.seconds > 60.0 || !run.events.is_empty();
    let rows: Vec<_> = results
        .rows
        .iter()
        .filter(|row| row.cells.iter().any(|cell| cell.runs.iter().any(|run| worth(run))))
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { "Over time" }
            p.note { "Dashed: numbered events. Short marks at the foot: pauses of the target's garbage collector." }
            div.charts {
                @for row in &rows { @for (party, cell) in row.cells.iter().enumerate() { @for run in cell.runs.iter().filter(|run| worth(run)) {
                    @if let Some(chart) = time_chart(results, &[(party, run)], false) {
                        figure {
                            figcaption { b { (row.name(results.experiment)) } ", " (party_name(results, party)) ", repeat " (run.repeat) (happened(run, row.run)) }
                            (chart)
                        }
                    }
                } } }
            }
        }
    }
}

fn party_name<'a>(results: &Results<'a>, party: usize) -> &'a str {
    results
        .bundle
        .parties
        .get(party)
        .map_or("", |party| party.name.as_str())
}

/// Drift and events of a run of this plan in words.
fn happened(run: &RunOutcome, plan: &Run) -> Markup {
    html! {
        @if let Some(drift) = metric::drift(run, plan) {
            "; last quarter against first: " b { (format!("{:+.1}", drift * 100.0)) (number::SPACE) "%" }
        }
        @for (index, event) in run.events.iter().take(EVENTS_MAX).enumerate() {
            @if index == 0 { br; } @else { "; " }
            "(" (index + 1) ") at " (number::seconds(event.at)) " " (event.text)
        }
        @if run.events.len() > EVENTS_MAX { "; and " (run.events.len() - EVENTS_MAX) " more events" }
    }
}

/// Charts of each point, folded away: they are many.
pub fn details(results: &Results<'_>) -> Markup {
    let names: Vec<_> = results.bundle.parties.iter().map(|party| party.name.clone()).collect();
    let drawn: Vec<_> = results
        .rows
        .iter()
        .filter_map(|row| Some((row, point(results, row)?)))
        .collect();
    html! {
        @if !drawn.is_empty() {
            details open[drawn.len() == 1] {
                summary { "Latency distributions and throughput over time of each run (" (drawn.len()) ")" }
                (super::chart::legend(&names))
                @for (row, charts) in drawn { h4 { (row.name(results.experiment)) } div.small { (charts) } }
            }
        }
    }
}

/// The charts of one run of the plan.
fn point(results: &Results<'_>, row: &Row<'_>) -> Option<Markup> {
    let latencies: Vec<_> = row.cells.iter().map(|cell| cell.latency()).collect();
    let present: Vec<_> = latencies
        .iter()
        .enumerate()
        .filter_map(|(party, latency)| Some((party, latency.as_ref()?)))
        .collect();
    if present.is_empty() {
        return None;
    }
    let zoom = zoom(present.iter().map(|(_, latency)| *latency));
    let runs: Vec<_> = row
        .cells
        .iter()
        .enumerate()
        .flat_map(|(party, cell)| cell.passed().map(move |run| (party, run)))
        .collect();
    let charts = [
        ("Latency, whole".to_owned(), whole(results, &present)),
        (
            format!("Latency below {}{}ms", number::round(zoom / 1000.0), number::SPACE),
            zoomed(results, &present, zoom),
        ),
        ("Latency by percentile".to_owned(), percentiles(results, &present)),
        ("Throughput over time".to_owned(), time_chart(results, &runs, true)),
    ];
    Some(html! {
        @for (title, chart) in charts {
            @if let Some(chart) = chart { figure { figcaption { (title) } (chart) } }
        }
    })
}

/// 20 ms, or the round number that covers 99 % of the slowest target's operations if that is less.
fn zoom<'a>(latencies: impl Iterator<Item = &'a Latency>) -> f64 {
    let slowest = latencies.map(|latency| latency.percentile(99.0)).fold(1.0, f64::max);
    let unit = 10f64.powf(slowest.log10().floor());
    let round = [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * unit)
        .find(|round| *round >= slowest);
    round.unwrap_or(10.0 * unit).min(ZOOM_MICROS)
}

fn lines<'a>(
    results: &Results<'_>,
    present: &[(usize, &Latency)],
    points: impl Fn(&Latency) -> Vec<Point>,
) -> Lines<'a> {
    let line = |(party, latency): &(usize, &Latency)| Line {
        name: party_name(results, *party).to_owned(),
        party: *party,
        points: points(latency),
        ..Line::default()
    };
    Lines {
        lines: present.iter().map(line).collect(),
        small: true,
        ..Lines::default()
    }
}

fn whole(results: &Results<'_>, present: &[(usize, &Latency)]) -> Option<Markup> {
    Lines {
        title: "distribution of latencies",
        x: Axis {
            name: "latency",
            unit: "ms",
            logarithmic: true,
        },
        y: Axis {
            name: "calls in each bin of 15 %",
            unit: "%",
            logarithmic: false,
        },
        ..lines(results, present, logarithmic_bins)
    }
    .draw()
}

/// Share of calls, %, in bins of equal width on a logarithmic axis of ms.
fn logarithmic_bins(latency: &Latency) -> Vec<Point> {
    let bin = |micros: u64| ((micros.max(1) as f64).log10() * BINS_PER_DECADE).floor() as usize;
    let mut counts = vec![0u64; bin(latency.histogram.max()) + 2];
    for value in latency.histogram.iter_recorded() {
        if let Some(count) = counts.get_mut(bin(value.value_iterated_to())) {
            *count += value.count_at_value();
        }
    }
    let first = bin(latency.histogram.min()).saturating_sub(1);
    let total = latency.histogram.len() as f64;
    let middle = |index: usize| 10f64.powf((index as f64 + 0.5) / BINS_PER_DECADE) / 1000.0;
    let shares = counts.iter().enumerate().skip(first);
    shares
        .map(|(index, count)| Point::new(middle(index), 100.0 * *count as f64 / total))
        .collect()
}

fn zoomed(results: &Results<'_>, present: &[(usize, &Latency)], zoom: f64) -> Option<Markup> {
    let title = format!("calls in each {} µs", number::round(zoom / BINS_ZOOMED as f64));
    let lines = Lines {
        title: "distribution of short latencies",
        x: Axis {
            name: "latency",
            unit: "ms",
            logarithmic: false,
        },
        y: Axis {
            name: &title,
            unit: "%",
            logarithmic: false,
        },
        ..lines(results, present, |latency| linear_bins(latency, zoom))
    };
    lines.draw()
}

/// Share of calls, %, in bins of equal width from zero to `zoom`.
fn linear_bins(latency: &Latency, zoom: f64) -> Vec<Point> {
    let mut counts = [0u64; BINS_ZOOMED];
    for value in latency.histogram.iter_recorded() {
        let bin = value.value_iterated_to() as f64 / zoom * BINS_ZOOMED as f64;
        if let Some(count) = counts.get_mut(bin as usize) {
            *count += value.count_at_value();
        }
    }
    let total = latency.histogram.len() as f64;
    let middle = |index: usize| (index as f64 + 0.5) * zoom / 1000.0 / BINS_ZOOMED as f64;
    counts
        .iter()
        .enumerate()
        .map(|(index, count)| Point::new(middle(index), 100.0 * *count as f64 / total))
        .collect()
}

fn percentiles(results: &Results<'_>, present: &[(usize, &Latency)]) -> Option<Markup> {
    let ticks = [
        (0.0, "0"),
        (1.0, "90"),
        (2.0, "99"),
        (3.0, "99.9"),
        (4.0, "99.99"),
        (5.0, "99.999"),
    ];
    let most = present.iter().map(|(_, latency)| nines(latency)).fold(0.0, f64::max);
    let ticks = ticks.into_iter().filter(|(nines, _)| *nines <= most);
    Lines {
        title: "latency by percentile",
        x: Axis {
            name: "percentile",
            unit: "%",
            logarithmic: false,
        },
        y: Axis {
            name: "latency",
            unit: "ms",
            logarithmic: true,
        },
        ticks: Some(ticks.map(|(nines, label)| (nines, label.to_owned())).collect()),
        ..lines(results, present, percentile_points)
    }
    .draw()
}

/// Number of nines that the number of calls can resolve: two for a hundred.
fn nines(latency: &Latency) -> f64 {
    (latency.histogram.len() as f64).log10().clamp(0.0, 5.0)
}

fn percentile_points(latency: &Latency) -> Vec<Point> {
    let steps = (nines(latency) * 12.0).floor() as usize;
    let points = (0..=steps).map(|step| {
        let nines = step as f64 / 12.0;
        Point::new(nines, latency.percentile(100.0 * (1.0 - 10f64.powf(-nines))) / 1000.0)
    });
    points.collect()
}

/// Throughput second by second of several runs. Events and pauses only for a single run.
fn time_chart(results: &Results<'_>, runs: &[(usize, &RunOutcome)], small: bool) -> Option<Markup> {
    let line = |(party, run): &(usize, &RunOutcome)| Line {
        name: party_name(results, *party).to_owned(),
        party: *party,
        points: moments(run),
        ..Line::default()
    };
    let single = match runs {
        [(party, run)] if !small => Some((*party, *run)),
        _ => None,
    };
    let events = single
        .iter()
        .flat_map(|(_, run)| run.events.iter().take(EVENTS_MAX))
        .map(|event| (event.at, event.text.clone()));
    let pauses = single.iter().flat_map(|(party, run)| {
        let start = run.started_at - results.bundle.started_at;
        let names: Vec<&str> = results.bundle.parties.get(*party).map_or_else(Vec::new, |about| {
            about.processes.iter().map(|process| process.name.as_str()).collect()
        });
        let within = move |at: f64| (start..=start + run.seconds).contains(&at);
        let pauses = results.bundle.xray.pauses.iter();
        let pauses = pauses.filter(move |pause| within(pause.at) && names.contains(&pause.process.as_str()));
        pauses.map(move |pause| {
            (
                pause.at - start,
                *party,
                format!("{}, {:.1} ms", pause.cause, pause.millis),
            )
        })
    });
    Lines {
        title: "throughput over time",
        x: Axis {
            name: "time since the run's start",
            unit: "s",
            logarithmic: false,
        },
        y: Axis {
            name: "throughput",
            unit: "operations/s",
            logarithmic: false,
        },
        lines: runs.iter().map(line).filter(|line| line.points.len() > 1).collect(),
        events: events.collect(),
        pauses: pauses.collect(),
        small,
        ..Lines::default()
    }
    .draw()
}

/// Operations per second over the run, averaged to at most [`MOMENTS_MAX`] points.
fn moments(run: &RunOutcome) -> Vec<Point> {
    let each = run.series.len().div_ceil(MOMENTS_MAX).max(1);
    let mut before = 0.0;
    let points = run.series.chunks(each).filter_map(|chunk| {
        let end = chunk.last()?.at;
        let operations = chunk.iter().map(|second| second.operations as f64).sum::<f64>();
        let length = end - std::mem::replace(&mut before, end);
        (length > 0.0).then(|| Point::new(end, operations / length))
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;
    use crate::outcome::Second;

    #[test]
    fn bins_hold_every_call_once() {
        let bundle = fabricated::bundle(1.0);
        let latency = Latency::of_kinds(&bundle.runs[0].kinds).unwrap();
        let sum = |points: Vec<Point>| points.iter().map(|point| point.y).sum::<f64>();
        assert!((sum(logarithmic_bins(&latency)) - 100.0).abs() < 1e-6);
        let zoom = latency.percentile(50.0) * 2.0;
        let below = sum(linear_bins(&latency, zoom));
        let exact = 100.0 * latency.histogram.count_between(0, zoom as u64) as f64 / latency.histogram.len() as f64;
        assert!((below - exact).abs() < 0.5, "{below}, exactly {exact}");
    }

    #[test]
    fn percentiles_rise() {
        let bundle = fabricated::bundle(1.0);
        let latency = Latency::of_kinds(&bundle.runs[0].kinds).unwrap();
        let points = percentile_points(&latency);
        assert!(
            points.len() > 20
                && points
                    .windows(2)
                    .all(|pair| pair[0].y <= pair[1].y && pair[0].x < pair[1].x)
        );
    }

    #[test]
    fn long_runs_are_averaged_without_losing_operations() {
        let series = (1..=3601)
            .map(|at| Second {
                at: f64::from(at),
                operations: 10,
                ..Second::default()
            })
            .collect();
        let points = moments(&RunOutcome {
            series,
            ..RunOutcome::default()
        });
        assert!(points.len() <= MOMENTS_MAX && points.iter().all(|point| (point.y - 10.0).abs() < 1e-9));
        assert!(moments(&RunOutcome::default()).is_empty());
    }
}
