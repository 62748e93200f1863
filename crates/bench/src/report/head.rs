//! The page's beginning: a summary of the suite, the targets, failures and comparisons.

use super::chart::{dots, legend};
use super::metric;
use super::number;
use super::results::{BUSY_MAX, Cell, Results, Standing, WITNESS_FACTOR, advantage};
use crate::bundle::{Bundle, differences};
use crate::outcome::Ending;
use maud::{Markup, html};

/// Title, date, command.
pub fn title(bundle: &Bundle) -> Markup {
    let suite = &bundle.suite;
    html! {
        header {
            h1 { (if suite.document.is_empty() { "Benchmark report" } else { &suite.document }) }
            p.sub {
                "Suite " b { (suite.name) } " at scale " (scale(suite.scale)) ", " (number::date(bundle.started_at))
                @if bundle.ended_at > bundle.started_at { ", " (number::seconds(bundle.ended_at - bundle.started_at)) }
                ", by " (bundle.tool)
            }
            @if bundle.ended_at <= bundle.started_at { p.bad { "The bench did not end: these are its results until then." } }
        }
    }
}

/// A suite's scale; quick suites have none.
pub fn scale(scale: f64) -> String {
    if scale > 0.0 {
        scale.to_string()
    } else {
        "quick".to_owned()
    }
}

/// Number of runs that passed, and every other run with its cause.
pub fn verdict(bundle: &Bundle, results: &[Results<'_>]) -> Markup {
    let count = |wanted: fn(&Ending) -> bool| bundle.runs.iter().filter(|run| wanted(&run.ending)).count();
    let passed = count(|ending| matches!(ending, Ending::Passed));
    let failed = count(|ending| matches!(ending, Ending::Failed(_)));
    let skipped = count(|ending| matches!(ending, Ending::Skipped(_)));
    let unavailable: Vec<_> = results
        .iter()
        .filter_map(|r| Some((r.experiment, r.experiment.unavailable.as_ref()?)))
        .collect();
    html! {
        section {
            h2 { "Verdict" }
            p.verdict {
                (bundle.runs.len()) " runs: " b { (passed) " passed" } ", "
                b.bad[failed > 0] { (failed) " failed" } ", " b { (skipped) " skipped" } "."
            }
            (causes("Failed", bundle, |ending| match ending {
                Ending::Failed(all) => Some(all.join("; ")),
                _ => None,
            }))
            (causes("Skipped", bundle, |ending| match ending {
                Ending::Skipped(reason) => Some(reason.clone()),
                _ => None,
            }))
            @if !unavailable.is_empty() {
                p { b { "Not run at all" } }
                ul { @for (experiment, reason) in unavailable { li { (experiment.id) " " (experiment.title) ": " (reason) } } }
            }
            (standings(bundle, results))
            (generator(bundle, results))
        }
    }
}

/// Runs with their causes. Repeats and runs with the same cause are grouped.
fn causes(title: &str, bundle: &Bundle, cause: impl Fn(&Ending) -> Option<String>) -> Markup {
    let mut grouped: Vec<((usize, String), Vec<String>)> = Vec::new();
    for run in &bundle.runs {
        if let Some(cause) = cause(&run.ending) {
            let name = format!("{} {}", run.experiment, run.label);
            match grouped.iter_mut().find(|(key, _)| *key == (run.party, cause.clone())) {
                Some((_, runs)) if runs.contains(&name) => {}
                Some((_, runs)) => runs.push(name),
                None => grouped.push(((run.party, cause), vec![name])),
            }
        }
    }
    html! {
        @if !grouped.is_empty() {
            p { b { (title) } }
            ul {
                @for ((party, cause), runs) in &grouped {
                    li {
                        (bundle.parties.get(*party).map_or("unknown target", |party| party.name.as_str())) ": "
                        span.bad { (cause) } " — " (runs.join(", "))
                    }
                }
            }
        }
    }
}

/// Comparison of the targets: a sentence for each, and all ratios in one chart.
fn standings(bundle: &Bundle, results: &[Results<'_>]) -> Markup {
    let Some(first) = bundle.parties.first() else {
        return html! {};
    };
    let names: Vec<_> = bundle.parties.iter().map(|party| party.name.clone()).collect();
    html! {
        @for (party, about) in bundle.parties.iter().enumerate().skip(1) {
            (standing(results, party, &about.name, &first.name))
        }
        @if bundle.parties.len() > 1 {
            @match dots::draw("ratios of all experiments", &format!("times better than {} (left of 1×: worse), in each experiment's own metric", first.name), &ratios(bundle, results)) {
                Some(chart) => { figure { figcaption { "Every point of every experiment" } (legend(&names)) (chart) } },
                None => p.note { "No chart of ratios: no point has results of two targets." },
            }
        }
    }
}

fn standing(results: &[Results<'_>], party: usize, name: &str, first: &str) -> Markup {
    let mut counts = [0usize; 3];
    let once = results
        .iter()
        .flat_map(|results| &results.bundle.runs)
        .all(|run| run.repeat <= 1);
    for results in results {
        for row in results.rows.iter().filter(|row| row.run.point.is_some()) {
            let (Some(cell), Some(base)) = (row.cells.get(party), row.cells.first()) else {
                continue;
            };
            match advantage(cell, base, results.experiment.metric) {
                Some((_, Standing::Better)) => counts[0] += 1,
                Some((_, Standing::Worse)) => counts[1] += 1,
                Some((_, Standing::Even)) => counts[2] += 1,
                None => {}
            }
        }
    }
    let [better, worse, even] = counts;
    html! {
        p { b { (name) } " against " b { (first) } ": better at " (better) ", worse at " (worse) ", within the spread of repeats at " (even) " of " (better + worse + even) " points that both completed."
            @if once { " Each was run once, so how much is chance is not known." }
        }
    }
}

fn ratios(bundle: &Bundle, results: &[Results<'_>]) -> Vec<dots::Row> {
    let mut rows = Vec::new();
    for results in results {
        for (series, points) in results.series() {
            let mut dots = Vec::new();
            for row in points {
                let Some(base) = row.cells.first() else { continue };
                for (party, cell) in row.cells.iter().enumerate().skip(1) {
                    let Some((Some(ratio), _)) = advantage(cell, base, results.experiment.metric) else {
                        continue;
                    };
                    let name = bundle.parties.get(party).map_or("", |party| party.name.as_str());
                    let tip = format!(
                        "{name}, {}: {}×",
                        row.name(results.experiment),
                        number::ratio(ratio.mean)
                    );
                    dots.push((party, ratio.mean, tip));
                }
            }
            if !dots.is_empty() {
                let experiment = results.experiment;
                let series = if series.is_empty() {
                    String::new()
                } else {
                    format!(": {series}")
                };
                rows.push(dots::Row {
                    name: format!("{} {}{series}", experiment.id, experiment.title),
                    dots,
                });
            }
        }
    }
    rows
}

/// Results whose share of something the generator has is known, and those with too large a one.
#[derive(Default)]
struct Shares {
    known: usize,
    large: Vec<String>,
}

impl Shares {
    fn of(results: &[Results<'_>], limit: f64, share: impl Fn(&Cell<'_>) -> Option<f64>) -> Self {
        let mut shares = Self::default();
        for results in results {
            for row in &results.rows {
                for (cell, party) in row.cells.iter().zip(&results.bundle.parties) {
                    let Some(share) = share(cell) else { continue };
                    shares.known += 1;
                    if share > limit {
                        let (id, name) = (&results.experiment.id, row.name(results.experiment));
                        shares
                            .large
                            .push(format!("{id} {name} on {} ({:.0} %)", party.name, share * 100.0));
                    }
                }
            }
        }
        shares
    }
}

/// The generator's own cost, and the runs that it may have limited.
fn generator(bundle: &Bundle, results: &[Results<'_>]) -> Markup {
    let used = Shares::of(results, 1.0 / WITNESS_FACTOR, |cell| cell.generator_use(bundle));
    let busy = Shares::of(results, BUSY_MAX, |cell| cell.generator_busy());
    let (covered, limited) = (used.known, used.large);
    html! {
        h3 { "The generator itself" }
        @if bundle.witnesses.is_empty() {
            p.bad { "No control: the generator was not run against an echo server, so it is unknown whether it was the limit." }
        } @else {
            table {
                caption { "The same generator on this machine against an echo server: no server can be faster than this" }
                thead { tr { th { "protocol" } th.who { "operation" } th { "operations/s" } th { "generator CPU, µs for each" } th { "p50, ms" } } }
                tbody { @for witness in &bundle.witnesses { tr {
                    th { (witness.protocol) } td.who { (witness.operation) } td { (number::short(witness.operations_per_second)) }
                    td { (number::short(witness.generator_micros)) } td { (number::millis(witness.p50_micros as f64)) }
                } } }
            }
            @if covered == 0 {
                p.bad { "No run consists of operations that all have a control, so it is unknown whether the generator was the limit." }
            } @else if limited.is_empty() {
                p { "In none of the " (covered) " results with controls for all operations did the generator exceed two thirds of its maximum." }
            } @else {
                p.bad { "† The generator exceeded two thirds of its maximum, and may have been the limit, in: " (limited.join("; ")) "." }
            }
        }
        @if !busy.large.is_empty() {
            p.bad { "† The generator's threads were busy for more than " (BUSY_MAX * 100.0) " % of the time, and may have been the limit, in: " (busy.large.join("; ")) "." }
        }
    }
}

/// Machine, targets, and the differences between their configurations.
pub fn environment(bundle: &Bundle) -> Markup {
    html! {
        section {
            h2 { "Machine and targets" }
            div.pair {
                table { caption { "Machine of the generator" } tbody { @for (key, value) in &bundle.machine { tr { th { (key) } td.text { (value) } } } } }
                table {
                    caption { "Targets" }
                    tbody { @for (index, party) in bundle.parties.iter().enumerate() {
                        tr { th { (party.name) } td.text {
                            (party.version) " " code { (party.url) }
                            @if !party.processes.is_empty() {
                                br; "processes: " (party.processes.iter().map(|process| process.name.as_str()).collect::<Vec<_>>().join(", "))
                            }
                            @for (key, value) in &party.description { br; (key) ": " (value) }
                            br; (warm_up(bundle, index))
                        } }
                    } }
                }
            }
            (configuration(bundle))
        }
    }
}

/// The warm-up of a target in words.
pub fn warm_up(bundle: &Bundle, party: usize) -> String {
    match bundle.warm_up(party) {
        (0, _) => "not warmed up".to_owned(),
        (operations, seconds) => format!(
            "warmed up by {} operations in {}",
            number::count(operations),
            number::seconds(seconds)
        ),
    }
}

fn configuration(bundle: &Bundle) -> Markup {
    let table = differences::between(&bundle.parties);
    html! {
        h3 { "Differences between configurations" }
        @if table.differing.is_empty() {
            p.note { "No setting that two targets share has different values." }
        } @else {
            div.wide { table {
                thead { tr { th { "setting" } @for party in &table.parties { th.text { (party) } } } }
                tbody { @for setting in &table.differing { tr {
                    th { code { (setting.key) } }
                    @for value in &setting.values { td.text { (value.as_deref().unwrap_or("–")) } }
                } } }
            } }
        }
        @for (index, party) in table.parties.iter().enumerate() {
            @let only = table.only(index);
            @if !only.is_empty() {
                details {
                    summary { (only.len()) " settings of " (party) " alone" }
                    table { tbody { @for (key, value) in only { tr { th { code { (key) } } td.text { (value) } } } } }
                }
            }
        }
        @if !table.equal.is_empty() {
            details {
                summary { (table.equal.len()) " settings that targets share" }
                table { tbody { @for setting in &table.equal { tr {
                    th { code { (setting.key) } } td.text { (setting.values.iter().flatten().next().map_or("", String::as_str)) }
                } } } }
            }
        }
    }
}

/// Links to the experiments.
pub fn contents(results: &[Results<'_>]) -> Markup {
    html! {
        nav { @for results in results {
            a href={ "#x-" (results.experiment.id) } title=(metric::meaning(results.experiment.metric).name) {
                (results.experiment.id) " " (results.experiment.title)
            } " "
        } }
    }
}
