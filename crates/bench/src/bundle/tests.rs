//! Tests that write, read and change bundles, and find the changes.

use super::*;
use crate::outcome::{EncodedHistogram, Ending, histogram};
use crate::plan::{Disruption, Stage};
use std::fs;
use std::sync::OnceLock;

/// Writes a bundle with its page.
fn write(bundle: &Bundle, dir: &Path) -> Result<(), BundleError> {
    super::write(bundle, &crate::report::render(std::slice::from_ref(bundle)), dir)
}

/// One experiment of the fabricated bundle, because histograms are slow to decode without optimisation.
fn small() -> Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    let make = || {
        let mut bundle = fabricated::bundle(1.0);
        let kept = ["B12", "B06"];
        bundle
            .suite
            .experiments
            .retain(|experiment| kept.contains(&experiment.id.as_str()));
        bundle.runs.retain(|run| kept.contains(&run.experiment.as_str()));
        bundle
    };
    BUNDLE.get_or_init(make).clone()
}

fn written() -> (tempfile::TempDir, Bundle) {
    let dir = tempfile::tempdir().unwrap();
    let bundle = small();
    write(&bundle, dir.path()).unwrap();
    (dir, bundle)
}

fn texts(dir: &Path) -> Vec<String> {
    verify(dir).iter().map(Problem::to_string).collect()
}

#[test]
fn what_was_written_is_read_and_has_no_problem() {
    let (dir, bundle) = written();
    assert_eq!(texts(dir.path()), Vec::<String>::new());
    let found = read(dir.path()).unwrap();
    assert!(found == bundle, "read another bundle than was written");
    let again = tempfile::tempdir().unwrap();
    write(&found, again.path()).unwrap();
    let sums = |dir: &Path| fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(dir.path()), sums(again.path()));
}

#[test]
fn every_changed_byte_is_found() {
    let (dir, _) = written();
    let paths = verify::paths(dir.path()).unwrap();
    for path in &paths {
        let file = dir.path().join(path);
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        fs::write(&file, &bad).unwrap();
        let mut problems = Vec::new();
        verify::check_sums(dir.path(), &paths, &mut problems);
        assert!(
            problems
                .iter()
                .any(|problem| problem.place == *path || path == "SHA256SUMS"),
            "{path} at {middle}"
        );
        fs::write(&file, &good).unwrap();
    }
    assert_eq!(texts(dir.path()), Vec::<String>::new());
}

#[test]
fn missing_and_extra_files_are_found() {
    let (dir, _) = written();
    fs::remove_file(dir.path().join("xray/pauses.csv")).unwrap();
    fs::write(dir.path().join("runs/note.txt"), "hello").unwrap();
    let texts = texts(dir.path());
    assert!(texts.contains(&"xray/pauses.csv: missing".to_owned()), "{texts:?}");
    assert!(
        texts.contains(&"runs/note.txt: not in SHA256SUMS".to_owned()),
        "{texts:?}"
    );
}

#[test]
fn figures_that_do_not_fit_are_found_though_sums_were_made_anew() {
    type Change = fn(&mut Bundle);
    let cases: [(&str, Change); 13] = [
        ("steps", |bundle| bundle.runs[0].kinds[0].steps += 1),
        ("workers' sum", |bundle| bundle.runs[0].kinds[0].operations *= 2),
        ("mean", |bundle| bundle.runs[0].kinds[0].micros_sum *= 0.9),
        ("largest", |bundle| bundle.runs[0].kinds[0].micros_max /= 2),
        ("sum of squares", |bundle| {
            bundle.runs[0].workers[0].kinds[0].micros_square_sum /= 100.0
        }),
        ("passed with wrong responses", |bundle| {
            bundle.runs[0].verdict.missing = 1
        }),
        ("no outcome (", |bundle| {
            bundle.runs.retain(|run| run.experiment != "B12")
        }),
        ("no outcome of 1 of 2 repeats: 2 (target 1)", |bundle| {
            bundle.runs.retain(|run| (run.party, run.repeat) != (1, 2))
        }),
        ("no outcome of 1 of 2 repeats: 1 (target 0)", |bundle| {
            // An earlier version recorded no number, but other runs have more repeats.
            bundle.repeats = None;
            bundle.runs.remove(0);
        }),
        ("no outcome of 4294967293 of 4294967295 repeats: 3, 4", |bundle| {
            bundle.repeats = Some(u32::MAX)
        }),
        ("repeat 2, and there are 1", |bundle| bundle.repeats = Some(1)),
        ("not in the suite", |bundle| bundle.runs[0].label = "invented".into()),
        ("there twice", |bundle| bundle.runs.push(bundle.runs[0].clone())),
    ];
    for (expected, change) in cases {
        let mut bundle = small();
        change(&mut bundle);
        let mut problems = Vec::new();
        consistency::check(&bundle, &mut problems);
        let texts: Vec<_> = problems.iter().map(Problem::to_string).collect();
        assert!(
            texts.iter().any(|text| text.contains(expected)),
            "{expected}: {texts:?}"
        );
    }
}

/// A bundle whose first run kills a server, and whose check afterwards finds two of three unsure rows.
fn killed() -> Bundle {
    let mut bundle = small();
    let killed = bundle.runs[0].clone();
    for stage in bundle.suite.experiments.iter_mut().flat_map(|e| &mut e.stages) {
        if let Stage::Run(run) = stage
            && run.label == killed.label
        {
            run.disruption = Some(Disruption {
                at_seconds: 1.0,
                command: "kill 4242".into(),
            });
        }
    }
    let mut failed = histogram::new();
    failed.record_n(30_000_000, 3).unwrap();
    let run = &mut bundle.runs[0];
    for kinds in [&mut run.kinds, &mut run.workers[0].kinds] {
        kinds[0].failures.insert("connection: reset".into(), 3);
        kinds[0].failed = EncodedHistogram::encode(&failed);
    }
    let check = check_of(&mut bundle);
    check.returned_rows = Some(100_002);
    check.unsure_rows = 3;
    bundle
}

/// Another run of the same turn.
fn check_of(bundle: &mut Bundle) -> &mut RunOutcome {
    let killed = bundle.runs[0].clone();
    let is_check = |run: &&mut RunOutcome| {
        (&run.experiment, run.party, run.repeat) == (&killed.experiment, killed.party, killed.repeat)
            && run.label != killed.label
    };
    bundle.runs.iter_mut().find(is_check).unwrap()
}

#[test]
fn failures_and_unsure_rows_are_right_where_a_server_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = killed();
    write(&bundle, dir.path()).unwrap();
    assert_eq!(texts(dir.path()), Vec::<String>::new());
    assert!(read(dir.path()).unwrap() == bundle);
}

#[test]
fn failures_and_unsure_rows_without_a_cause_are_found() {
    type Change = fn(&mut Bundle);
    let cases: [(&str, Change); 5] = [
        ("not the sum of the workers'", |bundle| {
            bundle.runs[0].kinds[0].failed = EncodedHistogram::default()
        }),
        ("3 failed operations", |bundle| {
            bundle.suite.experiments = small().suite.experiments
        }),
        ("Some(99999) rows", |bundle| {
            check_of(bundle).returned_rows = Some(99_999)
        }),
        ("Some(100004) rows", |bundle| {
            check_of(bundle).returned_rows = Some(100_004)
        }),
        ("no operation failed before", |bundle| {
            bundle.runs[0] = small().runs[0].clone()
        }),
    ];
    for (expected, change) in cases {
        let mut bundle = killed();
        change(&mut bundle);
        let mut problems = Vec::new();
        consistency::check(&bundle, &mut problems);
        let texts: Vec<_> = problems.iter().map(Problem::to_string).collect();
        assert!(
            matches!(texts.as_slice(), [only] if only.contains(expected)),
            "{expected}: {texts:?}"
        );
    }
}

#[test]
fn warming_up_need_not_be_in_the_suite() {
    let mut bundle = small();
    let mut warm = bundle.runs[0].clone();
    (warm.experiment, warm.role) = ("warm-up".into(), crate::plan::Role::Warm);
    bundle.runs.push(warm);
    let mut problems = Vec::new();
    consistency::check(&bundle, &mut problems);
    assert_eq!(problems, []);
}

#[test]
fn bundles_that_do_not_record_their_repeats_are_read_as_they_are() {
    let (dir, bundle) = written();
    assert_eq!(repeats(dir.path()).unwrap(), Some(2));
    let old = Bundle {
        repeats: None,
        ..bundle
    };
    let dir = tempfile::tempdir().unwrap();
    write(&old, dir.path()).unwrap();
    assert_eq!(texts(dir.path()), Vec::<String>::new());
    assert_eq!(repeats(dir.path()).unwrap(), None);
    let index = fs::read_to_string(dir.path().join("bundle.json")).unwrap();
    assert!(!index.contains("repeats") && read(dir.path()).unwrap() == old);
}

#[test]
fn a_strange_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    assert!(matches!(
        write(&Bundle::default(), dir.path()),
        Err(BundleError::NotEmpty(_))
    ));
    assert!(matches!(
        write_partial(&Bundle::default(), dir.path()),
        Err(BundleError::NotEmpty(_))
    ));
    let (done, bundle) = written();
    assert!(matches!(write(&bundle, done.path()), Err(BundleError::NotEmpty(_))));
}

#[test]
fn an_interrupted_bench_leaves_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let whole = small();
    let mut part = Bundle {
        ended_at: 0.0,
        runs: whole.runs[..3].to_vec(),
        ..whole.clone()
    };
    write_partial(&part, dir.path()).unwrap();
    part.runs = whole.runs[..5].to_vec();
    write_partial(&part, dir.path()).unwrap();
    assert!(read(dir.path()).unwrap() == part);
    assert!(texts(dir.path()).iter().any(|text| text.contains("did not end")));
    part.runs[4].label = "renamed".into();
    write_partial(&part, dir.path()).unwrap();
    write(&whole, dir.path()).unwrap();
    assert_eq!(texts(dir.path()), Vec::<String>::new());
}

#[test]
fn another_format_is_refused() {
    let (dir, _) = written();
    let path = dir.path().join("bundle.json");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen("\"format\": 1", "\"format\": 2", 1);
    fs::write(&path, text).unwrap();
    assert!(matches!(read(dir.path()), Err(BundleError::Format { found: 2, .. })));
}

#[test]
fn an_index_that_points_elsewhere_is_refused() {
    let (dir, _) = written();
    let path = dir.path().join("bundle.json");
    let text = fs::read_to_string(&path).unwrap();
    for foreign in ["../secret.json", "/etc/passwd", "parties/../../x"] {
        let changed = text.replacen("parties/stele__fabricated_.json", foreign, 1);
        assert_ne!(changed, text);
        fs::write(&path, changed).unwrap();
        assert!(
            matches!(read(dir.path()), Err(BundleError::Damaged { .. })),
            "{foreign}"
        );
    }
}

#[test]
fn hostile_names_and_an_empty_bundle_are_written_and_read() {
    let mut bundle = small();
    bundle.runs.truncate(6);
    for run in &mut bundle.runs {
        run.label = "../../x<y>".into();
        run.experiment = "..".into();
        run.ending = Ending::Skipped("\"quoted\" \u{0} text".into());
    }
    for (party, name) in bundle.parties.iter_mut().zip(["a/b", "A_B", ""]) {
        party.name = name.into();
    }
    for bundle in [
        bundle,
        Bundle {
            format: FORMAT,
            ..Bundle::default()
        },
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(&bundle, dir.path()).unwrap();
        assert!(read(dir.path()).unwrap() == bundle);
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_when_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut bundle = small();
    bundle.runs[0].seconds = f64::NAN;
    let error = write(&bundle, dir.path()).unwrap_err();
    assert!(matches!(&error, BundleError::Unwritable { .. }), "{error}");
}

#[test]
fn sums_are_those_of_the_usual_tool() {
    assert_eq!(
        write::sum(b""),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    let (dir, _) = written();
    let text = fs::read_to_string(dir.path().join("SHA256SUMS")).unwrap();
    let line = format!(
        "{}  bundle.json",
        write::sum(&fs::read(dir.path().join("bundle.json")).unwrap())
    );
    assert!(text.lines().any(|found| found == line));
}
