//! The program `stele-bench`: reproduces the published evaluations of the Bigtable family against any server.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a load generator is the world outside the simulated database: real clock, files and sockets"
)]

mod commands;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Reproduces the published evaluations of the Bigtable family against any server, through its public protocol.
#[derive(Parser)]
#[command(name = "stele-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a suite against one or more targets, and writes a bundle with a report.
    Run(Box<commands::run::Arguments>),
    /// Lists suites and their experiments.
    List(commands::list::Arguments),
    /// Works for a dispatcher on this or another machine.
    Worker(commands::worker::Arguments),
    /// Renders the report of one bundle again, or compares several.
    Report(commands::report::Arguments),
    /// Prints bundles as Markdown tables.
    Summary(commands::summary::Arguments),
    /// Checks that bundles are whole and free of contradictions.
    Verify(commands::verify::Arguments),
    /// Reads a table once and prints its size, and a digest of it.
    Digest(commands::digest::Arguments),
    /// Serves prepared responses; started by `null://` targets.
    #[command(hide = true)]
    NullServer(commands::null_server::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Run(arguments) => commands::run::run(*arguments).await,
            Command::List(arguments) => commands::list::run(&arguments),
            Command::Worker(arguments) => commands::worker::run(arguments).await,
            Command::Report(arguments) => commands::report::run(&arguments),
            Command::Summary(arguments) => commands::summary::run(&arguments),
            Command::Verify(arguments) => commands::verify::run(&arguments),
            Command::Digest(arguments) => commands::digest::run(&arguments).await,
            Command::NullServer(arguments) => commands::null_server::run(&arguments).await,
        }
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
