//! The binary `stele`: the server and its command line client.

mod allocator;
mod backup_destination;
mod banner;
mod certificates;
mod check;
mod cluster;
mod data_dir;
mod encryption;
mod hbase;
mod http;
mod inspect;
mod listen;
mod logging;
mod manual;
mod node;
mod notify;
mod open_files;
mod otlp;
mod promote;
mod repair;
mod security;
mod start;
mod token;

use clap::{CommandFactory, Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use stele_env::tokio_env::TokioRuntime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A wide-column database in one binary.
#[derive(Parser)]
#[command(name = "stele", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Top,
}

#[derive(Subcommand)]
enum Top {
    /// Starts the server
    Start(Box<stele_settings::StartArgs>),
    /// Prints the settings of the server
    Config(ConfigArgs),
    /// Prints any file the server writes
    Inspect(InspectArgs),
    /// Checks data, in a folder or an object store: every file, block and record. Exits with 1 when something is
    /// damaged
    Check(check::CheckArgs),
    /// Repairs damaged data so that a server starts on it, and saves intact data
    Repair(repair::RepairArgs),
    /// Makes bearer tokens
    Token(token::TokenArgs),
    /// Makes an authority, and certificates of servers and clients, for a first cluster under TLS
    Certificates(certificates::CertificatesArgs),
    /// Copies tables of a live HBase into this server, and compares both
    Migrate(Box<stele_migrate::MigrateArgs>),
    /// Tell the servers and tablets of a cluster, check it, move, split and merge tablets; make a single server a cluster
    #[command(subcommand)]
    Cluster(ClusterCommand),
    #[command(flatten)]
    Client(Box<stele_cli::Command>),
    /// Prints the script that completes commands and options in a shell
    Completions(manual::CompletionsArgs),
    /// Prints the manual page
    Man(manual::ManArgs),
}

/// Commands of `stele cluster`.
#[derive(Subcommand)]
enum ClusterCommand {
    #[command(flatten)]
    Running(Box<stele_cli::cluster::ClusterCommand>),
    /// Make the data of a stopped single server those of a new cluster
    Promote(Box<promote::PromoteArgs>),
}

/// The exit status of wrong settings, as of wrong flags. A service manager need not start it again.
const WRONG_SETTINGS: u8 = 2;

/// The exit status of a server whose data another server has taken over. A service manager must not start it again: it would
/// take the data back.
const TAKEN_OVER: u8 = 4;

#[derive(clap::Args)]
struct ConfigArgs {
    /// Prints every setting with its meaning, unit, default and range
    #[arg(long, required = true)]
    defaults: bool,
}

#[derive(clap::Args)]
struct InspectArgs {
    /// The file; its name and folder tell its type
    file: PathBuf,
    /// Prints the cells of an sstable and the mutations of a log, too
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    keys: encryption::KeyArgs,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", one_line(&error));
            match error.is::<start::TakenOver>() {
                true => ExitCode::from(TAKEN_OVER),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// An error with its causes on one line. A cause that the text already quotes is skipped.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

fn run(command: Top) -> anyhow::Result<ExitCode> {
    match command {
        Top::Start(args) => {
            let config = match stele_settings::load(&args) {
                Ok(config) => config,
                Err(error) if error.is::<stele_settings::UnknownHost>() => return Err(error),
                Err(error) => {
                    eprintln!("error: {}", one_line(&error));
                    return Ok(ExitCode::from(WRONG_SETTINGS));
                }
            };
            allocator::configure(config.memory);
            start::run(&config).map(|()| ExitCode::SUCCESS)
        }
        Top::Config(_) => print(&stele_settings::describe()),
        Top::Inspect(args) => offline(async |env| {
            let keys = args.keys.open(&env).await?;
            let text = inspect::inspect(&args.file, args.verbose, &keys).await?;
            Ok((ExitCode::SUCCESS, text))
        }),
        Top::Check(args) => offline(async |env| check::run(&args, env).await),
        Top::Repair(args) => offline(async |env| repair::run(&args, env).await),
        Top::Token(args) => print(&token::run(&args, seconds_since_1970()?)?),
        Top::Certificates(args) => print(&certificates::run(&args, seconds_since_1970()?)?),
        Top::Completions(args) => print(&manual::completions(&args, Cli::command())?),
        Top::Man(args) => print(&manual::man(&args, Cli::command())?),
        Top::Migrate(args) => tool_runtime()?.block_on(stele_migrate::run(*args)),
        Top::Cluster(ClusterCommand::Promote(args)) => offline(async |env| promote::run(&args, env).await),
        Top::Cluster(ClusterCommand::Running(command)) => tool_runtime()?.block_on(stele_cli::cluster::run(*command)),
        Top::Client(command) => tool_runtime()?.block_on(stele_cli::run(*command)),
    }
}

fn seconds_since_1970() -> std::io::Result<u64> {
    let runtime = tool_runtime()?;
    let env = TokioRuntime::env(runtime.handle().clone(), runtime.handle().clone());
    Ok(u64::try_from(env.wall_micros() / 1_000_000).unwrap_or(0))
}

/// Runs a command on stopped data and prints its output.
fn offline(
    command: impl AsyncFnOnce(stele_env::Env) -> anyhow::Result<(ExitCode, String)>,
) -> anyhow::Result<ExitCode> {
    let runtime = tool_runtime()?;
    let env = TokioRuntime::env(runtime.handle().clone(), runtime.handle().clone());
    let (code, text) = runtime.block_on(command(env))?;
    print(&text).map(|_| code)
}

/// Prints to standard output. A reader that closes the pipe early (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<ExitCode> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn tool_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
