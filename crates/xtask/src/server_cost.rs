//! Measures the CPU time that the server adds to its transport.

use crate::server;
use crate::shell::{Run, cargo, target_dir};
use anyhow::Result;

/// Runs the measurement; arguments are its own.
pub fn run(arguments: &[String]) -> Result<bool> {
    server::build()?;
    cargo([
        "build",
        "--release",
        "--package",
        "stele-bench",
        "--example",
        "server_cost",
    ])
    .check()?;
    Run::new(target_dir().join("release/examples/server_cost"))
        .args(["--stele"])
        .args([server::stele()])
        .args(arguments)
        .succeeds()
}
