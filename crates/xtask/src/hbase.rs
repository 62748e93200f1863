//! Runs unmodified HBase clients against a server of HBase's protocol.
//!
//! `tests/clients/java-hbase` is a program of labelled cases; it prints its *transcript*, one line per observation. The
//! expectation is the transcript of a real HBase, one file for each area in `expected/`. This module starts the servers,
//! runs the program, and compares.
//!
//! * Without options: Stele, against the expectation.
//! * `--record`: the real HBase of `cargo xtask rival`, into the expectation.
//! * `--tools`: HBase's own load programs ([`tools`]) instead of the cases.

mod differences;
mod tools;
mod transcript;

use crate::rival::{self, Request, Rival};
use crate::server::{self, Scratch, Server, Start, free_address};
use crate::shell::{Run, root, target_dir};
use anyhow::{Context, Result, ensure};
use differences::Differences;
use regex::Regex;
use std::fs::File;
use std::path::PathBuf;
use transcript::{Expected, Transcript};

const MAIN: &str = "stele.clients.hbase.Transcript";

/// The options of `cargo xtask hbase`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only cases whose `area.case` matches this regular expression; for tools, those whose name does.
    #[arg(long, value_name = "REGEX", default_value = "")]
    only: Regex,
    /// The server: `stele` (started here), `hbase` (that of `cargo xtask rival`), or HOST:PORT of a running one.
    #[arg(long, value_name = "SERVER", default_value = "stele")]
    against: String,
    /// Writes the transcript of the real HBase into the expectation.
    #[arg(long, conflicts_with_all = ["against", "tools"])]
    record: bool,
    /// Runs PerformanceEvaluation and LoadTestTool instead.
    #[arg(long)]
    tools: bool,
}

/// A server that is there until this value is dropped, or longer when it was there before.
struct Target {
    address: String,
    started: Option<(Server, Scratch)>,
}

impl Target {
    fn of(name: &str) -> Result<Target> {
        match name {
            "stele" => Target::stele(),
            "hbase" => Target::hbase(),
            address => Ok(Target {
                address: address.to_owned(),
                started: None,
            }),
        }
    }

    fn stele() -> Result<Target> {
        server::build()?;
        let scratch = Scratch::new("hbase")?;
        let (data, log) = (scratch.join("data"), scratch.join("server.log"));
        let address = free_address()?;
        let server = Server::start(&Start {
            data: &data,
            log: &log,
            arguments: &["--hbase", &address],
        })?;
        Ok(Target {
            address,
            started: Some((server, scratch)),
        })
    }

    /// The real one runs on afterwards: its start takes half a minute.
    fn hbase() -> Result<Target> {
        let request = Request {
            settings: vec!["heap=2g".to_owned()],
            conf: None,
            fresh: false,
        };
        let url = rival::started(Rival::Hbase, &request)?;
        let address = url.trim_start_matches("hbase://").split('?').next();
        Ok(Target {
            address: address.context("HBase has no address")?.to_owned(),
            started: None,
        })
    }

    /// Ends the server; whether it still ran. Its files stay when something failed.
    fn end(self, passed: bool) -> Result<bool> {
        let Some((mut server, scratch)) = self.started else {
            return Ok(true);
        };
        if let Some(status) = server.process().ended()? {
            eprintln!("the server ended during the run: {status}");
            return Ok(false);
        }
        drop(server);
        if passed {
            scratch.passed();
        }
        Ok(true)
    }
}

/// Whether everything was as expected.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let target = Target::of(if arguments.record { "hbase" } else { &arguments.against })?;
    let passed = if arguments.tools {
        tools::run(&target.address, &arguments.only)?
    } else {
        cases(&target.address, arguments)?
    };
    Ok(target.end(passed)? && passed)
}

fn cases(address: &str, arguments: &Arguments) -> Result<bool> {
    let transcript = observe(address, &arguments.only)?;
    let expected = Expected::new(project().join("expected"));
    if arguments.record {
        let count = expected.write(transcript, &arguments.only)?;
        println!("recorded {count} files in {}", project().join("expected").display());
        return Ok(true);
    }
    let whole = arguments.only.as_str().is_empty();
    let known = Differences::read(&project().join("differences.txt"))?;
    let judged = known.judge(&expected.compare(&transcript, &arguments.only)?, whole);
    print!("{}", judged.report);
    println!("{} passed, {} failed", judged.passed, judged.failed);
    Ok(judged.failed == 0)
}

/// Runs the program.
fn observe(address: &str, only: &Regex) -> Result<Transcript> {
    let jars = crate::tools::hbase_cases()?;
    // The client prints traces of failures, and most of them are wanted by a case.
    let log = target_dir().join("hbase-clients.log");
    let errors = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    println!("the client's log: {}", log.display());
    let class_path = format!("{}/*", jars.display());
    let mut command = Run::new("java")
        .errors_to(errors)
        .args(["-Xmx1g", "-XX:+UseSerialGC", "-cp"])
        .args([class_path.as_str(), MAIN, address]);
    if !only.as_str().is_empty() {
        command = command.args(["--only", only.as_str()]);
    }
    let mut transcript = Transcript::default();
    let mut bad = Vec::new();
    let succeeded = command.lines(|line| {
        if let Err(error) = transcript.take(line) {
            bad.push(error.to_string());
        }
    })?;
    ensure!(bad.is_empty(), "the program printed other lines:\n{}", bad.join("\n"));
    ensure!(succeeded, "the program failed; see {}", log.display());
    ensure!(!transcript.is_empty(), "no case is called {only}");
    Ok(transcript)
}

fn project() -> PathBuf {
    root().join("tests/clients/java-hbase")
}
