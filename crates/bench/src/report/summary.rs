//! A bundle as Markdown tables, for a page of measured results.
//!
//! One table for each experiment, one line for each measured run, one column for each target: the experiment's metric,
//! then the same for each CPU second of the server, and p99. Loads and checks are counted, and shown only if they
//! failed.

use super::metric::{self, Spread};
use super::number;
use super::results::{self, Cell, Results, Row};
use crate::bundle::Bundle;
use crate::outcome::Ending;
use std::fmt::Write as _;

/// The summary of one bundle.
pub fn summary(bundle: &Bundle) -> String {
    let mut text = String::new();
    head(&mut text, bundle);
    for results in results::of_bundle(bundle) {
        experiment(&mut text, &results);
    }
    text
}

fn head(text: &mut String, bundle: &Bundle) {
    let count = |wanted: fn(&Ending) -> bool| bundle.runs.iter().filter(|run| wanted(&run.ending)).count();
    let _ = writeln!(text, "## {}: {}\n", bundle.suite.name, bundle.suite.document);
    let _ = writeln!(
        text,
        "{} runs: {} passed, {} failed, {} skipped; {:.1} min, {}.\n",
        bundle.runs.len(),
        count(|e| *e == Ending::Passed),
        count(|e| matches!(e, Ending::Failed(_))),
        count(|e| matches!(e, Ending::Skipped(_))),
        (bundle.ended_at - bundle.started_at) / 60.0,
        number::date(bundle.started_at),
    );
    for (index, party) in bundle.parties.iter().enumerate() {
        let _ = writeln!(text, "* {}: {}.", party.name, super::head::warm_up(bundle, index));
    }
    for run in &bundle.runs {
        let party = bundle.parties.get(run.party).map_or("", |party| party.name.as_str());
        match &run.ending {
            Ending::Failed(causes) => {
                let _ = writeln!(
                    text,
                    "* **failed**: {} {} on {party}: {}",
                    run.experiment,
                    run.label,
                    causes.join("; ")
                );
            }
            Ending::Skipped(why) => {
                let _ = writeln!(text, "* skipped: {} {} on {party}: {why}", run.experiment, run.label);
            }
            Ending::Passed => {}
        }
    }
    text.push('\n');
}

fn experiment(text: &mut String, results: &Results<'_>) {
    let experiment = results.experiment;
    let _ = writeln!(text, "### {} {}\n", experiment.id, experiment.title);
    if let Some(why) = &experiment.unavailable {
        let _ = writeln!(text, "Not run: {why}\n");
        return;
    }
    for sentence in results.unflushed() {
        let _ = writeln!(text, "{sentence}\n");
    }
    let rows: Vec<&Row<'_>> = results.rows.iter().filter(|row| row.run.point.is_some()).collect();
    if rows.is_empty() || results.is_empty() {
        text.push_str("Nothing was run.\n\n");
        return;
    }
    let meaning = metric::meaning(experiment.metric);
    let parties = &results.bundle.parties;
    let _ = write!(text, "| {} ({}) |", meaning.name, meaning.unit);
    for party in parties {
        let _ = write!(text, " {} | per CPU s | p99 ms |", party.name);
    }
    for party in parties.iter().skip(1) {
        let _ = write!(
            text,
            " {}/{} |",
            party.name,
            parties.first().map_or("", |first| first.name.as_str())
        );
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(parties.len() * 4 - 1));
    text.push('\n');
    for row in rows {
        line(text, results, row);
    }
    text.push('\n');
}

fn line(text: &mut String, results: &Results<'_>, row: &Row<'_>) {
    let wanted = results.experiment.metric;
    let _ = write!(text, "| {} |", row.name(results.experiment).replace('|', "/"));
    for cell in &row.cells {
        let value = cell
            .value(wanted)
            .map_or_else(|| bad(cell).to_owned(), |value| spread(&value));
        let per_cpu = cell
            .mean(metric::per_server_cpu_second)
            .map_or_else(String::new, number::short);
        let p99 = cell
            .latency()
            .map_or_else(String::new, |latency| number::millis(latency.percentile(99.0)));
        let _ = write!(text, " {value} | {per_cpu} | {p99} |");
    }
    let first = row.cells.first().and_then(|cell| cell.value(wanted));
    for cell in row.cells.iter().skip(1) {
        let ratio = cell
            .value(wanted)
            .zip(first)
            .and_then(|(value, first)| value.over(&first));
        let _ = write!(
            text,
            " {} |",
            ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.mean))
        );
    }
    text.push('\n');
}

fn bad(cell: &Cell<'_>) -> &'static str {
    if cell.failed() { "failed" } else { "–" }
}

fn spread(value: &Spread) -> String {
    if value.repeats < 2 {
        return number::short(value.mean);
    }
    format!(
        "{} ({}–{})",
        number::short(value.mean),
        number::short(value.low),
        number::short(value.high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;

    #[test]
    fn every_experiment_and_every_failure_is_in_it() {
        let bundle = fabricated::bundle(1.0);
        let text = summary(&bundle);
        for experiment in &bundle.suite.experiments {
            assert!(text.contains(&format!("### {} ", experiment.id)), "{}", experiment.id);
        }
        let failed = bundle
            .runs
            .iter()
            .filter(|run| matches!(run.ending, Ending::Failed(_)))
            .count();
        assert!(failed > 0);
        assert_eq!(text.matches("* **failed**").count(), failed);
    }

    #[test]
    fn all_lines_of_a_table_have_as_many_columns_as_its_head() {
        let text = summary(&fabricated::bundle(1.0));
        let mut columns = None;
        for line in text.lines() {
            if !line.starts_with('|') {
                columns = None;
                continue;
            }
            let bars = line.matches('|').count();
            assert_eq!(*columns.get_or_insert(bars), bars, "{line}");
        }
    }
}
