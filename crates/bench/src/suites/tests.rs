//! Rules for every suite at every size.

use super::*;
use crate::plan::{Activity, Metric, Operation, Point, Role, Run, SocialMode, SocialSpec, Stage, Stop, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// The list of published experiments: each is in exactly one suite.
const LISTED: [&str; 27] = [
    "B01", "B02", "B03", "B04", "B05", "B05b", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B13", "B14", "B15",
    "B16", "B17", "B18", "B19", "B20", "B21", "B22", "B23", "B24", "B25", "B26",
];

/// Suites at all sizes that differ in kind, with and without a command that kills servers.
fn all() -> Vec<Suite> {
    let sizes = [(1.0, true), (1.0, false), (0.001, false), (3.0, false)];
    let commands = [None, Some("pull".to_owned())];
    let mut suites = Vec::new();
    for (scale, quick) in sizes {
        for kill_command in commands.clone() {
            let options = SuiteOptions {
                scale,
                quick,
                corpus: None,
                seed: 7,
                kill_command,
            };
            suites.extend(names().into_iter().map(|name| build(name, &options).unwrap()));
        }
    }
    suites
}

fn quick(name: &str) -> Suite {
    let options = SuiteOptions {
        scale: 1.0,
        quick: true,
        kill_command: Some("pull".into()),
        ..SuiteOptions::default()
    };
    build(name, &options).unwrap()
}

fn runs(experiment: &Experiment) -> impl Iterator<Item = &Run> {
    experiment.stages.iter().filter_map(|stage| match stage {
        Stage::Run(run) => Some(run.as_ref()),
        _ => None,
    })
}

fn table(run: &Run) -> Option<&Workload> {
    match &run.activity {
        Activity::Table(workload) => Some(workload),
        Activity::Social(_) => None,
    }
}

#[test]
fn each_listed_experiment_is_in_exactly_one_suite() {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names() {
        for experiment in quick(name).experiments {
            found.entry(experiment.id).or_default().push(name);
        }
    }
    for id in LISTED {
        assert_eq!(found.get(id).map(Vec::len), Some(1), "{id}");
    }
    let unknown: Vec<_> = found
        .keys()
        .filter(|id| is_listed_form(id) && !LISTED.contains(&id.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Whether an id has the form of those in the list.
fn is_listed_form(id: &str) -> bool {
    id.len() <= 4 && id.starts_with('B')
}

#[test]
fn names_are_known_and_others_are_not() {
    assert_eq!(names().len(), 7);
    assert_eq!(build("ycsb-2", &SuiteOptions::default()), None);
    assert_eq!(quick("ycsb").name, "ycsb");
}

#[test]
fn an_experiment_has_stages_or_a_reason() {
    for suite in all() {
        for experiment in &suite.experiments {
            let name = format!("{}/{}", suite.name, experiment.id);
            assert_ne!(experiment.stages.is_empty(), experiment.unavailable.is_none(), "{name}");
            assert!(!experiment.title.is_empty() && !experiment.about.is_empty(), "{name}");
            assert!(!experiment.axis.label.is_empty(), "{name}");
        }
    }
}

#[test]
fn ids_and_labels_are_unique_and_safe_in_file_names() {
    for suite in all() {
        let ids: BTreeSet<_> = suite.experiments.iter().map(|e| &e.id).collect();
        assert_eq!(ids.len(), suite.experiments.len(), "{}", suite.name);
        for experiment in &suite.experiments {
            let mut seen = BTreeSet::new();
            for run in runs(experiment) {
                assert!(
                    seen.insert(run.label.clone()),
                    "{}/{}: {} twice",
                    suite.name,
                    experiment.id,
                    run.label
                );
                let is_safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                assert!(
                    !run.label.is_empty() && run.label.len() < 40 && run.label.chars().all(is_safe),
                    "{}",
                    run.label
                );
            }
        }
    }
}

#[test]
fn seeds_differ_between_runs_and_follow_the_suites_seed() {
    let seeds = |seed| {
        let options = SuiteOptions {
            quick: true,
            seed,
            ..SuiteOptions::default()
        };
        let suite = build("ycsb", &options).unwrap();
        suite
            .experiments
            .iter()
            .flat_map(runs)
            .map(|run| run.seed)
            .collect::<Vec<_>>()
    };
    let (first, again, other) = (seeds(1), seeds(1), seeds(2));
    assert_eq!(first, again);
    assert!(first.iter().zip(&other).all(|(a, b)| a != b));
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), first.len());
}

/// A figure without a run at its point cannot be compared.
#[test]
fn published_figures_stand_at_points_of_runs() {
    let mut figures = 0;
    for suite in all() {
        for experiment in suite.experiments.iter().filter(|e| e.unavailable.is_none()) {
            let points: Vec<&Point> = runs(experiment).filter_map(|run| run.point.as_ref()).collect();
            for figure in &experiment.published {
                figures += 1;
                assert!(
                    points.contains(&&figure.point),
                    "{}/{}: {:?}",
                    suite.name,
                    experiment.id,
                    figure.point
                );
                assert!(figure.value.is_none_or(|v| v.is_finite() && v >= 0.0));
                assert!(
                    figure.value.is_some() || !figure.note.is_empty(),
                    "a failure needs its cause"
                );
            }
        }
    }
    assert!(figures > 500, "{figures}");
}

#[test]
fn points_are_unique_and_numeric_where_the_axis_is() {
    for suite in all() {
        for experiment in &suite.experiments {
            let mut seen = BTreeSet::new();
            for point in runs(experiment).filter_map(|run| run.point.as_ref()) {
                let name = format!("{}/{}: {point:?}", suite.name, experiment.id);
                assert!(seen.insert((&point.series, &point.x)), "{name} twice");
                assert!(!experiment.axis.numeric || point.x.parse::<f64>().is_ok(), "{name}");
            }
            for figure in &experiment.published {
                assert!(
                    !experiment.axis.numeric || figure.point.x.parse::<f64>().is_ok(),
                    "{:?}",
                    figure.point
                );
            }
        }
    }
}

/// A stage that writes a table is followed by a check before the table is created again, dropped, or left.
#[test]
fn what_is_written_is_checked() {
    for suite in all() {
        for experiment in &suite.experiments {
            let unchecked = unchecked_tables(experiment);
            assert!(unchecked.is_empty(), "{}/{}: {unchecked:?}", suite.name, experiment.id);
        }
    }
}

/// Tables, with the label of their last write, that were lost unchecked. The social network's are one.
fn unchecked_tables(experiment: &Experiment) -> Vec<String> {
    let mut dirty: BTreeMap<String, String> = BTreeMap::new();
    let mut lost = Vec::new();
    for stage in &experiment.stages {
        match stage {
            Stage::Create(spec) => lost.extend(dirty.remove(social_or(&spec.name))),
            Stage::Drop(name) => lost.extend(dirty.remove(social_or(name))),
            Stage::Settle { .. } => (),
            Stage::Run(run) => match &run.activity {
                Activity::Table(w) if run.role == Role::Check && is_full_scan(run, w) => drop(dirty.remove(&w.table)),
                Activity::Table(w) if w.mix.iter().any(|(o, _)| estimate::writes(o)) => {
                    dirty.insert(w.table.clone(), run.label.clone());
                }
                Activity::Table(_) => (),
                Activity::Social(social) if social.mode == SocialMode::Load => {
                    dirty.insert("social".into(), run.label.clone());
                }
                // Every action compares its response with the load and the changes.
                Activity::Social(_) => drop(dirty.remove("social")),
            },
        }
    }
    lost.extend(dirty.into_values());
    lost
}

fn social_or(table: &str) -> &str {
    if table.starts_with("bench-bg-") {
        "social"
    } else {
        table
    }
}

fn is_full_scan(run: &Run, workload: &Workload) -> bool {
    matches!(workload.mix.as_slice(), [(Operation::Scan { .. }, _)])
        && run.stop == Stop::Operations(workload.keys.records)
}

#[test]
fn tables_are_the_benchs_own_made_before_use_and_dropped_at_the_end() {
    for suite in all() {
        for experiment in &suite.experiments {
            let mut open = BTreeSet::new();
            // Tables without any writes yet.
            let mut empty = BTreeSet::new();
            for stage in &experiment.stages {
                match stage {
                    Stage::Create(spec) => {
                        assert!(spec.name.starts_with("bench-") && !spec.families.is_empty());
                        open.insert(spec.name.clone());
                        empty.insert(spec.name.clone());
                    }
                    Stage::Drop(name) => assert!(open.remove(name), "{name}"),
                    Stage::Settle { table, .. } => assert!(open.contains(table), "{table}"),
                    Stage::Run(run) => {
                        let tables = tables_of(run);
                        let name = format!("{}/{}/{}", suite.name, experiment.id, run.label);
                        assert!(tables.is_subset(&open), "{name}: a table is not there");
                        assert!(
                            run.role != Role::Load || tables.is_subset(&empty),
                            "{name}: loads into a full table"
                        );
                        empty.retain(|table| !tables.contains(table));
                    }
                }
            }
            assert!(open.is_empty(), "{}/{}: {open:?}", suite.name, experiment.id);
        }
    }
}

fn tables_of(run: &Run) -> BTreeSet<String> {
    match &run.activity {
        Activity::Table(workload) => BTreeSet::from([workload.table.clone()]),
        Activity::Social(social) => crate::social::tables(social)
            .into_iter()
            .map(|spec| spec.name)
            .collect(),
    }
}

#[test]
fn runs_can_be_carried_out() {
    for suite in all() {
        for (experiment, run) in suite.experiments.iter().flat_map(|e| runs(e).map(move |run| (e, run))) {
            let name = format!("{}/{}/{}", suite.name, experiment.id, run.label);
            assert!((1..=600).contains(&run.clients), "{name}");
            match run.stop {
                Stop::Operations(n) => assert!(n > 0 && run.warmup_seconds == 0.0, "{name}"),
                Stop::Seconds(s) => assert!(s > 0.0 && run.warmup_seconds < s, "{name}"),
            }
            let Some(workload) = table(run) else {
                continue;
            };
            assert!(workload.verify && workload.keys.records > 0, "{name}");
            assert!(workload.values.bytes >= crate::load::values::VALUE_BYTES_MIN, "{name}");
            let operations = crate::load::operations::Operations::new(workload, run.seed);
            assert!(operations.is_ok(), "{name}: {:?}", operations.err());
            let coder = crate::load::keys::KeyCoder::new(&workload.keys.format).unwrap();
            assert!(workload.keys.records <= coder.capacity(), "{name}: keys are too narrow");
            // Each read test's table is full: a load in order wrote every key.
            if run.role == Role::Load {
                assert_eq!(run.stop, Stop::Operations(workload.keys.records), "{name}");
            }
        }
    }
}

#[test]
fn the_social_network_takes_every_specification() {
    let mut specs = Vec::new();
    for run in all().iter().flat_map(|suite| &suite.experiments).flat_map(runs) {
        if let Activity::Social(social) = &run.activity {
            let spec = SocialSpec {
                mode: SocialMode::Load,
                ..social.clone()
            };
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
    }
    assert!(specs.len() > 10, "{}", specs.len());
    for spec in specs {
        let network = crate::social::network::Network::new(&spec);
        assert!(network.is_ok(), "{spec:?}: {:?}", network.err());
    }
}

/// Rows in clients' buffers when time is up are never sent: a run of small rows could end before the first flush.
#[test]
fn quick_timed_writes_send_most_of_what_they_buffer() {
    let mut seen = 0;
    for (name, run) in names().into_iter().flat_map(|name| {
        let suite = quick(name);
        let all: Vec<Run> = suite.experiments.iter().flat_map(runs).cloned().collect();
        all.into_iter().map(move |run| (name, run))
    }) {
        let (Stop::Seconds(seconds), Some(workload)) = (run.stop, table(&run)) else {
            continue;
        };
        for (operation, _) in &workload.mix {
            let Operation::BufferedPut { buffer_bytes } = operation else {
                continue;
            };
            seen += 1;
            let row = f64::from(workload.values.bytes) * f64::from(workload.values.columns) + 10.0;
            let buffered = f64::from(run.clients) * *buffer_bytes as f64 / row;
            let written = seconds * (30e6 / row).min(50_000.0);
            assert!(
                buffered * 2.0 < written,
                "{name}/{}: {buffered:.0} of {written:.0} rows",
                run.label
            );
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_quick_suite_fits_its_time() {
    for name in names() {
        let suite = quick(name);
        let seconds = estimate_seconds(&suite);
        assert!(seconds <= QUICK_SECONDS_MAX, "{name}: {seconds:.0} s");
        assert!(seconds > 20.0, "{name}: {seconds:.0} s leaves nothing to measure");
    }
}

#[test]
fn every_experiment_that_one_node_can_run_is_in_the_quick_suite() {
    let unavailable: Vec<String> = names()
        .into_iter()
        .flat_map(|name| quick(name).experiments)
        .filter(|experiment| experiment.unavailable.is_some())
        .map(|experiment| experiment.id)
        .collect();
    assert_eq!(unavailable, ["figure-6-scale", "B02", "B23"]);
}

#[test]
fn pulling_servers_needs_a_command_and_passes_on_what_to_pull() {
    let without = build(
        "hstack-2010",
        &SuiteOptions {
            quick: true,
            ..SuiteOptions::default()
        },
    )
    .unwrap();
    let pulled = |suite: &Suite| suite.experiments.iter().find(|e| e.id == "B24").unwrap().clone();
    assert!(pulled(&without).unavailable.unwrap().contains("--kill-command"));
    let with = pulled(&quick("hstack-2010"));
    let commands: Vec<_> = runs(&with).filter_map(|run| run.disruption.as_ref()).collect();
    assert_eq!(commands.len(), 2);
    assert_eq!(
        commands[1].command,
        "export STELE_BENCH_PULL=server STELE_BENCH_PULL_COUNT=3; pull"
    );
    assert_eq!(commands[1].at_seconds, 2.0);
}

#[test]
fn the_documents_own_size_is_exact() {
    let suite = build(
        "hypertable-2012",
        &SuiteOptions {
            scale: 1.0,
            ..SuiteOptions::default()
        },
    )
    .unwrap();
    let of = |id: &str, label: &str| {
        let experiment = suite.experiments.iter().find(|e| e.id == id).unwrap();
        runs(experiment).find(|run| run.label == label).unwrap().clone()
    };
    let write = of("B01", "write-10b");
    assert_eq!(write.stop, Stop::Operations(167_013_888_782));
    assert_eq!(table(&write).unwrap().keys.records, 1_670_138_887_820);
    assert_eq!(
        table(&write).unwrap().mix,
        [(
            Operation::BufferedPut {
                buffer_bytes: 12_000_000
            },
            1.0
        )]
    );
    let read = of("B03", "read-5-tb");
    assert_eq!((read.stop, read.clients), (Stop::Operations(100_000_000), 512));
    assert_eq!(table(&read).unwrap().keys.records, 4_901_960_784);
}

#[test]
fn scale_multiplies_volume_and_leaves_clients() {
    let at = |scale| {
        build(
            "hypertable-2010",
            &SuiteOptions {
                scale,
                ..SuiteOptions::default()
            },
        )
        .unwrap()
    };
    let (whole, part) = (at(1.0), at(0.01));
    let pairs = whole
        .experiments
        .iter()
        .flat_map(runs)
        .zip(part.experiments.iter().flat_map(runs));
    for (w, p) in pairs.filter(|(w, _)| w.role == Role::Load && w.label != "load") {
        let ratio = loaded(w) / loaded(p);
        assert!((ratio - 100.0).abs() < 0.1, "{}: {ratio}", w.label);
        assert_eq!(w.clients, p.clients);
    }
}

fn loaded(run: &Run) -> f64 {
    match run.stop {
        Stop::Operations(rows) => rows as f64,
        Stop::Seconds(_) => f64::NAN,
    }
}

#[test]
fn text_is_used_where_the_document_used_it() {
    let corpus = Some("/text".to_owned());
    let with = build(
        "hypertable-2012",
        &SuiteOptions {
            scale: 1.0,
            corpus,
            ..SuiteOptions::default()
        },
    )
    .unwrap();
    let source = |suite: &Suite| {
        let experiment = suite.experiments.iter().find(|e| e.id == "B01").unwrap();
        let source = runs(experiment)
            .find_map(|run| table(run))
            .unwrap()
            .values
            .source
            .clone();
        (source, experiment.differences.join(" "))
    };
    let (from, said) = source(&with);
    assert_eq!(from, crate::plan::ValueSource::Corpus { path: "/text".into() });
    assert!(said.contains("cut from the corpus"));
    let (from, said) = source(&quick("hypertable-2012"));
    assert_eq!(from, crate::plan::ValueSource::Incompressible);
    assert!(said.contains("no corpus was named"));
}

#[test]
fn sizes_that_make_no_sense_still_make_suites() {
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
        for name in names() {
            let suite = build(
                name,
                &SuiteOptions {
                    scale,
                    ..SuiteOptions::default()
                },
            )
            .unwrap();
            for run in suite.experiments.iter().flat_map(runs) {
                assert!(
                    !matches!(run.stop, Stop::Operations(0)),
                    "{name} at {scale}: {}",
                    run.label
                );
            }
        }
    }
}

#[test]
fn open_loops_stand_beside_closed_ones() {
    for name in [
        "bigtable-2006",
        "hypertable-2010",
        "hypertable-2012",
        "hstack-2010",
        "ycsb",
    ] {
        let suite = quick(name);
        let open: Vec<&Run> = suite
            .experiments
            .iter()
            .flat_map(runs)
            .filter(|run| run.rate.is_some())
            .collect();
        assert!(!open.is_empty(), "{name}");
        for run in open {
            let is_charted_by_latency = |e: &&Experiment| e.metric == Metric::MeanMillis;
            let charted = suite
                .experiments
                .iter()
                .filter(is_charted_by_latency)
                .flat_map(runs)
                .any(|r| r == run);
            assert!(
                run.point.is_none() || charted,
                "{name}/{}: an open loop's rate is no result",
                run.label
            );
        }
    }
}
