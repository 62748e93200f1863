//! The test pipeline: what must hold before a commit, cheapest first.
//!
//! A failed step does not stop the later ones, so that one run shows everything that is wrong; only a binary that does
//! not build makes the steps that need it fail at once. What later steps build is built beside the tests ([`Ahead`]), so the time of
//! a step is not what it would take by itself.

use crate::ahead::Ahead;
use crate::shell::{self, Run, cargo};
use crate::stores::{self, Service};
use crate::tally::Tally;
use crate::{bench, bench_engine, clients, crash, fuzz, hdfs, server, soak, tidy};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Rounds of the crash test that every run does; `cargo xtask crash` does many.
const CRASH_SMOKE_ROUNDS: u32 = 5;

/// Rounds of the takeover test that every run does; `cargo xtask zombie` does many.
const ZOMBIE_SMOKE_ROUNDS: u32 = 4;

/// Seeds of the simulation that every run does: some twenty seconds. What goes wrong in one life of a thousand is not found by sixty.
const SIM_SMOKE_SEEDS: &str = "300";

/// The feature of the simulator with which it can plant bugs.
const PLANTED_BUGS: &str = "planted-bugs";

/// The steps so far.
struct Report {
    tally: Tally,
    lines: Vec<String>,
}

impl Report {
    fn new() -> Report {
        Report {
            tally: Tally::default(),
            lines: Vec::new(),
        }
    }

    /// Runs a step; an error counts as a failure of the step.
    fn step(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) -> bool {
        println!("\n=== {name}");
        let start = Instant::now();
        let tally = step().unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            Tally::one(false)
        });
        let tally = match tally == Tally::default() {
            true => {
                eprintln!("{name}: nothing was checked");
                Tally::one(false)
            }
            false => tally,
        };
        let seconds = start.elapsed().as_secs_f64();
        self.lines.push(format!(
            "{:<22} {:>6} passed {:>4} failed {seconds:>8.1} s",
            name, tally.passed, tally.failed
        ));
        self.tally.add(tally);
        tally.failed == 0
    }

    /// Says in the summary what this machine could not do: what is not run has not passed.
    fn leave_out(&mut self, name: &str, why: &str) {
        self.lines.push(format!("{name:<22}    left out: {why}"));
    }

    fn finish(self) -> bool {
        println!("\n=== summary");
        for line in &self.lines {
            println!("{line}");
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        self.tally.failed == 0 && self.tally.passed > 0
    }
}

/// Only the cargo tests.
pub fn quick() -> Result<bool> {
    let mut report = Report::new();
    cargo_tests(&mut report);
    Ok(report.finish())
}

/// Everything.
pub fn full() -> Result<bool> {
    let mut report = Report::new();
    report.step("format", || one(cargo(["fmt", "--all", "--check"])));
    report.step("tidy", || Ok(Tally::one(tidy::run()?)));
    let ahead = Ahead::begin(built_ahead());
    report.step("clippy", || {
        one(cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
    cargo_tests(&mut report);
    report.step("fuzz targets", fuzz::smoke);
    report.step("S3", || stores::conformance(Service::S3));
    report.step("Google's store", || stores::conformance(Service::Gcs));
    // Few machines without Node.js; but the rest does not ask for it.
    if Service::Azure.available() {
        report.step("Azure", || stores::conformance(Service::Azure));
    } else {
        report.leave_out("Azure", "no Node.js");
    }
    // Half a minute; but Maven and a JVM are more than the rest asks of a machine.
    if hdfs::available() {
        report.step("HDFS", hdfs::conformance);
    } else {
        report.leave_out("HDFS", "no Maven or no JVM");
    }
    report.step("simulation", sim_smoke);
    report.step("planted bugs", planted);
    let built = report.step("release build", || {
        // No compiler beside the real processes, whose memory and time are looked at.
        ahead.end();
        one(server::building())
    });
    if built {
        report.step("kill -9", || Ok(Tally::one(crash::run(CRASH_SMOKE_ROUNDS)?)));
        report.step("takeover", || {
            Ok(Tally::one(stores::zombie(Service::S3, ZOMBIE_SMOKE_ROUNDS)?))
        });
        report.step("soak", soak::smoke);
        report.step("Go client", clients::go_suite);
        report.step("Python client", clients::python_suite);
        report.step("benchmark", bench::smoke);
        report.step("instruction counts", || bench_engine::counts(false));
    } else {
        report.leave_out("real processes", "no release build");
    }
    Ok(report.finish())
}

/// What the steps from the simulation on ask for, in their order.
fn built_ahead() -> Vec<Run> {
    vec![
        cargo(["build", "--profile", "sim", "--package", "stele-sim"]).args(["--features", PLANTED_BUGS]),
        server::building(),
        bench::building(),
        bench_engine::building(),
    ]
}

fn one(command: Run) -> Result<Tally> {
    Ok(Tally::one(command.succeeds()?))
}

/// The variable that names a file where tests say what this machine does not let them do: what they print is not shown when
/// they pass.
const LEFT_OUT: &str = "STELE_TEST_LEFT_OUT";

fn left_out_file() -> PathBuf {
    shell::target_dir().join("left-out.txt")
}

fn cargo_tests(report: &mut Report) {
    report.step("cargo test", cargo_test);
    for line in fs::read_to_string(left_out_file()).unwrap_or_default().lines() {
        let (name, why) = line.split_once(": ").unwrap_or((line, "by the test"));
        report.leave_out(name, why);
    }
}

fn cargo_test() -> Result<Tally> {
    let mut tally = Tally::default();
    let left_out = left_out_file();
    fs::create_dir_all(shell::target_dir()).context("making the target folder")?;
    fs::write(&left_out, "").with_context(|| format!("emptying {}", left_out.display()))?;
    let tests = cargo(["test", "--workspace", "--no-fail-fast"]).env(LEFT_OUT, &left_out);
    let success = tests.lines(|line| {
        // Thousands of lines of `… ok` hide the one that matters.
        if !line.ends_with("... ok") && !line.is_empty() {
            println!("{line}");
        }
        tally.cargo_line(line);
    })?;
    Ok(tally.with_exit(success))
}

/// The simulator with these arguments.
pub fn sim_command(arguments: &[String]) -> Run {
    cargo(["run", "--quiet", "--profile", "sim", "--package", "stele-sim", "--"]).args(arguments)
}

/// One check: how many seeds failed is among what it prints, and "seed 57 failed" is not 57 failures.
fn sim_smoke() -> Result<Tally> {
    one(sim_with_bugs(&["run", "--seeds", SIM_SMOKE_SEEDS]))
}

/// Whether the simulation would notice: each deliberate bug must be found.
fn planted() -> Result<Tally> {
    one(sim_with_bugs(&["planted"]))
}

/// The simulator that can plant bugs, and does so only when told to: one build for both steps.
fn sim_with_bugs(arguments: &[&str]) -> Run {
    let run = cargo(["run", "--quiet", "--profile", "sim", "--package", "stele-sim"]);
    run.args(["--features", PLANTED_BUGS, "--"]).args(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_and_does_not_pass() {
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
        assert!(!report.finish());
    }
}
