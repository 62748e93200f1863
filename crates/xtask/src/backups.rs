//! Snapshots and backups of a server under the load of Google's Go client.
//!
//! * [`exact`]: random snapshots under 64 writers, with SIGKILL during and after some of them. Each that exists has the rows of one
//!   moment between its beginning and its end.
//! * [`large`]: times of a large table, latencies of its clients meanwhile, and the bytes that a second backup copies.

mod exact;
mod large;

use crate::server::{self, Scratch};
use crate::tools;
use anyhow::Result;
use std::time::Duration;

/// Restores of backups copy everything.
const COMMAND_WAIT: Duration = Duration::from_secs(600);

/// The options of `cargo xtask backups`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Snapshots at random moments.
    #[arg(long, default_value_t = 50)]
    snapshots: u32,
    /// Size of the large table, in MiB.
    #[arg(long, default_value_t = 5_000)]
    mib: u64,
    /// Makes the choices repeatable.
    #[arg(long)]
    seed: Option<u64>,
    /// Compares the snapshots with moments a second later, so that the run must fail.
    #[arg(long)]
    planted_stale_snapshots: bool,
}

/// A few snapshots, and no large table: its bounds are times.
pub fn smoke() -> Result<bool> {
    run(&Arguments {
        snapshots: 12,
        mib: 0,
        seed: None,
        planted_stale_snapshots: false,
    })
}

/// Whether all snapshots were exact and all bounds were held.
pub fn run(arguments: &Arguments) -> Result<bool> {
    server::build()?;
    tools::go_program("registers")?;
    let scratch = Scratch::new("backups")?;
    let mut passed = exact::run(&scratch, arguments)?;
    if arguments.mib > 0 {
        passed &= large::run(&scratch, arguments.mib)?;
    }
    if passed {
        scratch.passed();
    }
    Ok(passed)
}
