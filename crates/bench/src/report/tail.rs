//! The page's end: the methods of the documents, and instructions to rerun and check everything.

use crate::bundle::Bundle;
use crate::plan::{Activity, Operation, Run, Stage, Stop, ValueSource};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Methods of the documents, and whether this execution used them.
pub fn methods(bundle: &Bundle) -> Markup {
    html! {
        section {
            h2 { "Methods" }
            table {
                thead { tr { th { "method of the documents" } th.text { "here" } } }
                tbody { @for (method, used, how) in list(bundle) { tr {
                    th { (method) }
                    td.text { @if used { "yes: " } @else { span.note { "no: " } } (how) }
                } } }
            }
        }
    }
}

/// A method, whether it was used, and a description.
type Method = (&'static str, bool, String);

fn list(bundle: &Bundle) -> Vec<Method> {
    let runs: Vec<&Run> = bundle
        .suite
        .experiments
        .iter()
        .flat_map(|experiment| &experiment.stages)
        .filter_map(run)
        .collect();
    let mut all = load(bundle, &runs);
    all.extend(judgement(bundle, &runs));
    all.extend(comparison(bundle));
    all
}

fn run(stage: &Stage) -> Option<&Run> {
    match stage {
        Stage::Run(run) => Some(run),
        _ => None,
    }
}

/// Methods of generating load.
fn load(bundle: &Bundle, runs: &[&Run]) -> Vec<Method> {
    let count = |wanted: &dyn Fn(&Run) -> bool| runs.iter().filter(|run| wanted(run)).count();
    let clients: BTreeSet<u32> = runs.iter().map(|run| run.clients).collect();
    let workers = bundle.runs.iter().map(|run| run.workers.len()).max().unwrap_or(0);
    let open = count(&|run| run.rate.is_some());
    let timed = count(&|run| matches!(run.stop, Stop::Seconds(_)));
    let tables = || {
        runs.iter().filter_map(|run| {
            if let Activity::Table(table) = &run.activity {
                Some(table)
            } else {
                None
            }
        })
    };
    let sizes: BTreeSet<u32> = tables().map(|table| table.values.bytes).collect();
    let corpus = tables()
        .filter(|table| matches!(table.values.source, ValueSource::Corpus { .. }))
        .count();
    let buffers = tables().flat_map(|table| &table.mix);
    let buffered = buffers
        .filter(|(operation, _)| matches!(operation, Operation::BufferedPut { .. }))
        .count();
    let list = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    vec![
        (
            "Dispatcher that gives out ranges of the key space on demand",
            true,
            format!("to {workers} workers at most"),
        ),
        (
            "Sweep of client counts",
            clients.len() > 1,
            format!("{} clients", list(&clients)),
        ),
        (
            "Sweep of value sizes",
            sizes.len() > 1,
            format!("{} bytes", list(&sizes)),
        ),
        (
            "Values from real text",
            corpus > 0,
            format!("{corpus} of {} runs; pseudo-random bytes otherwise", runs.len()),
        ),
        ("Client write buffer", buffered > 0, format!("in {buffered} runs")),
        ("Closed loop", open < runs.len(), format!("{} runs", runs.len() - open)),
        (
            "Open loop, latencies counted from when operations were due",
            open > 0,
            format!("{open} runs"),
        ),
        ("Fixed time", timed > 0, format!("{timed} runs")),
        (
            "Fixed count",
            timed < runs.len(),
            format!("{} runs", runs.len() - timed),
        ),
        (
            "Servers killed under load",
            count(&|run| run.disruption.is_some()) > 0,
            format!("{} runs", count(&|run| run.disruption.is_some())),
        ),
    ]
}

/// How results were judged.
fn judgement(bundle: &Bundle, runs: &[&Run]) -> Vec<Method> {
    let checked: u64 = bundle
        .runs
        .iter()
        .map(|run| run.verdict.checked)
        .fold(0, u64::saturating_add);
    let counted = bundle.runs.iter().filter(|run| run.expected_rows.is_some()).count();
    let xray = bundle.xray.processes.len();
    let skew = bundle.runs.iter().filter(|run| run.skew.is_some()).count();
    vec![
        (
            "Mean, standard deviation, percentiles, whole and zoomed distributions",
            !runs.is_empty(),
            "from raw histograms of every worker in the bundle".into(),
        ),
        (
            "Longest latencies reported, never cut",
            !runs.is_empty(),
            "largest value of every run".into(),
        ),
        (
            "Rows returned against rows expected",
            counted > 0,
            format!("in {counted} runs"),
        ),
        (
            "Every response checked against the record of writes; stale reads counted",
            checked > 0,
            format!("{} responses", super::number::count(checked)),
        ),
        ("Measured skew of keys", skew > 0, format!("in {skew} runs")),
        (
            "The tool's own cost: a control against an echo server",
            !bundle.witnesses.is_empty(),
            format!("{} controls", bundle.witnesses.len()),
        ),
        (
            "X-ray of processes, disks and network during every run",
            xray > 0,
            format!("{} samples", super::number::count(xray as u64)),
        ),
    ]
}

/// How systems and executions are compared.
fn comparison(bundle: &Bundle) -> Vec<Method> {
    let parties = bundle.parties.len();
    let repeats = bundle.runs.iter().map(|run| run.repeat).max().unwrap_or(0);
    let published: usize = bundle
        .suite
        .experiments
        .iter()
        .map(|experiment| experiment.published.len())
        .sum();
    let long = bundle.runs.iter().filter(|run| run.seconds > 60.0).count();
    vec![
        (
            "Systems in turns on the same machine, from an empty state",
            parties > 1,
            format!("{parties} targets"),
        ),
        (
            "Repeats, since runs differ",
            repeats > 1,
            format!("{repeats} of each experiment"),
        ),
        (
            "Drift over long runs",
            long > 0,
            format!("{long} runs of more than a minute"),
        ),
        (
            "Configurations published, differences listed",
            parties > 0,
            "above, and in the bundle".into(),
        ),
        (
            "The documents' figures next to ours",
            published > 0,
            format!("{published} figures"),
        ),
        (
            "Failed runs reported as failed, with their causes",
            true,
            "at the top".into(),
        ),
    ]
}

/// Command, rerun, check.
pub fn rerun(bundle: &Bundle) -> Markup {
    let command = bundle
        .command
        .iter()
        .map(|word| quote(word))
        .collect::<Vec<_>>()
        .join(" ");
    html! {
        section {
            h2 { "Rerun and check" }
            p { "This page was made from a bundle by " (bundle.tool) ". The bundle holds the plan, every target's configuration, every worker's raw histograms, all time series, and SHA-256 sums of these." }
            p { "Run again:" } pre { (command) }
            p { "Check that nothing was changed, and that figures agree with one another:" } pre { "stele-bench verify BUNDLE\ncd BUNDLE && sha256sum -c SHA256SUMS" }
            p { "Render again, or compare with another execution:" } pre { "stele-bench report BUNDLE [BUNDLE…]" }
        }
    }
}

/// A word quoted for a shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quote("--out=/tmp/x"), "--out=/tmp/x");
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn methods_are_those_that_were_used() {
        let used = |bundle: &Bundle, name: &str| {
            list(bundle)
                .iter()
                .any(|(method, used, _)| method.contains(name) && *used)
        };
        let bundle = fabricated::bundle(1.0);
        assert!(used(&bundle, "a control") && used(&bundle, "Fixed time") && used(&bundle, "Repeats"));
        assert!(!used(&bundle, "Open loop") && !used(&bundle, "killed") && !used(&bundle, "Fixed count"));
        assert!(!used(&Bundle::default(), "a control") && !used(&Bundle::default(), "Closed loop"));
    }
}
