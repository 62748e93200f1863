//! Measures the CPU time that the server adds to its transport.

use crate::bench;
use crate::server;
use crate::shell::Run;
use anyhow::Result;

/// Runs the measurement; arguments are its own.
pub fn run(arguments: &[String]) -> Result<bool> {
    server::build()?;
    Run::new(bench::build_example("server_cost")?)
        .args(["--stele"])
        .args([server::stele()])
        .args(arguments)
        .succeeds()
}
