//! Applies random sequences of operations to Stele and a real HBase, and compares every observation.
//!
//! `Differential.java` of `tests/clients/java-hbase` draws tables, operations and reads from seeds. It prints the operations at
//! which the two differ, and the shortest sequence that leads to the first of them.

use super::Target;
use super::tools::small_program;
use crate::shell::target_dir;
use anyhow::{Context, Result};
use std::fs::File;

/// Whether both observe the same with all seeds.
pub fn run(expected: &Target, found: &Target, seeds: u32, first: u64) -> Result<bool> {
    let log = target_dir().join("hbase-random.log");
    let errors = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    println!("the client's log: {}", log.display());
    small_program("1g", "Differential")?
        .errors_to(errors)
        .args([expected.address.as_str(), found.address.as_str()])
        .args([seeds.to_string(), first.to_string()])
        .succeeds()
}
