//! The test pipeline: the checks that must hold before a commit.
//!
//! | lane | holds |
//! |---|---|
//! | everyday (`test`) | format, tidy, clippy, cargo tests, simulation, kill -9, clients, an S3 server |
//! | everything (`test --all`) | the same, and more seeds, stores, takeovers, loads and benchmarks on release builds |
//!
//! The everyday lane builds once: tests, server and simulator share the `dev` profile and one set of features. Test
//! programs and steps with real processes are jobs that run two at a time on two processors.
//!
//! A failed step does not stop the later ones, so one run shows every fault. Only a build that fails makes the steps
//! that need it fail at the same time.

mod report;
mod step;

use crate::ahead::Ahead;
use crate::cargo_tests::{self, Tests};
use crate::jobs::{self, Done, Job};
use crate::shell::{Run, cargo};
use crate::stores::{self, Service};
use crate::tally::Tally;
use crate::{
    backups, bench, bench_engine, clients, console, crash, etcd, fuzz, google, hdfs, kms, package, server, soak, tidy,
};
use anyhow::Result;
use report::Report;
pub use step::Step;

/// Rounds of the takeover test of a full run; `cargo xtask zombie` does many.
const ZOMBIE_SMOKE_ROUNDS: u32 = 4;

/// Seeds of the simulation of a full run: some twenty seconds. A bug that one life in a thousand shows needs more.
const SIM_SMOKE_SEEDS: &str = "300";

/// The feature of the simulator with which it can plant bugs.
const PLANTED_BUGS: &str = "planted-bugs";

/// Only the cargo tests.
pub fn quick() -> Result<bool> {
    let mut report = Report::new();
    built(&mut report, Tests::everyday, Vec::new());
    Ok(report.finish())
}

/// The everyday lane.
pub fn everyday() -> Result<bool> {
    let mut report = Report::new();
    lints(&mut report);
    built(&mut report, Tests::everyday, Step::jobs());
    Ok(report.finish())
}

/// Everything.
pub fn all() -> Result<bool> {
    let mut report = Report::new();
    let ahead = Ahead::begin(built_ahead());
    lints(&mut report);
    built(&mut report, |tests| tests, Vec::new());
    stores_and_decoders(&mut report);
    report.step("simulation", || one(simulator(&["run", "--seeds", SIM_SMOKE_SEEDS])));
    report.step("simulation on HDFS", || {
        one(simulator(&["run", "--hdfs", "--seeds", SIM_SMOKE_SEEDS]))
    });
    report.step("simulation of clusters", || {
        one(simulator(&["cluster", "--seeds", SIM_SMOKE_SEEDS]))
    });
    report.step("simulation of clusters on HDFS", || {
        one(simulator(&["cluster", "--hdfs", "--seeds", SIM_SMOKE_SEEDS]))
    });
    report.step("planted bugs", || one(simulator(&["planted"])));
    let built = report.step("release build", || {
        // The steps below measure memory and time of real processes, so no compiler may run concurrently.
        ahead.end();
        one(server::building())
    });
    if built {
        real_processes(&mut report);
    } else {
        report.leave_out("real processes", "no release build");
    }
    Ok(report.finish())
}

/// Checks that run nothing of the product.
fn lints(report: &mut Report) {
    report.step("format", || one(cargo(["fmt", "--all", "--check"])));
    report.step("tidy", || Ok(Tally::one(tidy::run()?)));
}

/// Builds the tests, and runs the chosen ones and further jobs.
fn built(report: &mut Report, choose: impl FnOnce(Tests) -> Tests, steps: Vec<Job>) {
    let mut tests = None;
    report.step("build", || {
        tests = Some(choose(Tests::build()?));
        Ok(Tally::one(true))
    });
    let Some(mut tests) = tests else {
        return report.leave_out("clippy, tests and real processes", "no build");
    };
    report.step("clippy", || Ok(Tally::one(tests.are_clean())));
    let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
    let jobs = tests.jobs().into_iter().chain(steps).collect();
    report.part("tests and steps", || {
        let done = jobs::run(jobs)?;
        let (steps, tests): (Vec<Done>, Vec<Done>) = done.into_iter().partition(|done| names.contains(&done.name));
        let mut tally = Tally::default();
        tests.iter().for_each(|done| tally.add(done.tally));
        let mut lines = vec![("cargo test".to_owned(), tally, tests.iter().map(|done| done.time).sum())];
        lines.extend(steps.into_iter().map(|done| (done.name, done.tally, done.time)));
        Ok(lines)
    });
    match cargo_tests::doc_tests() {
        Ok(None) => {}
        other => {
            report.step("doc tests", || Ok(other?.unwrap_or_default()));
        }
    }
    for (name, why) in tests.left_out() {
        report.leave_out(&name, &why);
    }
}

fn stores_and_decoders(report: &mut Report) {
    report.step("fuzz targets", fuzz::smoke);
    report.step("S3", || stores::conformance(Service::S3));
    report.step("Google's store", || stores::conformance(Service::Gcs));
    // Few machines lack Node.js, but no other step needs it.
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
    if etcd::available() {
        report.step("etcd", etcd::conformance);
    } else {
        report.leave_out("etcd", "no etcd and no Debian");
    }
}

/// Steps that start release builds. They measure memory and time, so they run one after the other.
fn real_processes(report: &mut Report) {
    report.step("kill -9", || Ok(Tally::one(crash::run(crash::SMOKE_ROUNDS)?)));
    report.step("takeover", || {
        Ok(Tally::one(stores::zombie(Service::S3, ZOMBIE_SMOKE_ROUNDS)?))
    });
    report.step("snapshots", || Ok(Tally::one(backups::smoke()?)));
    report.step("key management services", kms::check);
    report.step("soak", soak::smoke);
    report.step("Go client", clients::go_suite);
    report.step("Python client", clients::python_suite);
    report.step("Google's integration tests", google::check);
    if package::has_machines() {
        report.step("package on machines", || Ok(Tally::one(package::try_on_machines()?)));
    } else {
        report.leave_out("package on machines", "not root, or no Debian");
    }
    if console::available() {
        report.step("console", || console::check(console::TABLETS));
    } else {
        report.leave_out("console", "no Node.js or no Debian");
    }
    report.step("benchmark", bench::smoke);
    report.step("instruction counts", || bench_engine::counts(false));
}

/// The builds that the steps from the simulation on ask for, in their order.
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

/// The simulator with these arguments.
pub fn sim_command(arguments: &[String]) -> Run {
    cargo(["run", "--quiet", "--profile", "sim", "--package", "stele-sim", "--"]).args(arguments)
}

/// The simulator that can plant bugs, and does so only when told to. It counts as one check: "seed 57 failed" in its
/// output is not 57 failures.
fn simulator(arguments: &[&str]) -> Run {
    let run = cargo(["run", "--quiet", "--profile", "sim", "--package", "stele-sim"]);
    run.args(["--features", PLANTED_BUGS, "--"]).args(arguments)
}
