//! Runs unmodified HBase clients against a server of HBase's protocol.
//!
//! `tests/clients/java-hbase` is a program of labelled cases; it prints its *transcript*, one line per observation. The
//! expectation is the transcript of a real HBase, one file for each area in `expected/`. This module starts the servers,
//! runs the program, and compares.
//!
//! * Without options: Stele, against the expectation.
//! * `--record`: the real HBase of `cargo xtask rival`, into the expectation.
//! * `--tools`: HBase's own load programs ([`tools`]) instead of the cases.
//! * `--gateways`: HBase's shell and gateways, and clients of other versions ([`gateways`]), instead of the cases.
//! * `--measure`: PerformanceEvaluation against Stele and a real HBase, with their CPU time ([`measure`]).
//! * `--first-get`: the time from the start of Stele and of a real HBase to the first get ([`first_get`]).
//! * `--latency`: gets through one connection, alone and while the same connection scans a table ([`latency`]).
//! * `--semantics`: HBase's and Google's client on the same tables, by pytest.
//! * `--halves`: a table that both official clients write, and split, reads the same through both ([`halves`]).
//! * `--replication`: a real HBase ships the log of a table to Stele, and both must have the same cells.
//! * `--conformance`: HBase's own test classes ([`conformance`]).
//! * `--bulk-load`: HBase's tool loads files into Stele and a real HBase, and both must have the same cells ([`bulk_load`]).
//! * `--migration`: a table of a real HBase is migrated to Stele while users write to it ([`migration`]).
//! * `--random`: random operations on tables of Stele and of a real HBase, which must observe the same ([`random`]).

mod bulk_load;
mod conformance;
mod differences;
pub mod evaluation;
mod first_get;
mod gateways;
mod halves;
mod latency;
mod measure;
mod migration;
mod random;
mod reasons;
pub mod tools;
mod transcript;

use crate::rival::{self, Request, Rival};
use crate::server::{self, Scratch, Server, Start, free_address};
use crate::shell::{Run, root, target_dir};
use crate::tally::Tally;
use anyhow::{Context, Result, ensure};
use differences::Differences;
use regex::Regex;
use std::fs::File;
use std::path::PathBuf;
use transcript::{Expected, Transcript};

/// The options of `cargo xtask hbase`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only cases whose `area.case` matches this regular expression; for tools and classes, those whose name does.
    #[arg(long, value_name = "REGEX", default_value = "")]
    only: Regex,
    /// The server: `stele` (started here), `hbase` (that of `cargo xtask rival`), or HOST:PORT of a running one. For
    /// `--conformance` also several of those, with commas in between.
    #[arg(long, value_name = "SERVER", default_value = "stele")]
    against: String,
    /// Writes the transcript of the real HBase into the expectation.
    #[arg(long, conflicts_with_all = ["against", "tools"])]
    record: bool,
    /// Runs PerformanceEvaluation and LoadTestTool instead.
    #[arg(long)]
    tools: bool,
    /// Runs HBase's shell, its Thrift and REST gateways, and clients of other versions instead.
    #[arg(long, conflicts_with_all = ["record", "tools"])]
    gateways: bool,
    /// Runs HBase's and Google's client on the same tables instead; the server is started here.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "against"])]
    semantics: bool,
    /// Replicates a table from the HBase of `cargo xtask rival`, which is started, instead.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics"])]
    replication: bool,
    /// Measures Stele and the HBase of `cargo xtask rival` with PerformanceEvaluation instead; both are started afresh.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "against"])]
    measure: bool,
    /// Runs HBase's own test classes instead; they drop ALL tables of the server.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication"])]
    conformance: bool,
    /// Migrates a table of the HBase of `cargo xtask rival`, which is started, instead.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "against"])]
    migration: bool,
    /// Loads files with HBase's own tool into Stele and the HBase of `cargo xtask rival`; both are started.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "against", "migration"])]
    bulk_load: bool,
    /// Writes a table through both APIs while it is split, and compares the digests of each client; the server is started here.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "against", "migration"])]
    halves: bool,
    /// Times the start of Stele and of the HBase of `cargo xtask rival` until a client's first get; both are started afresh.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "against", "migration"])]
    first_get: bool,
    /// Times gets through one connection instead, alone and while the same connection scans a table.
    #[arg(long, conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "migration", "halves"])]
    latency: bool,
    /// Applies random operations of this many seeds to the server and to the HBase of `cargo xtask rival`, which is started.
    #[arg(long, value_name = "SEEDS", conflicts_with_all = ["record", "tools", "gateways", "semantics", "replication", "migration", "halves"])]
    random: Option<u32>,
    /// The first seed of `--random`.
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "random")]
    seed: u64,
    /// Rows of the table that is migrated, written by halves, or scanned for `--latency`.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u32,
    /// A setting of the HBase of `cargo xtask rival`, such as `port=21000`; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", default_value = "heap=2g")]
    settings: Vec<String>,
    /// Starts the server as the tests build it (`cargo build -p stele`), with debug assertions.
    #[arg(long)]
    debug: bool,
    /// The ZooKeeper, or its facade, of a running server: HOST:PORT. Of several servers, in their order.
    #[arg(long, value_name = "HOST:PORT", requires = "against")]
    quorum: Option<String>,
}

/// A server that is there until this value is dropped, or longer when it was there before.
struct Target {
    address: String,
    /// Where it is looked up as if in ZooKeeper.
    quorum: Option<String>,
    started: Option<(Server, Scratch)>,
}

impl Target {
    fn of(name: &str, arguments: &Arguments) -> Result<Target> {
        match name {
            "stele" => Target::stele(),
            "hbase" => Target::hbase(&arguments.settings),
            address => Ok(Target::running(address, arguments.quorum.as_deref())),
        }
    }

    fn running(address: &str, quorum: Option<&str>) -> Target {
        Target {
            address: address.to_owned(),
            quorum: quorum.map(str::to_owned),
            started: None,
        }
    }

    fn stele() -> Result<Target> {
        server::build()?;
        Target::start("hbase")
    }

    /// Starts a server that is built.
    fn start(name: &str) -> Result<Target> {
        let scratch = Scratch::new(name)?;
        let (data, log) = (scratch.join("data"), scratch.join("server.log"));
        let (address, quorum) = (free_address()?, free_address()?);
        let server = Server::start(&Start {
            data: &data,
            log: &log,
            arguments: &["--hbase", &address, "--zookeeper-facade", &quorum],
        })?;
        Ok(Target {
            address,
            quorum: Some(quorum),
            started: Some((server, scratch)),
        })
    }

    /// The real one runs on afterwards: its start takes half a minute.
    fn hbase(settings: &[String]) -> Result<Target> {
        let request = Request {
            settings: settings.to_vec(),
            conf: None,
            fresh: false,
        };
        let url = rival::started(Rival::Hbase, &request)?;
        let address = url.trim_start_matches("hbase://").split('?').next();
        Ok(Target {
            address: address.context("HBase has no address")?.to_owned(),
            quorum: None,
            started: None,
        })
    }

    fn quorum(&self) -> Result<&str> {
        self.quorum.as_deref().context("this needs --quorum of the server")
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
    if arguments.debug {
        server::choose(server::Build::Tests);
    }
    if arguments.measure {
        return measure::run();
    }
    if arguments.first_get {
        return first_get::run();
    }
    if arguments.conformance {
        return conformance(arguments);
    }
    if arguments.bulk_load {
        return bulk_load::run(&arguments.settings);
    }
    let name = if arguments.record { "hbase" } else { &arguments.against };
    let target = Target::of(name, arguments)?;
    let passed = if arguments.tools {
        tools::run(&target.address, &arguments.only)?
    } else if arguments.gateways {
        gateways::run(&target.address, target.quorum()?, &arguments.only)?
    } else if arguments.semantics {
        semantics(&target)?
    } else if arguments.halves {
        halves::run(&target, arguments.rows)?
    } else if arguments.latency {
        latency::run(&target.address, arguments.rows)?
    } else if let Some(seeds) = arguments.random {
        random::run(&Target::hbase(&arguments.settings)?, &target, seeds, arguments.seed)?
    } else if arguments.replication {
        replication(&Target::hbase(&arguments.settings)?, &target)?
    } else if arguments.migration {
        migration::run(&Target::hbase(&arguments.settings)?, &target, arguments.rows)?
    } else {
        cases(&target.address, arguments)?
    };
    Ok(target.end(passed)? && passed)
}

/// Runs HBase's own tests on several servers: they wait for most of their time.
fn conformance(arguments: &Arguments) -> Result<bool> {
    let targets = match arguments.against.as_str() {
        "stele" => {
            server::build()?;
            let start = |n| Target::start(&format!("hbase-conformance-{n}"));
            (0..conformance::SERVERS).map(start).collect::<Result<Vec<_>>>()?
        }
        addresses => {
            let quorums = arguments.quorum.iter().flat_map(|quorums| quorums.split(','));
            let pairs = addresses.split(',').zip(quorums);
            pairs
                .map(|(address, quorum)| Target::running(address, Some(quorum)))
                .collect()
        }
    };
    let servers = targets.iter().map(|target| Ok((&*target.address, target.quorum()?)));
    let servers: Vec<(&str, &str)> = servers.collect::<Result<_>>()?;
    let passed = conformance::run(&servers, &arguments.only)?;
    targets
        .into_iter()
        .try_fold(passed, |passed, target| Ok(target.end(passed)? && passed))
}

/// Runs `tests/clients/semantics`.
fn semantics(target: &Target) -> Result<bool> {
    let (server, _) = target.started.as_ref().context("the server is started here")?;
    let jars = format!("{}/*", crate::tools::hbase_cases()?.display());
    let mut tally = Tally::default();
    let succeeded = Run::new(crate::tools::python()?)
        .args(["-B", "-m", "pytest", "-q", "--disable-warnings", "--tb=short"])
        .dir(root().join("tests/clients/semantics"))
        .env("STELE_ADDRESS", server.address())
        .env("STELE_HBASE", &target.address)
        .env("STELE_HBASE_JARS", jars)
        .lines(|line| {
            println!("{line}");
            tally.summary_line(line);
        })?;
    let tally = tally.with_exit(succeeded);
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0)
}

/// Adds Stele as a peer of a real HBase, and compares the cells of both.
fn replication(source: &Target, target: &Target) -> Result<bool> {
    let quorum = target.quorum()?;
    let passed = tools::small_program("512m", "Replicate")?
        .args([source.address.as_str(), target.address.as_str(), quorum])
        .succeeds()?;
    println!("{} passed, {} failed", u8::from(passed), u8::from(!passed));
    Ok(passed)
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
    // The client prints traces of failures, and most of them are wanted by a case.
    let log = target_dir().join("hbase-clients.log");
    let errors = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    println!("the client's log: {}", log.display());
    let mut command = tools::small_program("1g", "Transcript")?
        .errors_to(errors)
        .args([address]);
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
