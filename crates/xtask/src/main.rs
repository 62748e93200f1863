//! `cargo xtask` runs every task of developers and of CI.
//!
//! * `test` is the one command before a commit, and `ci` another name for it. It ends with `N passed, N failed`.
//! * `test --all` is everything there is, for nights and releases.
//! * Long runs (`crash`, `zombie`, `soak`, `fuzz`, `miri`, `measure`, `debian`, `hbase`), and `package`, are commands of their own.
//! * `rival` leaves servers running on purpose; nothing else does.
//! * Tools that a task needs and a machine may lack are installed from their registries into `target/tools`.
//!
//! This program is not part of the database: it uses processes, files and the clock directly.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "runs tools; the determinism seam is for the database"
)]

mod ahead;
mod backups;
mod bench;
mod bench_engine;
mod cargo_tests;
mod choices;
mod clients;
mod cluster;
mod console;
mod corpus;
mod crash;
mod credentials;
mod debian;
mod deny;
mod descendants;
mod etcd;
mod fuzz;
mod google;
mod hbase;
mod hdfs;
mod hosts;
mod jobs;
mod kms;
mod launch;
mod machines;
mod measure;
mod miri;
mod package;
mod pipeline;
mod proc_stat;
mod registers;
mod remote;
mod rival;
mod server;
mod server_cost;
mod shell;
mod soak;
mod stores;
mod tablets;
mod tally;
mod tidy;
mod tools;
mod writers;
mod zombie;

use anyhow::Result;
use clap::{Parser, Subcommand, value_parser};
use std::process::ExitCode;
use stores::Service;

/// Tasks of the Stele workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that must hold before a commit, in minutes; the last line is `N passed, N failed`.
    #[command(alias = "ci")]
    Test {
        /// Only the cargo tests: no lints, no simulation, no real processes.
        #[arg(long)]
        quick: bool,
        /// Everything there is: fuzz seeds, all stores, takeovers, long loads, benchmarks, more simulation.
        #[arg(long, conflicts_with = "quick")]
        all: bool,
    },
    /// One step of `test` that starts real processes; `test` has built the programs it needs.
    #[command(hide = true)]
    Step { step: pipeline::Step },
    /// Checks rules that compilers do not know: sizes, layers, import cycles, links, language, assertions.
    Tidy(tidy::Arguments),
    /// Formats all code.
    Fmt,
    /// Fuzzes the decoders with libFuzzer.
    Fuzz {
        /// One target; all of them in turn when absent.
        #[arg(long)]
        target: Option<String>,
        /// Seconds for each target.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Runs unsafe code, and code that depends on the order of memory accesses, under Miri.
    Miri {
        /// Interleavings tried of each test.
        #[arg(long, default_value_t = 8)]
        seeds: u32,
    },
    /// Checks licences, sources and known vulnerabilities of dependencies.
    Deny {
        /// Without the list of vulnerabilities, which is fetched from its repository.
        #[arg(long)]
        offline: bool,
    },
    /// Runs suites of `stele-bench` against Stele and its rivals.
    Bench(bench::Arguments),
    /// Proves that `stele-bench` passes an honest server and fails liars.
    BenchSmoke,
    /// Measures the engine by itself, against RocksDB or by counting instructions.
    BenchEngine(bench_engine::Arguments),
    /// Runs the simulator; arguments after `--` are its own.
    Sim {
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Kills the real server with SIGKILL under load, again and again, and proves that no acknowledged write is lost.
    Crash {
        /// How often to kill it.
        #[arg(long, default_value_t = 50, value_parser = value_parser!(u32).range(1..))]
        rounds: u32,
    },
    /// Takes, restores and copies snapshots and backups under load: exact, quick, and without bytes that are there already.
    Backups(backups::Arguments),
    /// Runs the storage suite and the fencing tests on a real S3 server.
    S3(StoreArguments),
    /// Runs the same on a server of the API of Google Cloud Storage.
    Gcs(StoreArguments),
    /// Runs the same on Azurite, the emulator of Azure Blob Storage.
    Azure(StoreArguments),
    /// Runs the storage suite and the fencing tests on a real HDFS, a NameNode and a DataNode.
    Hdfs {
        /// Instead: writes this many rows to a server over HDFS, kills it, and counts them on an empty local disk.
        #[arg(long, value_parser = value_parser!(u64).range(1..))]
        survive: Option<u64>,
        /// Instead: this number of takeovers, as `zombie` does them, on HDFS.
        #[arg(long, conflicts_with = "survive", value_parser = value_parser!(u32).range(1..))]
        zombie: Option<u32>,
        /// Instead: kills one of two DataNodes while a log is written.
        #[arg(long, conflicts_with_all = ["survive", "zombie"])]
        lose: bool,
        /// Instead: has the DataNode lose the ends of log files, whose leases were taken, and an operator give them up.
        #[arg(long, conflicts_with_all = ["survive", "zombie", "lose"])]
        ends: bool,
    },
    /// Runs the coordinator's suite and its failure tests on a real etcd of three members.
    Etcd,
    /// Encrypts data with keys of AWS KMS and of Vault, as moto and Vault's own packages serve them, and moves from one to the other.
    Kms,
    /// Runs a cluster on this machine, or kills nodes of one under load.
    Cluster(cluster::Arguments),
    /// Lets a second server take an S3 prefix over while the first is written to, again and again, and proves that no
    /// acknowledged write is lost.
    Zombie {
        /// How often.
        #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
        rounds: u32,
    },
    /// Loads and presses servers with little memory, and checks size, memory and restart.
    Soak {
        /// Volume in MB (10^6 bytes).
        #[arg(long, default_value_t = 5_000)]
        megabytes: u64,
        /// Memory budgets in MiB, one server for each.
        #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 512])]
        memory_mib: Vec<u64>,
        /// How long each kind of load goes on.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
    },
    /// Makes thousands of tablets and measures starts and idle costs of a server that has them.
    Tablets {
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        count: u32,
    },
    /// Measures Stele, Google's emulator and a server that stores nothing, through the clients that users run.
    Measure(measure::Arguments),
    /// Measures the cost that the server adds to its transport: operations per CPU second of the server, and of a bare
    /// tonic echo in the same run. Arguments after `--` are the measurement's own.
    ServerCost {
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Starts and stops servers to measure Stele against: HBase, Google's emulator; and Stele in the same way.
    Rival {
        #[command(subcommand)]
        task: rival::RivalTask,
    },
    /// Runs unmodified HBase clients against Stele, and compares with the transcript of a real HBase.
    Hbase(hbase::Arguments),
    /// Runs Google's own integration tests of its Go and Java clients against a server under TLS, with a token.
    Google,
    /// Opens every page of the console in a headless Chromium, and leaves screenshots in `target/console`.
    Console {
        /// Tablets that the server has, besides those with a load.
        #[arg(long, default_value_t = 1_000)]
        tablets: u32,
    },
    /// Builds the Debian package with licences and a bill of materials in `target/package`, and starts a server from it.
    Package(package::Arguments),
    /// Fetches the descriptions of Debian's packages for the bench to cut values from, and prints the file's path.
    Corpus,
    /// Imports Debian's package list and compares `cbt` with a plain script over the same file.
    Debian,
}

/// What to do with an object store.
#[derive(clap::Args)]
struct StoreArguments {
    /// Instead: writes this many rows to a server over the store, kills it, and counts them on an empty local disk.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    survive: Option<u64>,
    /// Instead: this number of takeovers, as `zombie` does them, on this store.
    #[arg(long, conflicts_with = "survive", value_parser = value_parser!(u32).range(1..))]
    zombie: Option<u32>,
}

fn main() -> ExitCode {
    if let Some(code) = cargo_tests::compiler::compiled() {
        return code;
    }
    match run(Args::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the task found everything in order; an error means that it could not be carried out.
fn run(task: Task) -> Result<bool> {
    match task {
        Task::Test { quick: true, .. } => pipeline::quick(),
        Task::Test { all: true, .. } => pipeline::all(),
        Task::Test { .. } => pipeline::everyday(),
        Task::Step { step } => step.run(),
        Task::Tidy(arguments) => tidy::task(&arguments),
        Task::Fmt => shell::cargo(["fmt", "--all"]).succeeds(),
        Task::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Task::Miri { seeds } => miri::run(seeds),
        Task::Deny { offline } => deny::run(offline),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::BenchSmoke => bench::smoke().map(|tally| tally.failed == 0 && tally.passed > 0),
        Task::BenchEngine(arguments) => bench_engine::run(&arguments),
        Task::Sim { arguments } => pipeline::sim_command(&arguments).succeeds(),
        Task::Crash { rounds } => crash::run(rounds),
        Task::Backups(arguments) => backups::run(&arguments),
        Task::S3(arguments) => store(Service::S3, &arguments),
        Task::Gcs(arguments) => store(Service::Gcs, &arguments),
        Task::Azure(arguments) => store(Service::Azure, &arguments),
        Task::Hdfs {
            survive: Some(rows), ..
        } => hdfs::survive(rows),
        Task::Hdfs {
            zombie: Some(rounds), ..
        } => hdfs::zombie(rounds),
        Task::Hdfs { lose: true, .. } => hdfs::lose(),
        Task::Hdfs { ends: true, .. } => hdfs::ends::run(),
        Task::Hdfs { .. } => hdfs::conformance().map(|tally| tally.failed == 0 && tally.passed > 0),
        Task::Etcd => etcd::conformance().map(|tally| tally.failed == 0 && tally.passed > 0),
        Task::Kms => kms::check().map(|tally| tally.failed == 0),
        Task::Cluster(arguments) => cluster::run(&arguments),
        Task::Zombie { rounds } => stores::zombie(Service::S3, rounds),
        Task::Soak {
            megabytes,
            memory_mib,
            seconds,
        } => soak::run(megabytes, &memory_mib, seconds),
        Task::Tablets { count } => tablets::run(count),
        Task::Measure(arguments) => measure::run(&arguments),
        Task::ServerCost { arguments } => server_cost::run(&arguments),
        Task::Rival { task } => rival::run(task),
        Task::Hbase(arguments) => hbase::run(&arguments),
        Task::Google => google::run(),
        Task::Console { tablets } => console::run(tablets),
        Task::Package(arguments) => package::run(&arguments),
        Task::Corpus => corpus::run(),
        Task::Debian => debian::run(),
    }
}

fn store(service: Service, arguments: &StoreArguments) -> Result<bool> {
    match (arguments.survive, arguments.zombie) {
        (Some(rows), _) => stores::survive(service, rows),
        (_, Some(rounds)) => stores::zombie(service, rounds),
        _ => stores::conformance(service).map(|tally| tally.failed == 0 && tally.passed > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_no_rounds_is_refused() {
        let takes = |line: &str| Args::try_parse_from(line.split(' ')).is_ok();
        let counted = [
            "xtask crash --rounds",
            "xtask zombie --rounds",
            "xtask s3 --survive",
            "xtask gcs --zombie",
            "xtask hdfs --survive",
            "xtask hdfs --zombie",
            "xtask cluster --kills",
            "xtask cluster --failovers",
            "xtask cluster --moments",
            "xtask cluster --snapshots",
            "xtask cluster --hbase",
            "xtask cluster --chaos",
            "xtask cluster --bench ycsb --repeats",
        ];
        for line in counted {
            assert!(!takes(&format!("{line} 0")), "{line} 0");
            assert!(takes(&format!("{line} 1")), "{line} 1");
        }
    }
}
