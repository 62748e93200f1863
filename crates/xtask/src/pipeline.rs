//! The test pipeline: what must hold before a commit, cheapest first.
//!
//! A failed step does not stop the later ones, so that one run shows everything that is wrong; only a binary that does
//! not build makes the steps that need it fail at once.

use crate::shell::{self, Run, cargo};
use crate::stores::{self, Service};
use crate::tally::Tally;
use crate::{bench, bench_engine, clients, crash, fuzz, hdfs, soak, tidy};
use anyhow::Result;
use std::time::Instant;

/// Rounds of the crash test that every run does; `cargo xtask crash` does many.
const CRASH_SMOKE_ROUNDS: u32 = 5;

/// Rounds of the takeover test that every run does; `cargo xtask zombie` does many.
const ZOMBIE_SMOKE_ROUNDS: u32 = 4;

/// Seeds of the simulation that every run does.
const SIM_SMOKE_SEEDS: &str = "60";

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
        let seconds = start.elapsed().as_secs_f64();
        self.lines.push(format!(
            "{:<22} {:>6} passed {:>4} failed {seconds:>8.1} s",
            name, tally.passed, tally.failed
        ));
        self.tally.add(tally);
        tally.failed == 0
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
    report.step("cargo test", cargo_test);
    Ok(report.finish())
}

/// Everything.
pub fn full() -> Result<bool> {
    let mut report = Report::new();
    report.step("format", || one(cargo(["fmt", "--all", "--check"])));
    report.step("tidy", || Ok(Tally::one(tidy::run()?)));
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
    report.step("cargo test", cargo_test);
    report.step("fuzz targets", fuzz::smoke);
    report.step("S3", || stores::conformance(Service::S3));
    report.step("Google's store", || stores::conformance(Service::Gcs));
    // Few machines without Node.js; but the rest does not ask for it.
    if Service::Azure.available() {
        report.step("Azure", || stores::conformance(Service::Azure));
    }
    // Half a minute; but Maven and a JVM are more than the rest asks of a machine.
    if hdfs::available() {
        report.step("HDFS", hdfs::conformance);
    }
    report.step("simulation", sim_smoke);
    let built = report.step("release build", || {
        one(cargo(["build", "--release", "--package", "stele"]))
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
    }
    Ok(report.finish())
}

fn one(command: Run) -> Result<Tally> {
    Ok(Tally::one(command.succeeds()?))
}

fn cargo_test() -> Result<Tally> {
    let mut tally = Tally::default();
    let success = cargo(["test", "--workspace", "--no-fail-fast"]).lines(|line| {
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

fn sim_smoke() -> Result<Tally> {
    if !shell::root().join("crates/sim/src/main.rs").exists() {
        println!("the simulator has no binary");
        return Ok(Tally::default());
    }
    let mut tally = Tally::default();
    let arguments = ["run", "--seeds", SIM_SMOKE_SEEDS].map(str::to_owned);
    let success = sim_command(&arguments).lines(|line| {
        println!("{line}");
        tally.summary_line(line);
    })?;
    if tally == Tally::default() {
        return Ok(Tally::one(success));
    }
    Ok(tally.with_exit(success))
}
