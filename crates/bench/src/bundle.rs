//! The bundle: a folder that holds all that another person needs to check a report.

use crate::outcome::RunOutcome;
use crate::plan::Suite;
use crate::xray::{Watched, Xray};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything known about one execution of a suite.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// Version of this format.
    pub format: u32,
    /// The bench's version and commit.
    pub tool: String,
    /// The command, word by word.
    pub command: Vec<String>,
    /// Seconds since 1970.
    pub started_at: f64,
    /// Seconds since 1970.
    pub ended_at: f64,
    /// The machine of the dispatcher: processor, cores, memory, kernel, file system.
    pub machine: BTreeMap<String, String>,
    /// What was to be run.
    pub suite: Suite,
    /// The targets.
    pub parties: Vec<Party>,
    /// What came of it.
    pub runs: Vec<RunOutcome>,
    /// The generator's own cost.
    pub witnesses: Vec<Witness>,
    /// What processes and the machine did.
    pub xray: Xray,
}

/// One target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// Name in tables and charts.
    pub name: String,
    /// Version, if it is known.
    pub version: String,
    /// Its address as given.
    pub url: String,
    /// Its processes, as far as they are on this machine.
    pub processes: Vec<Watched>,
    /// Its effective configuration.
    pub configuration: BTreeMap<String, String>,
    /// Directories with its data.
    pub data_dirs: Vec<String>,
    /// What it said of itself.
    pub description: Vec<(String, String)>,
}

/// The generator against an echo server: what no server can be faster than, with this generator on this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Witness {
    /// `hbase` or `bigtable`.
    pub protocol: String,
    /// Kind of operation.
    pub operation: String,
    /// Operations per second.
    pub operations_per_second: f64,
    /// CPU of the generator for one operation, µs.
    pub generator_micros: f64,
    /// Median latency, µs.
    pub p50_micros: u64,
}
