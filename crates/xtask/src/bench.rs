//! Runs `stele-bench`: suites against Stele and its rivals, and a short smoke test.
//!
//! The smoke test proves two things with a real server: that an honest one passes, and that one which drops rows, or
//! answers stale values, does not. A benchmark that cannot fail measures nothing.

use crate::rival::{Request, Rival, Running};
use crate::server::{self, Scratch, Server, Start};
use crate::shell::{Run, cargo, target_dir};
use crate::tally::Tally;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use std::path::PathBuf;

/// The smoke test: a load, sequential and random reads, and a check.
const SMOKE: [&str; 3] = ["purdue-2008", "--only", "B14"];

/// Memory given to Stele, next to HBase's heap of 8 GB.
const STELE_MEMORY: &str = "memory=4GiB";

/// Suites against rivals.
#[derive(clap::Args)]
pub struct Arguments {
    /// Names of suites; all of them when absent.
    suites: Vec<String>,
    /// The measured servers; the first is the one that the others are compared with.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stele,hbase,emulator")]
    against: Vec<Rival>,
    /// `quick`, or a factor of the documents' own sizes.
    #[arg(long, default_value = "quick")]
    scale: String,
    /// Where each suite's bundle goes.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A setting of one of them, such as `hbase:hsync=true` or `stele:durability=flush`; may be repeated.
    #[arg(long = "set", value_name = "RIVAL:KEY=VALUE")]
    settings: Vec<String>,
    /// Further arguments of `stele-bench run`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Starts the measured servers, runs the suites one after the other, and stops the servers it started.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let program = build()?;
    let out = arguments.out.clone().unwrap_or_else(|| target_dir().join("bench"));
    let suites = if arguments.suites.is_empty() {
        names(&program)?
    } else {
        arguments.suites.clone()
    };
    let mut rivals = Vec::new();
    for (rival, request) in &requests(arguments)? {
        rivals.push(Running::start(*rival, request)?);
    }
    let urls: Vec<&str> = rivals.iter().map(Running::url).collect();
    let mut passed = true;
    for suite in &suites {
        passed &= Run::new(&program)
            .args(["run", suite, "--scale", &arguments.scale])
            .args(["--against", &urls.join(","), "--out"])
            .args([out.join(suite)])
            .args(&arguments.arguments)
            .succeeds()?;
    }
    rivals.into_iter().try_for_each(Running::stop)?;
    Ok(passed)
}

/// The settings of each server: small enough that all fit on one machine, unless the caller sets others.
fn requests(arguments: &Arguments) -> Result<Vec<(Rival, Request)>> {
    let mut requests = Vec::new();
    for rival in &arguments.against {
        let settings = match rival {
            Rival::Stele => vec![STELE_MEMORY.to_owned()],
            Rival::Hbase | Rival::Emulator => Vec::new(),
        };
        requests.push((
            *rival,
            Request {
                settings,
                conf: None,
                fresh: true,
            },
        ));
    }
    for setting in &arguments.settings {
        let (name, setting) = setting.split_once(':').context("--set takes RIVAL:KEY=VALUE")?;
        let rival = Rival::from_str(name, true).map_err(anyhow::Error::msg)?;
        let (_, request) = requests
            .iter_mut()
            .find(|(known, _)| *known == rival)
            .with_context(|| format!("--set {name}:{setting}: {name} is not measured"))?;
        let key = setting.split('=').next().unwrap_or_default();
        request.settings.retain(|had| had.split('=').next() != Some(key));
        request.settings.push(setting.to_owned());
    }
    Ok(requests)
}

fn names(program: &PathBuf) -> Result<Vec<String>> {
    let listed = Run::new(program).args(["list"]).output()?;
    let heads = listed.lines().filter(|line| !line.starts_with(' '));
    Ok(heads
        .filter_map(|line| line.split(':').next())
        .map(str::to_owned)
        .collect())
}

/// Builds an example of the bench, and returns its program.
pub fn build_example(name: &str) -> Result<PathBuf> {
    cargo(["build", "--release", "--package", "stele-bench", "--example", name]).check()?;
    Ok(example(name))
}

/// The program of an example that is built.
pub fn example(name: &str) -> PathBuf {
    target_dir().join("release/examples").join(name)
}

/// The command that builds the program.
pub fn building() -> Run {
    cargo(["build", "--release", "--package", "stele-bench"])
}

/// Builds the program.
pub fn build() -> Result<PathBuf> {
    building().check()?;
    Ok(target_dir().join("release/stele-bench"))
}

/// An honest server passes, liars fail, the bundle verifies.
pub fn smoke() -> Result<Tally> {
    server::build()?;
    let program = build()?;
    let scratch = Scratch::new("bench")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &[],
    })?;
    let url = format!("bigtable://{}/bench", server.address());
    let mut tally = Tally::default();
    for (lie, passes) in [("", true), ("?lie=drop:9973", false), ("?lie=stale:50", false)] {
        // Stale answers need a workload that overwrites the rows it reads.
        let suite = if lie.contains("stale") {
            ["ycsb", "--only", "workloads"]
        } else {
            SMOKE
        };
        let name = if lie.is_empty() {
            "honest"
        } else {
            lie.trim_start_matches("?lie=")
        };
        let out = scratch.join(&name.replace(':', "-"));
        let passed = Run::new(&program)
            .args(["run"])
            .args(suite)
            .args([
                "--warm",
                "0",
                "--no-witness",
                "--against",
                &format!("{url}{lie}"),
                "--out",
            ])
            .args([&out])
            .succeeds()?;
        println!("{name}: the run {}", if passed { "passed" } else { "failed" });
        tally.add(Tally::one(passed == passes));
        tally.add(Tally::one(Run::new(&program).args(["verify"]).args([&out]).succeeds()?));
    }
    ensure!(out_has_report(&scratch), "the bundle has no report");
    scratch.passed();
    Ok(tally)
}

fn out_has_report(scratch: &Scratch) -> bool {
    scratch.join("honest/report.html").exists()
}
