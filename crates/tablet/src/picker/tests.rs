//! Picks as text, and what they amount to over a long run.

use super::*;

/// Runs as `bytes[/garbage][:file bytes][>]` of 100 entries each, `>` for one that is advanced; the pick as text.
fn check_with(runs: &str, experience: Experience, expected: &str) {
    let parse = |word: &str| {
        let (word, advanced) = word.strip_suffix('>').map_or((word, false), |word| (word, true));
        let (word, whole) = word.split_once(':').unwrap_or((word, ""));
        let (bytes, garbage) = word.split_once('/').unwrap_or((word, "0"));
        let bytes = bytes.parse().unwrap();
        RunSummary {
            bytes,
            cells: 100,
            garbage: garbage.parse().unwrap(),
            file_bytes: whole.parse().unwrap_or(bytes),
            advanced,
        }
    };
    let parsed: Vec<RunSummary> = runs.split_whitespace().map(parse).collect();
    let picked = match pick(&parsed, experience) {
        None => "nothing".to_owned(),
        Some(p) => format!("{:?}{}", p.runs, if p.major { " major" } else { "" }),
    };
    assert_eq!(picked, expected, "{runs}");
    assert_eq!(debt(&parsed, experience) > 0, picked != "nothing");
}

fn check(runs: &str, expected: &str) {
    check_with(runs, Experience::default(), expected);
}

#[test]
fn tiers_and_garbage() {
    check("", "nothing");
    check("100", "nothing");
    check("10000 1000 1000", "nothing");
    check("10000 100 100 100 100", "1..5");
    check("10000 100 100 100", "nothing");
    // A small newest run does not hide the tier below it.
    check("100000 1000 1000 1000 1000 10", "1..5");
    check("10000/30 1000", "nothing");
    check("10000/50 1000", "0..2 major");
    check("100/21", "0..1 major");
    check("500:1000", "nothing");
    check("240:1000", "0..1 major");
    check("2400:10000 200", "nothing");
}

#[test]
fn what_is_overwritten_is_merged_sooner_than_what_grows() {
    let grows = Experience {
        replaced_percent: 0,
        ..Experience::default()
    };
    check("10000 2400", "nothing");
    check("10000 2600", "0..2 major");
    check_with("10000 2600", grows, "nothing");
    check_with("10000 10000 10000", grows, "nothing");
    check_with("10000 10000 10000 10000", grows, "0..4 major");
}

#[test]
fn a_merge_goes_on_with_the_runs_it_began_with() {
    check("10000 500> 400> 100", "0..3");
    check("10000 500> 400>", "0..3 major");
    check("10000 500> 10 10 10 10", "0..2");
    check("10000 500> 10 10 10 10 10 10 10 10", "2..10");
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
    check(&[false; 40], 0..RUNS_MAX, false);
}

#[test]
fn reads_pay_for_merges() {
    let read = |extra_runs_read| Experience {
        extra_runs_read,
        ..Experience::default()
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
    runs: Vec<f64>,
    written: f64,
    experience: Experience,
}

impl Overwritten {
    fn flush(&mut self, bytes: f64) {
        let share = 1.0 - (-bytes / self.live).exp();
        self.runs.push(share);
        self.written += share * self.live;
        while let Some(pick) = pick(&self.summaries(), self.experience) {
            let left = 1.0
                - self.runs[pick.runs.clone()]
                    .iter()
                    .map(|share| 1.0 - share)
                    .product::<f64>();
            let taken: f64 = self.runs[pick.runs.clone()].iter().skip(1).sum();
            if pick.runs.start == 0 && taken > 0.0 {
                self.experience.replaced_percent = ((self.runs[0] + taken - left) / taken * 100.0) as u64;
            }
            self.written += left * self.live;
            self.runs.splice(pick.runs, [left]);
        }
    }

    fn summaries(&self) -> Vec<RunSummary> {
        let summary = |share: &f64| RunSummary {
            bytes: (share * self.live) as u64,
            cells: (share * self.live / 100.0) as u64,
            file_bytes: (share * self.live) as u64,
            ..RunSummary::default()
        };
        self.runs.iter().map(summary).collect()
    }

    fn space(&self) -> f64 {
        self.runs.iter().sum()
    }
}

/// 20 GB in 40 tablets, overwritten at random: write and space amplification after every 20 GB, for memory that allows flushes of a 64th to an 8th of a tablet.
#[test]
fn twenty_gigabytes_overwritten() {
    const LIVE: f64 = 512e6;
    const TABLETS: f64 = 40.0;
    let mut curve = String::new();
    for part in [64.0, 32.0, 16.0, 8.0] {
        let mut tablet = Overwritten {
            live: LIVE,
            runs: vec![1.0],
            written: 0.0,
            experience: Experience::default(),
        };
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
        assert!(written < 9.0 && worst < 1.3, "{curve}");
    }
    println!("{curve}");
}
