//! Builds the workspace's tests once, and makes a job of each test program.
//!
//! Cargo runs test programs one after the other, although many of them wait for disks and timers. Here as many run as
//! there are processors ([`jobs`](crate::jobs)), the slowest first. A program runs in the folder of its package, as it
//! does under cargo.
//!
//! Everything is built with one set of features ([`FEATURES`]). So the tests, the server that other steps start, and
//! the simulator that can plant bugs share one build. The same build has clippy's findings ([`lints`]).

mod binaries;
mod changes;
pub mod compiler;
mod lints;

use crate::jobs::{self, Job};
use crate::shell::{self, Run, cargo};
use crate::tally::Tally;
use crate::tidy;
use anyhow::{Context, Result, ensure};
use binaries::Binary;
use lints::Lints;
use std::fs;
use std::path::{Path, PathBuf};

/// The simulator can plant bugs, and does so only when told to.
const FEATURES: [&str; 2] = ["--features", "stele-sim/planted-bugs"];

/// The variable that names a file where tests note checks that this machine cannot do. A test that passes shows nothing.
const LEFT_OUT: &str = "STELE_TEST_LEFT_OUT";

/// Programs that take longest, in order. They start first, so that no processor is idle while the last one runs.
const SLOWEST: [&str; 7] = [
    "server::all",
    "sim::all",
    "tabletserver",
    "tablet",
    "bench",
    "storage",
    "filter",
];

/// Tests that only `--all` runs: they press real servers for minutes, and quicker tests find the same kind of bug.
const SLOW: [(&str, &str, &str); 3] = [
    (
        "server::all",
        "large_values_concurrently::of_256_mib",
        "`of_64_mib` holds a smaller budget to the same bound",
    ),
    (
        "server::all",
        "hostile_rows::large_writes_of_writes_that_read_do_not_add_up",
        "`writes_that_read_a_large_row_do_not_take_it_whole` has one such write",
    ),
    (
        "server::all",
        "hostile_rows::reads_of_many_keys_and_of_large_patterns_do_not_add_up",
        "`no_request_takes_more_memory_than_there_is` has one such read",
    ),
];

/// Packages outside the database, whose tests only the benchmark's own files can break.
const BENCHMARK: [&str; 2] = ["bench", "wire"];
/// Their own files, those of crates they depend on, and those that choose other crates' versions and features.
const BENCHMARK_FILES: [&str; 6] = [
    "crates/bench",
    "crates/wire",
    "crates/hbaseclient",
    "crates/xtask/src/rival",
    "Cargo.toml",
    "Cargo.lock",
];

/// The test programs of a run.
pub struct Tests {
    binaries: Vec<Binary>,
    lints: Lints,
    left_out: Vec<(String, String)>,
}

impl Tests {
    /// Builds all test programs, and the programs that tests and later steps start.
    pub fn build() -> Result<Tests> {
        fs::write(left_out_file(), "").with_context(|| format!("emptying {}", left_out_file().display()))?;
        let (mut binaries, lints) = built()?;
        binaries.sort_by_key(|binary| {
            let place = SLOWEST.iter().position(|name| *name == binary.name);
            (place.unwrap_or(SLOWEST.len()), binary.name.clone())
        });
        Ok(Tests {
            binaries,
            lints,
            left_out: Vec::new(),
        })
    }

    /// Whether clippy had nothing to say about the workspace.
    pub fn are_clean(&self) -> bool {
        self.lints.count() == 0
    }

    /// Without the tests that everyday runs leave out.
    pub fn everyday(mut self) -> Tests {
        for (name, test, why) in SLOW {
            if let Some(binary) = self.binaries.iter_mut().find(|binary| binary.name == name) {
                binary.skipped.push(test.to_owned());
                self.left_out.push((test.to_owned(), why.to_owned()));
            }
        }
        // Where git does not know the changed files, all tests run.
        if changes::since_main(&BENCHMARK_FILES) == Some(false) {
            self.binaries
                .retain(|binary| !BENCHMARK.contains(&binary.package.as_str()));
            let of = |package: &str| (format!("tests of {package}"), "its files are those of main".to_owned());
            self.left_out.extend(BENCHMARK.map(of));
        }
        self
    }

    /// A job for each program, the slowest first.
    pub fn jobs(&mut self) -> Vec<Job> {
        let left_out = left_out_file();
        let binaries = std::mem::take(&mut self.binaries);
        binaries
            .into_iter()
            .map(|binary| binary.job(&[(LEFT_OUT, &left_out)]))
            .collect()
    }

    /// The checks that did not run, and why: left out before, or by the tests themselves.
    pub fn left_out(self) -> Vec<(String, String)> {
        let noted = fs::read_to_string(left_out_file()).unwrap_or_default();
        let noted = noted.lines().map(|line| {
            let (name, why) = line.split_once(": ").unwrap_or((line, "by the test"));
            (name.to_owned(), why.to_owned())
        });
        self.left_out.into_iter().chain(noted).collect()
    }
}

/// Runs the tests of one program whose names contain `only`, with further variables.
pub fn run_one(name: &str, only: Option<&str>, environment: &[(&str, &Path)]) -> Result<Tally> {
    let (binaries, _) = built()?;
    let binary = binaries.into_iter().find(|binary| binary.name == name);
    let mut binary = binary.with_context(|| format!("there is no test program {name}"))?;
    binary.only = only.map(str::to_owned);
    let mut tally = Tally::default();
    for done in jobs::run(vec![binary.job(environment)])? {
        tally.add(done.tally);
    }
    Ok(tally)
}

fn built() -> Result<(Vec<Binary>, Lints)> {
    fs::create_dir_all(shell::target_dir()).context("making the target folder")?;
    let (mut binaries, mut lints) = (Vec::new(), Lints::default());
    let success = lints::with_clippy(command())?
        .args(["--all-targets", "--no-run", "--message-format=json"])
        .lines(|line| {
            lints.take(line);
            binaries.extend(binaries::from_message(line));
        })?;
    ensure!(success, "the tests do not build");
    Ok((binaries, lints))
}

/// `cargo test` over everything that is built for tests.
fn command() -> Run {
    cargo(["test", "--workspace"]).args(FEATURES)
}

fn left_out_file() -> PathBuf {
    shell::target_dir().join("left-out.txt")
}

/// The tests in comments, if there are any: cargo takes a minute to find that there is none.
pub fn doc_tests() -> Result<Option<Tally>> {
    if !tidy::has_doc_tests()? {
        return Ok(None);
    }
    let mut tally = Tally::default();
    let success = command().args(["--doc", "--no-fail-fast"]).lines(|line| {
        if !line.ends_with("... ok") && !line.is_empty() {
            println!("{line}");
        }
        tally.cargo_line(line);
    })?;
    Ok(Some(tally.with_exit(success)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    /// The crates of the workspace that a crate depends on.
    fn dependencies(package: &str) -> Vec<String> {
        let manifest = fs::read_to_string(root().join("crates").join(package).join("Cargo.toml")).unwrap();
        let names = manifest.lines().filter_map(|line| line.strip_prefix("stele-"));
        let names = names.map(|rest| rest.split(['.', ' ']).next().unwrap().to_owned());
        names.collect()
    }

    #[test]
    fn the_benchmark_is_tested_when_a_crate_that_it_depends_on_changes() {
        let mut left: Vec<String> = BENCHMARK.map(str::to_owned).to_vec();
        let mut found = Vec::new();
        while let Some(package) = left.pop() {
            left.extend(dependencies(&package));
            found.push(format!("crates/{package}"));
        }
        assert!(found.len() > BENCHMARK.len());
        for folder in found {
            assert!(BENCHMARK_FILES.contains(&folder.as_str()), "{folder} is missing");
        }
    }
}
