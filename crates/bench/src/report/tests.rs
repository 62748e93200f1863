//! Tests of whole pages: required and forbidden contents, and the effect of hostile bundles.

use super::*;
use crate::bundle::fabricated;
use crate::outcome::{EncodedHistogram, Ending, RunOutcome, histogram};
use crate::plan::{Metric, Published, Role};

fn page_of(bundle: &Bundle) -> String {
    render(std::slice::from_ref(bundle))
}

/// Tags are closed in the order in which they were opened.
fn check_nesting(page: &str) {
    let mut open: Vec<String> = Vec::new();
    let void = ["meta", "br", "!DOCTYPE"];
    for piece in page.split('<').skip(1) {
        let name: String = piece.chars().take_while(|c| !c.is_whitespace() && *c != '>').collect();
        if let Some(closed) = name.strip_prefix('/') {
            let found = open.pop().unwrap_or_default();
            assert_eq!(found, closed, "closed out of order before {piece:.60}");
        } else if !void.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = page_of(&fabricated::bundle(1.0));
    for foreign in ["http:", "https:", "src=", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    check_nesting(&page);
    assert_eq!(page, page_of(&fabricated::bundle(1.0)));
}

#[test]
fn failures_come_with_causes_and_without_figures() {
    let mut bundle = fabricated::bundle(1.0);
    bundle.suite.experiments.truncate(1);
    for run in bundle.runs.iter_mut().filter(|run| run.party == 1) {
        run.seconds = 8.0;
        run.kinds.iter_mut().for_each(|kind| kind.operations = 987_654_321);
        run.ending = Ending::Failed(vec!["the cause of it all".into()]);
    }
    let page = page_of(&bundle);
    assert!(page.contains("the cause of it all"));
    assert!(
        page.find("the cause of it all") < page.find("Machine and targets"),
        "failures come first"
    );
    // 987,654,321 operations in 8 seconds.
    assert!(!page.contains("123\u{a0}M") && !page.contains("987,654,321"));
}

#[test]
fn a_run_of_which_one_repeat_failed_has_no_figures() {
    let mut bundle = fabricated::bundle(1.0);
    bundle.suite.experiments.truncate(1);
    bundle.runs.retain(|run| run.experiment == "B01");
    let passing = summary::summary(&bundle);
    let failing = |run: &&mut RunOutcome| run.party == 1 && run.repeat == 2;
    for run in bundle.runs.iter_mut().filter(failing) {
        run.ending = Ending::Failed(vec!["the cause of it all".into()]);
    }
    let page = page_of(&bundle);
    assert!(page.contains("1 of 2 repeats failed: the cause of it all"));
    assert!(page.contains("within the spread of repeats at 0 of 0 points that both completed"));
    let lines = |text: &str| text.matches(" failed |  |  |").count();
    let summary = summary::summary(&bundle);
    assert_eq!(lines(&summary), lines(&passing) + 4, "{summary}");
}

#[test]
fn the_time_of_failed_calls_is_shown() {
    let mut bundle = fabricated::bundle(1.0);
    assert!(!page_of(&bundle).contains("failed calls"));
    let mut failed = histogram::new();
    failed.record_n(30_000_000, 3).unwrap();
    let run = bundle.runs.iter_mut().find(|run| run.experiment == "B24").unwrap();
    run.kinds[0].failures.insert("no response within 30000 ms".into(), 3);
    run.kinds[0].failed = EncodedHistogram::encode(&failed);
    let page = page_of(&bundle);
    let line = page.split("failed calls").nth(1).unwrap();
    let longest = number::millis(30_000_000.0);
    assert!(
        line.split("</tr>").next().unwrap().contains(&longest),
        "{longest}: {line:.400}"
    );
}

#[test]
fn the_operations_of_warm_ups_are_printed() {
    let mut bundle = fabricated::bundle(1.0);
    let (cold, summary) = (page_of(&bundle), summary::summary(&bundle));
    assert_eq!(cold.matches("not warmed up").count(), bundle.parties.len());
    assert_eq!(summary.matches("not warmed up").count(), bundle.parties.len());
    for experiment in ["warm-up", "warm-up-jvm"] {
        let mut run = bundle.runs[0].clone();
        (run.experiment, run.role, run.party, run.seconds) = (experiment.into(), Role::Warm, 1, 25.0);
        run.kinds[0].operations = 400_000;
        bundle.runs.push(run);
    }
    let sentence = format!("warmed up by 800,000 operations in {}", number::seconds(50.0));
    assert!(page_of(&bundle).contains(&sentence), "{sentence}");
    assert!(summary::summary(&bundle).contains(&sentence), "{sentence}");
}

#[test]
fn a_target_that_was_not_flushed_is_named() {
    let mut bundle = fabricated::bundle(1.0);
    let texts = |bundle: &Bundle| [page_of(bundle), summary::summary(bundle)];
    let sentence = format!("{} did not flush its table before 2 runs", bundle.parties[1].name);
    assert!(texts(&bundle).iter().all(|text| !text.contains("did not flush")));
    for run in bundle.runs.iter_mut().filter(|run| run.party == 1).take(2) {
        run.unflushed = Some("not supported: no such call".into());
    }
    for text in texts(&bundle) {
        assert!(text.contains(&sentence) && text.contains("no such call"), "{sentence}");
    }
}

#[test]
fn hostile_names_are_escaped_everywhere() {
    let evil = "<script>alert('x')</script>\"><i>";
    let mut bundle = fabricated::bundle(1.0);
    bundle.parties.iter_mut().for_each(|party| {
        (party.name, party.version, party.url) = (evil.into(), evil.into(), evil.into());
        party.configuration.insert(evil.into(), evil.into());
    });
    for experiment in &mut bundle.suite.experiments {
        (experiment.title, experiment.about, experiment.axis.label) = (evil.into(), evil.into(), evil.into());
        experiment.published.push(Published {
            system: evil.into(),
            point: Default::default(),
            value: None,
            note: evil.into(),
        });
    }
    (bundle.tool, bundle.suite.name, bundle.suite.document) = (evil.into(), evil.into(), evil.into());
    bundle.command = vec![evil.into()];
    bundle
        .runs
        .iter_mut()
        .for_each(|run| run.ending = Ending::Failed(vec![evil.into()]));
    let page = render(&[bundle.clone(), bundle]);
    assert!(!page.contains("<script") && !page.contains("\"><i>"));
}

#[test]
fn strange_bundles_are_rendered() {
    let whole = fabricated::bundle(1.0);
    let nothing_run = Bundle {
        runs: Vec::new(),
        ..whole.clone()
    };
    let all_skipped = Bundle {
        runs: whole
            .runs
            .iter()
            .map(|run| RunOutcome {
                ending: Ending::Skipped("no".into()),
                ..run.clone()
            })
            .collect(),
        ..whole.clone()
    };
    let mut zero = whole.clone();
    for run in &mut zero.runs {
        (run.seconds, run.kinds, run.workers, run.series) = (0.0, Vec::new(), Vec::new(), Vec::new());
    }
    let mut foreign = whole.clone();
    foreign.runs.iter_mut().for_each(|run| run.party = 77);
    let mut one_party = whole.clone();
    one_party.parties.truncate(1);
    for bundle in [Bundle::default(), nothing_run, all_skipped, zero, foreign, one_party] {
        let page = page_of(&bundle);
        check_nesting(&page);
        assert!(!page.contains("NaN") && !page.contains("inf"), "a figure that is none");
    }
}

#[test]
fn nothing_run_says_so_instead_of_empty_charts() {
    let bundle = Bundle {
        runs: Vec::new(),
        witnesses: Vec::new(),
        ..fabricated::bundle(1.0)
    };
    let page = page_of(&bundle);
    assert!(page.contains("Nothing was run") && page.contains("No control"));
    assert!(page.contains("the public protocols have no Map-Reduce"));
}

#[test]
fn losses_are_counted_as_wins_are() {
    let page = page_of(&fabricated::bundle(1.0));
    assert!(
        page.contains("better at 4, worse at"),
        "where the fabricated second party is faster"
    );
    assert!(page.contains("class=\"better\"") && page.contains("class=\"worse\""));
}

#[test]
fn published_ratios_stand_beside_ours() {
    let page = page_of(&fabricated::bundle(1.0));
    assert!(
        page.contains("Hypertable : HBase") && page.contains("2.01"),
        "188 : 93.5"
    );
    assert!(page.contains("failed: concurrent mode failure"));
}

#[test]
fn a_generator_that_was_the_limit_is_named() {
    let mut bundle = fabricated::bundle(1.0);
    bundle.suite.experiments.truncate(1);
    bundle
        .witnesses
        .iter_mut()
        .for_each(|witness| witness.operations_per_second = 1e9);
    assert!(page_of(&bundle).contains("In none of the"));
    bundle
        .witnesses
        .iter_mut()
        .for_each(|witness| witness.operations_per_second = 1e3);
    assert!(page_of(&bundle).contains("may have been the limit, in"));
}

#[test]
fn a_generator_that_had_no_time_left_is_named() {
    let mut bundle = fabricated::bundle(1.0);
    bundle.suite.experiments.truncate(1);
    // Far from the maximum of the controls, whose operations are cheaper.
    bundle
        .witnesses
        .iter_mut()
        .for_each(|witness| witness.operations_per_second = 1e9);
    let page = |bundle: &mut Bundle, share: f64| {
        for run in bundle.runs.iter_mut().filter(|run| run.party == 1) {
            for worker in &mut run.workers {
                (worker.threads, worker.cpu_seconds) = (3, 3.0 * share * run.seconds);
            }
        }
        page_of(bundle)
    };
    let free = page(&mut bundle, 0.89);
    assert!(!free.contains("threads were busy") && !free.contains('†'));
    let busy = page(&mut bundle, 0.95);
    let named = format!("10,000\u{a0}B on {} (95 %)", bundle.parties[1].name);
    assert!(
        busy.contains("threads were busy for more than 90 %") && busy.contains(&named),
        "{named}"
    );
    assert!(busy.matches("had no time left").count() >= 4);
}

#[test]
fn every_metric_has_a_unit_on_its_chart() {
    let units = [
        (Metric::OperationsPerSecond, "operations/s"),
        (Metric::BytesPerSecond, "B/s"),
        (Metric::RowsPerSecond, "rows/s"),
        (Metric::Seconds, "time taken, s"),
        (Metric::MeanMillis, "mean latency, ms"),
        (Metric::StalePercent, "stale reads, %"),
    ];
    let mut bundle = fabricated::bundle(1.0);
    bundle.suite.experiments.truncate(1);
    bundle.runs.retain(|run| run.experiment == "B01");
    for (metric, unit) in units {
        bundle.suite.experiments[0].metric = metric;
        let page = page_of(&bundle);
        let charts = page
            .split("class=\"axis\"")
            .skip(1)
            .filter(|piece| piece.split('<').next().unwrap().contains(unit));
        assert!(charts.count() >= 1, "{unit}");
    }
}
