//! The results of the steps, and the summary at the end.

use crate::tally::Tally;
use anyhow::Result;
use std::time::{Duration, Instant};

/// The steps so far.
pub struct Report {
    tally: Tally,
    lines: Vec<String>,
    begun: Instant,
}

impl Report {
    pub fn new() -> Report {
        Report {
            tally: Tally::default(),
            lines: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// Runs a step; an error counts as a failure of the step.
    pub fn step(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) -> bool {
        println!("\n=== {name}");
        let start = Instant::now();
        let tally = step().unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            Tally::one(false)
        });
        self.add(name, tally, start.elapsed())
    }

    /// Runs several steps together; each result has a name of its own. An error counts as one failure.
    pub fn part(&mut self, name: &str, steps: impl FnOnce() -> Result<Vec<(String, Tally, Duration)>>) {
        println!("\n=== {name}");
        let start = Instant::now();
        match steps() {
            Ok(results) => {
                for (name, tally, time) in results {
                    self.add(&name, tally, time);
                }
                let seconds = start.elapsed().as_secs_f64();
                self.lines.push(format!("{name:<22} together {seconds:>28.1} s"));
            }
            Err(error) => {
                eprintln!("{name}: {error:#}");
                self.add(name, Tally::one(false), start.elapsed());
            }
        }
    }

    /// A step that checked nothing has failed.
    fn add(&mut self, name: &str, tally: Tally, time: Duration) -> bool {
        let tally = match tally.is_empty() {
            true => {
                eprintln!("{name}: nothing was checked");
                Tally { failed: 1, ..tally }
            }
            false => tally,
        };
        let (passed, failed, seconds) = (tally.passed, tally.failed, time.as_secs_f64());
        let skipped = tally.skips();
        self.lines.push(format!(
            "{name:<22} {passed:>6} passed {failed:>4} failed {seconds:>8.1} s{skipped}"
        ));
        self.tally.add(tally);
        tally.failed == 0
    }

    /// Notes in the summary a check that this run or this machine did not do: it has not passed.
    pub fn leave_out(&mut self, name: &str, why: &str) {
        self.lines.push(format!("{name:<22}    left out: {why}"));
    }

    /// Prints the summary; whether everything passed.
    pub fn finish(self) -> bool {
        println!("\n=== summary");
        for line in &self.lines {
            println!("{line}");
        }
        println!("{:<22} {:>37.1} s", "in all", self.begun.elapsed().as_secs_f64());
        if self.tally.skipped > 0 {
            println!("{} skipped by the tests", self.tally.skipped);
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        self.tally.failed == 0 && self.tally.passed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_left_out_is_told_and_does_not_pass() {
        let mut report = Report::new();
        report.leave_out("HDFS", "no Maven or no JVM");
        assert_eq!(report.lines.len(), 1);
        assert!(report.lines[0].contains("left out: no Maven"));
        assert!(!report.finish(), "nothing was run");
    }

    #[test]
    fn a_step_that_checks_nothing_fails() {
        let mut report = Report::new();
        assert!(report.step("something", || Ok(Tally::one(true))));
        assert!(!report.step("nothing", || Ok(Tally::default())));
        let skipped = Tally {
            skipped: 3,
            ..Tally::default()
        };
        assert!(!report.step("nothing but skipped checks", || Ok(skipped)));
        assert!(report.lines[2].ends_with(", 3 skipped"));
        assert!(!report.finish());
    }

    #[test]
    fn each_step_of_a_part_counts() {
        let mut report = Report::new();
        let result = |name: &str, passed| (name.to_owned(), Tally::one(passed), Duration::ZERO);
        report.part("both", || Ok(vec![result("a", true), result("b", false)]));
        assert_eq!((report.tally.passed, report.tally.failed), (1, 1));
        report.part("none", || anyhow::bail!("no place"));
        assert_eq!(report.tally.failed, 2);
    }
}
