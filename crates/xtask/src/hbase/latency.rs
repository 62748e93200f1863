//! Times gets through one connection, alone and while the same connection scans a table.
//!
//! The client is HBase's own.

use super::tools::program;
use anyhow::Result;

/// Gets that are due each second.
const GETS_PER_SECOND: u32 = 500;
const SECONDS: u32 = 10;

/// Prints the latencies; whether every get and every scan found its rows.
pub fn run(address: &str, rows: u32) -> Result<bool> {
    let passed = program(&["-Xmx3g", "-Xmn1500m", "-XX:+UseParallelGC"], "Latency")?
        .args([
            address,
            &rows.to_string(),
            &GETS_PER_SECOND.to_string(),
            &SECONDS.to_string(),
        ])
        .succeeds()?;
    println!("{} passed, {} failed", u8::from(passed), u8::from(!passed));
    Ok(passed)
}
