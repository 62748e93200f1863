//! Runs unsafe code, and code that depends on the order of memory accesses, under Miri.
//!
//! That is the memtable's arena and tree, and the row cache's gate; not the mapping of memory for chunks, which Miri does
//! not support. Miri finds undefined behaviour. It also finds races, because it tries interleavings and orders that this
//! processor never shows.

use crate::shell::Run;
use anyhow::Result;

/// Packages, the tests of theirs that are run, and further flags: where locks are contended, `parking_lot` makes pointers of
/// numbers, and Miri warns of each place at length.
const TESTS: [(&str, &str, &str); 2] = [
    ("stele-memtable", "tests", ""),
    (
        "stele-tabletserver",
        "row_cache::tests::threads",
        "-Zmiri-permissive-provenance",
    ),
];

/// Chance of switching threads after each basic block: some dozen times in a test's critical section.
const PREEMPTION_RATE: &str = "0.05";

/// Runs all of it under this number of seeds; whether nothing was found.
pub fn run(seeds: u32) -> Result<bool> {
    let flags = format!(
        "-Zmiri-disable-isolation -Zmiri-preemption-rate={PREEMPTION_RATE} -Zmiri-many-seeds=0..{}",
        seeds.max(1)
    );
    let mut clean = true;
    for (package, tests, further) in TESTS {
        println!("=== miri {package} {tests}");
        clean &= Run::new("cargo")
            .args(["miri", "test", "--package", package, "--lib", tests])
            .env("MIRIFLAGS", format!("{flags} {further}"))
            // The toolchain file of the workspace would win over a `+nightly` otherwise.
            .env("RUSTUP_TOOLCHAIN", "nightly")
            .without_env("CARGO")
            .without_env("RUSTC")
            .succeeds()?;
    }
    Ok(clean)
}
