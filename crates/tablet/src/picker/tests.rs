//! Picks of compactions as text, and their total effect over a long run.

use super::*;

/// Runs as `bytes[/garbage][~compressible][:file bytes][>][*]` of 100 entries each, `>` for one that is advanced, `*` for one
/// that a job is at; the pick as text.
fn check_with(runs: &str, picker_stats: PickerStats, expected: &str) {
    check_of(1, runs, picker_stats, expected);
}

/// The same of runs in units of `unit` bytes.
fn check_of(unit: u64, runs: &str, picker_stats: PickerStats, expected: &str) {
    let parse = |word: &str| {
        let (word, busy) = word.strip_suffix('*').map_or((word, false), |word| (word, true));
        let (word, advanced) = word.strip_suffix('>').map_or((word, false), |word| (word, true));
        let (word, whole) = word.split_once(':').unwrap_or((word, ""));
        let (word, compressible) = word.split_once('~').unwrap_or((word, "0"));
        let (bytes, garbage) = word.split_once('/').unwrap_or((word, "0"));
        let compressible = compressible.parse::<u64>().unwrap() * unit;
        let bytes = bytes.parse::<u64>().unwrap() * unit;
        RunSummary {
            bytes,
            cells: 100,
            garbage: garbage.parse().unwrap(),
            lasting_tombstones: 0,
            overlapping: bytes,
            known_overlapping: bytes,
            file_bytes: whole.parse().map_or(bytes, |whole: u64| whole * unit),
            partial_rows: 1,
            bounds: 0,
            compressible,
            advanced,
            busy,
        }
    };
    let parsed: Vec<RunSummary> = runs.split_whitespace().map(parse).collect();
    let picked = match pick(&parsed, picker_stats) {
        None => "nothing".to_owned(),
        Some(p) => format!("{:?}{}", p.runs, if p.major { " major" } else { "" }),
    };
    assert_eq!(picked, expected, "{runs}");
    if !parsed.iter().any(|run| run.busy) {
        assert_eq!(debt(&parsed, picker_stats) > 0, picked != "nothing");
    }
}

/// Of a group that is read, but too little to pay for merges of megabytes.
fn check(runs: &str, expected: &str) {
    let picker_stats = PickerStats {
        extra_runs_read: 100 * runs.split_whitespace().count() as u64 / WRITES_PER_RUN_READ_RARELY + 1,
        ..PickerStats::default()
    };
    check_of(1 << 20, runs, picker_stats, expected);
}

#[test]
fn where_it_is_read_as_much_as_written_four_tiers_are_enough() {
    let runs = "100000000 1000000 1000000 1000000 1000000";
    let reads = |extra_runs_read| PickerStats {
        extra_runs_read,
        ..PickerStats::default()
    };
    // Of the 400 entries above the bottom. It takes 8,000 such reads to pay for the merge.
    check_with(runs, reads(200), "nothing");
    check_with(runs, reads(201), "1..5");
}

#[test]
fn upper_runs_and_garbage() {
    check("", "nothing");
    check("100", "nothing");
    check("10000 1000 1000", "nothing");
    check("10000 100 100 100 100 100 100 100 100", "1..9");
    check("10000 100 100 100 100 100 100 100", "nothing");
    // The output of a compaction waits for runs of its size.
    let times = |run: &str, times| vec![run; times].join(" ");
    check(&format!("100000 800 {}", times("100", 7)), "nothing");
    check(&format!("100000 800 {}", times("100", 8)), "2..10");
    check(&format!("100000 {} 100", times("800", 7)), "nothing");
    check(&format!("100000 {} 100", times("800", 8)), "1..9");
    // A small newest run does not hide the tier below it.
    check("100000 1000 1000 1000 1000 1000 1000 1000 1000 10", "1..9");
    check("10000/30 1000", "nothing");
    check("10000/50 1000", "0..2 major");
    check("100/21", "0..1 major");
    check("500:1000", "nothing");
    check("240:1000", "0..1 major");
    check("2400:10000 200", "nothing");
}

#[test]
fn tombstones_that_would_be_written_again_are_no_reason() {
    let run = |lasting_tombstones, busy| RunSummary {
        bytes: 1000,
        cells: 100,
        garbage: 30,
        lasting_tombstones,
        file_bytes: 1000,
        busy,
        ..RunSummary::default()
    };
    let picked = |lasting_tombstones, busy| {
        let runs = [run(lasting_tombstones, false), run(lasting_tombstones, busy)];
        pick(&runs, PickerStats::default())
    };
    let major = |runs: Range<usize>, major| Some(Pick { runs, major });
    assert_eq!(picked(30, false), major(0..2, true));
    assert_eq!(picked(30, true), None, "they cannot go while a job is at the upper run");
    assert_eq!(picked(0, true), major(0..1, false));
    assert_eq!(picked(9, true), major(0..1, false), "there is other garbage");
    assert_eq!(picked(15, true), None);
    let is_worth_it = |major| is_worth_rewriting(&run(30, false).of_compaction(major), PickerStats::default());
    assert_eq!([true, false].map(is_worth_it), [true, false]);
}

#[test]
fn what_is_in_many_pieces_is_rewritten() {
    let run = |partial_rows| RunSummary {
        bytes: 1000,
        cells: 100,
        file_bytes: 1000,
        partial_rows,
        ..RunSummary::default()
    };
    for (partial_rows, expected) in [(PIECES_MAX, false), (PIECES_MAX + 1, true)] {
        let picker_stats = PickerStats::default();
        assert_eq!(pick(&[run(partial_rows)], picker_stats).is_some(), expected);
        assert_eq!(is_worth_rewriting(&run(partial_rows), picker_stats), expected);
    }
}

#[test]
fn what_fills_the_manifest_is_rewritten_and_in_the_bottom_alone() {
    let run = |bounds| RunSummary {
        bytes: 1000,
        cells: 100,
        file_bytes: 1000,
        bounds,
        ..RunSummary::default()
    };
    let check = |runs: &[RunSummary], expected: Option<Range<usize>>| {
        let pick = pick(runs, PickerStats::default());
        assert_eq!(pick.map(|pick| pick.runs), expected, "{runs:?}");
    };
    check(&[run(0), run(0)], None);
    check(&[run(1)], Some(0..1));
    check(&[run(1), run(0)], Some(0..1));
    check(&[run(0), run(1)], Some(0..2));
    let busy = RunSummary { busy: true, ..run(1) };
    check(&[busy, run(0)], None);
    let advanced = RunSummary {
        advanced: true,
        ..run(0)
    };
    check(&[run(1), advanced, run(0)], Some(0..2));
    assert!(is_worth_rewriting(&run(1), PickerStats::default()));
}

#[test]
fn what_is_overwritten_is_merged_sooner_than_what_grows() {
    let grows = PickerStats {
        replaced_percent: 0,
        ..PickerStats::default()
    };
    check("10000 3300", "nothing");
    check("10000 3400", "0..2 major");
    check_with("10000 3400", grows, "nothing");
    check_with(&["10000"; UPPER_RUNS_UNREAD - 1].join(" "), grows, "nothing");
    check_with(&["10000"; UPPER_RUNS_UNREAD].join(" "), grows, "0..24 major");
}

#[test]
fn a_group_that_is_hardly_read_keeps_more_upper_runs() {
    let check = |upper_runs: usize, extra_runs_read, expected: &str| {
        let runs = format!("1000 {}", vec!["1"; upper_runs].join(" "));
        let picker_stats = PickerStats {
            extra_runs_read,
            ..PickerStats::default()
        };
        check_of(1 << 20, &runs, picker_stats, expected);
    };
    check(UPPER_RUNS, 0, "nothing");
    check(UPPER_RUNS_UNREAD - 1, 0, "nothing");
    check(UPPER_RUNS_UNREAD, 0, "1..25");
    // Tiers of different sizes.
    let of_sizes = |small: usize, expected: &str| {
        let runs = format!("90000 {} {}", vec!["1000"; 20].join(" "), vec!["1"; small].join(" "));
        check_of(1 << 20, &runs, PickerStats::default(), expected);
    };
    of_sizes(11, "nothing");
    of_sizes(12, "21..33");
    // Of 800 entries above the bottom.
    check(UPPER_RUNS, 6, "nothing");
    check(UPPER_RUNS, 7, "1..9");
}

#[test]
fn what_nobody_writes_any_more_is_merged_for_less() {
    let quiet = PickerStats {
        is_quiet: true,
        ..PickerStats::default()
    };
    check("10000 1200", "nothing");
    check_with("10000 1200", quiet, "0..2 major");
    check_with("10000 1100", quiet, "nothing");
    check_with("10000", quiet, "nothing");
    check_with("10000 100 100 100 100", quiet, "1..5");
    check_with("10000 100 100 100", quiet, "nothing");
}

#[test]
fn what_was_not_compressed_is_when_nobody_writes_any_more() {
    let picker_stats = |is_quiet| PickerStats {
        is_quiet,
        replaced_percent: 0,
        ..PickerStats::default()
    };
    for (runs, expected) in [
        ("1000~101", "0..1 major"),
        ("1000~100", "nothing"),
        ("9000 1000~410 1000~410 1000~410", "0..4 major"),
        ("9000 1000~400 1000~400", "nothing"),
    ] {
        check_of(1 << 20, runs, picker_stats(true), expected);
        check_of(1 << 20, runs, picker_stats(false), "nothing");
    }
    // For so little nobody takes the trouble.
    check_of(1 << 10, "1000~255", picker_stats(true), "nothing");
    check_of(1 << 10, "1000~256", picker_stats(true), "0..1 major");
}

/// Overwritten data takes the space that it takes: a compaction into the bottom level is not due later for it.
#[test]
fn what_was_not_compressed_counts_as_what_it_is_where_it_overlaps() {
    check("10000 3300~1300", "nothing");
    check("10000 3400~1400", "0..2 major");
}

/// The output of a compaction is small because it is compressed, and waits for runs of its size all the same.
#[test]
fn what_was_not_compressed_joins_what_it_will_be_like() {
    let flushes = |number| vec!["100~90"; number].join(" ");
    check(&format!("100000 {}", flushes(8)), "1..9");
    check(&format!("100000 80 {}", flushes(7)), "nothing");
    check(&format!("100000 80 {}", flushes(8)), "2..10");
    // Some were compressed in between.
    check(&format!("100000 {} 10 10 {}", flushes(3), flushes(3)), "1..9");
}

#[test]
fn new_rows_make_no_garbage() {
    let upper_run = |overlapping| RunSummary {
        bytes: 4000,
        overlapping,
        ..RunSummary::default()
    };
    let compactions = |overlapping| {
        pick(
            &[upper_run(0), upper_run(overlapping), upper_run(overlapping)],
            PickerStats::default(),
        )
    };
    assert_eq!(compactions(1499), None);
    assert_eq!(compactions(1501).map(|pick| pick.runs), Some(0..3));
}

#[test]
fn space_that_is_not_live_is_pressure() {
    const MIB: u64 = 1 << 20;
    let check = |bottom: u64, upper_run: RunSummary, expected: u64| {
        let bottom = RunSummary {
            bytes: bottom * MIB,
            ..RunSummary::default()
        };
        assert_eq!(
            compaction_pressure(&[bottom, upper_run], PickerStats::default(), true),
            expected,
            "{upper_run:?}"
        );
        assert_eq!(
            compaction_pressure(&[bottom, upper_run], PickerStats::default(), false),
            0
        );
    };
    let upper_run = |mib: u64, overlap: u64| RunSummary {
        bytes: mib * MIB,
        known_overlapping: mib * overlap / 100 * MIB,
        ..RunSummary::default()
    };
    check(1000, upper_run(350, 100), 0);
    check(1000, upper_run(351, 100), 1);
    check(1000, upper_run(360, 100), 10);
    check(1000, upper_run(850, 100), PRESSURE_FULL / 2);
    check(1000, upper_run(1350, 100), PRESSURE_FULL);
    check(1000, upper_run(9000, 100), 865 * PRESSURE_FULL / 100);
    check(1000, upper_run(1000, 0), 0);
    // Little, however large a multiple of the live data it is.
    check(10, upper_run(200, 100), 0);
    // The part that a compaction has cut off a file counts while it goes on; the part that the other half of a split
    // tablet has does not.
    let cut = |advanced| RunSummary {
        file_bytes: 1000 * MIB,
        advanced,
        ..upper_run(0, 0)
    };
    check(1000, cut(true), 65 * PRESSURE_FULL / 100);
    check(1000, cut(false), 0);
}

#[test]
fn many_runs_are_pressure() {
    let check = |runs, expected| {
        let runs = vec![RunSummary::default(); runs];
        assert_eq!(compaction_pressure(&runs, PickerStats::default(), false), expected);
        assert_eq!(compaction_pressure(&runs, PickerStats::default(), true), expected);
    };
    check(0, 0);
    check(RUNS_EASY as usize, 0);
    check(RUNS_EASY as usize * 5 / 4, PRESSURE_FULL / 4);
    check(RUNS_EASY as usize * 3, 2 * PRESSURE_FULL);
}

/// Or they would wait for nothing.
#[test]
fn a_writer_without_space_waits_for_a_compaction() {
    const MIB: u64 = 1 << 20;
    for upper_runs in 1..RUNS_MAX {
        for upper_run_mib in [1, 10, 100, 1000] {
            for (known, of_others) in [(0, 1), (30, 1), (60, 1), (100, 1), (0, 3), (60, 3)] {
                let bytes = upper_run_mib * MIB;
                let known_overlapping = bytes * known / 100;
                let upper_run = RunSummary {
                    bytes,
                    file_bytes: bytes * of_others,
                    overlapping: known_overlapping,
                    known_overlapping,
                    ..RunSummary::default()
                };
                let bottom = RunSummary {
                    bytes: 1000 * MIB,
                    file_bytes: 1000 * of_others * MIB,
                    ..RunSummary::default()
                };
                let runs: Vec<_> = [bottom]
                    .into_iter()
                    .chain(std::iter::repeat_n(upper_run, upper_runs))
                    .collect();
                let picker_stats = PickerStats::default();
                if compaction_pressure(&runs, picker_stats, true) > 0 {
                    let pick = pick(&runs, picker_stats);
                    assert!(
                        pick.is_some_and(|pick| pick.runs.start == 0),
                        "{upper_runs} of {upper_run:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_merge_goes_on_with_the_runs_it_began_with() {
    check("10000 500> 400> 100", "0..3");
    check("10000 500> 400>", "0..3 major");
    check("10000 500> 10 10 10 10", "0..2");
    check("10000 500> 400>* 300>* 100", "0..2");
    let behind = |runs: &str, times| format!("10000 500> {}", vec![runs; times].join(" "));
    check(&behind("10", RUNS_BEHIND_COMPACTION - 1), "0..2");
    check(&behind("10", RUNS_BEHIND_COMPACTION), "2..34");
    // The next one leaves alone the runs that were merged behind it.
    check(&format!("10000 500> 320 {}", vec!["10"; 31].join(" ")), "3..34");
    check(&format!("10000 500> 320 {} 4", vec!["10"; 30].join(" ")), "3..33");
    check(&format!("10000 500> 320 {}", vec!["10"; 30].join(" ")), "0..2");
}

/// Flushes come as fast as compactions can read them: runs merged behind a compaction into the bottom level leave it a
/// part of the time.
#[test]
fn a_merge_that_has_begun_ends_though_flushes_come_fast() {
    let run = |bytes, advanced| RunSummary {
        bytes,
        file_bytes: bytes,
        advanced,
        ..RunSummary::default()
    };
    for flush in [1, 10, 50] {
        let mut runs = vec![run(3000, false), run(1000, true)];
        let (mut read, mut jobs) = (0, 0);
        while runs.get(1).is_some_and(|upper_run| upper_run.advanced) {
            let pick = pick(&runs, PickerStats::default()).unwrap();
            if pick.runs.start == 0 {
                read += 300;
                jobs += 1;
                if jobs == 14 {
                    runs[1].advanced = false;
                }
            } else {
                let compacted = runs[pick.runs.clone()].iter().map(|run| run.bytes).sum();
                read += compacted;
                runs.splice(pick.runs, [run(compacted, false)]);
            }
            // While 300 are read, 100 are flushed.
            while runs[2..].iter().map(|run| run.bytes).sum::<u64>() * 3 < read {
                runs.push(run(flush, false));
            }
            assert!(read < 20_000, "{jobs} jobs were done, {runs:?}");
        }
        assert!(runs.len() < 60 + 400 / flush as usize, "{} runs", runs.len());
    }
}

#[test]
fn what_can_be_done_in_parts() {
    let run = |advanced| RunSummary {
        bytes: 100,
        advanced,
        ..RunSummary::default()
    };
    let check = |advanced: &[bool], expected: Range<usize>, major: bool| {
        let runs: Vec<_> = advanced.iter().map(|advanced| run(*advanced)).collect();
        assert_eq!(pick_bottom(&runs), Pick { runs: expected, major });
    };
    check(&[false, false, false], 0..3, true);
    check(&[false, true, false], 0..2, false);
    check(&[false; 80], 0..RUNS_MAX, false);
}

#[test]
fn during_a_job_only_other_runs_are_picked() {
    // Of tiers: newer ones, older ones, but none across.
    let times = |run: &str, times| vec![run; times].join(" ");
    check(&format!("90000 {} {}", times("1000*", 4), times("10", 7)), "nothing");
    check(&format!("90000 {} {}", times("1000*", 4), times("10", 8)), "5..13");
    check(&format!("90000 {} {}", times("1000", 8), times("10*", 4)), "1..9");
    check(
        &format!("90000 {} 1000* {}", times("1000", 4), times("1000", 4)),
        "nothing",
    );
    // Runs older than a compaction of upper runs are worth merging, or not, by themselves.
    check("10000 3300 1000*", "nothing");
    check("10000 3400 1000*", "0..2");
    check("10000/50 1000*", "0..1");
    // Behind a merge into the bottom, whether it is at its first part or a later one.
    for bottom in ["10000* 500*", "10000* 500>*", "10000* 500>* 400*"] {
        let at = bottom.split(' ').count();
        check(bottom, "nothing");
        check(&format!("{bottom} {}", times("10", 31)), "nothing");
        check(&format!("{bottom} {}", times("10", 32)), &format!("{at}..{}", at + 32));
        check(&format!("{bottom} {} 10", times("10*", 31)), "nothing");
        let read = PickerStats {
            extra_runs_read: 100,
            ..PickerStats::default()
        };
        check_with(&format!("{bottom} 512 512"), read, &format!("{at}..{}", at + 2));
        check_with(&format!("{bottom} 512* 512"), read, "nothing");
    }
    // Between two parts the merge goes on.
    check("10000 500> 10* 10*", "0..2");
    let parsed = [false, false, true, false].map(|busy| RunSummary {
        busy,
        ..RunSummary::default()
    });
    assert_eq!(pick_bottom(&parsed).runs, 0..2);
    assert_eq!(pick_bottom(&parsed[2..]).runs, 0..0);
}

#[test]
fn reads_pay_for_compactions() {
    let read = |extra_runs_read| PickerStats {
        extra_runs_read,
        ..PickerStats::default()
    };
    check_with("100000 5120 5120", read(10), "nothing");
    check_with("100000 5120 5120", read(40), "1..3");
    check_with("100000 5120 5120", read(300), "0..3 major");
    check_with("100000", read(1_000_000), "nothing");
}

/// One tablet of `live` bytes under random overwrites, a flush of `flush` bytes at a time. Sizes are shares of its keys:
/// of two runs with shares a and b, 1 - (1 - a)(1 - b) is left after a merge.
struct Overwritten {
    live: f64,
    /// Shares of the keys, and of these the shares that older runs had.
    runs: Vec<(f64, f64)>,
    written: f64,
}

/// The data left of runs when they are merged.
fn union(runs: &[(f64, f64)]) -> f64 {
    1.0 - runs.iter().map(|(share, _)| 1.0 - share).product::<f64>()
}

impl Overwritten {
    fn new(live: f64, runs: Vec<(f64, f64)>) -> Self {
        Overwritten {
            live,
            runs,
            written: 0.0,
        }
    }

    fn flush(&mut self, bytes: f64) {
        let share = 1.0 - (-bytes / self.live).exp();
        self.runs.push((share, union(&self.runs)));
        self.written += share * self.live;
        while let Some(pick) = pick(&self.summaries(), PickerStats::default()) {
            let left = union(&self.runs[pick.runs.clone()]);
            let overlap = union(&self.runs[..pick.runs.start]);
            self.written += left * self.live;
            self.runs.splice(pick.runs, [(left, overlap)]);
        }
    }

    fn summaries(&self) -> Vec<RunSummary> {
        let summary = |(share, overlap): &(f64, f64)| RunSummary {
            bytes: (share * self.live) as u64,
            cells: (share * self.live / 100.0) as u64,
            overlapping: (share * overlap * self.live) as u64,
            file_bytes: (share * self.live) as u64,
            ..RunSummary::default()
        };
        self.runs.iter().map(summary).collect()
    }

    /// As a multiple of the live data.
    fn space(&self) -> f64 {
        self.runs.iter().map(|(share, _)| share).sum::<f64>() / union(&self.runs)
    }
}

/// 20 GB in 40 tablets, overwritten at random: write and space amplification after every 20 GB, for memory that allows flushes of a 64th to an 8th of a tablet.
#[test]
fn twenty_gigabytes_overwritten() {
    const LIVE: f64 = 512e6;
    const TABLETS: f64 = 40.0;
    let mut curve = String::new();
    for part in [64.0, 32.0, 16.0, 8.0] {
        let mut tablet = Overwritten::new(LIVE, vec![(1.0, 0.0)]);
        let (mut accepted, mut worst, mut sum, mut flushes) = (0.0, 0f64, 0.0, 0.0);
        let mut shown = 20e9;
        while accepted * TABLETS < 80e9 {
            tablet.flush(LIVE / part);
            accepted += LIVE / part;
            worst = worst.max(tablet.space());
            sum += tablet.space();
            flushes += 1.0;
            if accepted * TABLETS >= shown {
                let (written, space) = (tablet.written / accepted, sum / flushes);
                curve += &format!(
                    "flush 1/{part:2} after {:2} GB: written {written:5.2}, space {space:.2}, at most {worst:.2}\n",
                    shown / 1e9
                );
                shown += 20e9;
            }
        }
        let written = tablet.written / accepted;
        assert!(written < 6.0 && worst < 1.35, "{curve}");
    }
    println!("{curve}");
}

/// Random rows are written until as many were written as there are: a compaction of mostly new data gains nothing.
#[test]
fn a_load_is_hardly_rewritten() {
    let mut curve = String::new();
    for flushes in [4, 6, 8, 16, 32, 64] {
        let mut tablet = Overwritten::new(1e9, Vec::new());
        let mut worst = 0f64;
        for _ in 0..flushes {
            tablet.flush(1e9 / f64::from(flushes));
            worst = worst.max(tablet.space());
        }
        let rewritten = (tablet.written - 1e9) / 1e9;
        curve += &format!("{flushes:2} flushes: written {rewritten:.2} more, space at most {worst:.2}\n");
        assert!(rewritten < 1.4 && worst < 1.35, "{curve}");
    }
    println!("{curve}");
}
