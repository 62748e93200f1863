//! The bundle: a folder with everything that another person needs to check a report.
//!
//! Layout and fields: `docs/formats/bench-bundle.md`. [`write_partial`] keeps the folder up to date while the bench
//! runs, so that an interrupted one leaves its results so far. [`write`] completes the folder. [`read`] trusts no byte
//! of it. [`verify`] lists contradictions: bytes against their sums, and figures against one another.

use crate::outcome::RunOutcome;
use crate::plan::{Role, Suite};
use crate::xray::{Watched, Xray};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod consistency;
pub mod differences;
mod layout;
mod read;
mod tables;
mod verify;
mod write;

pub use read::{read, repeats};
pub use verify::{Problem, verify};
pub use write::{write, write_partial};

#[cfg(test)]
use crate as bench;
#[cfg(test)]
pub(crate) mod fabricated;
#[cfg(test)]
mod tests;

/// Version of the format for writing and reading.
pub const FORMAT: u32 = 1;

/// Why a bundle could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },
    /// A bundle is written into a new or an empty folder only.
    #[error("{}: the folder is not empty, and not an unfinished bundle; name another one", .0.display())]
    NotEmpty(PathBuf),
    /// The bundle is of another version.
    #[error("{path}: format {found}, this program reads {FORMAT}", path = path.display())]
    Format {
        /// Its `bundle.json`.
        path: PathBuf,
        /// The version that was found.
        found: u32,
    },
    /// A file violates the format.
    #[error("{path}: {what}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Expected and found.
        what: String,
    },
    /// Something cannot be put into a file, such as a number that is not finite.
    #[error("cannot write {path}: {what}", path = path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
}

impl BundleError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }

    fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }
}

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
    /// Times that each experiment was to be run on each target. Absent in bundles of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// The plan.
    pub suite: Suite,
    /// The targets.
    pub parties: Vec<Party>,
    /// The results.
    pub runs: Vec<RunOutcome>,
    /// The generator's own cost.
    pub witnesses: Vec<Witness>,
    /// Samples of processes and of the machine.
    pub xray: Xray,
}

impl Bundle {
    /// Operations of a target's warm-up, and the seconds that they took.
    pub fn warm_up(&self, party: usize) -> (u64, f64) {
        self.warm_ups(party).fold((0, 0.0), |(operations, seconds), run| {
            let more = run.kinds.iter().map(|kind| kind.operations);
            (more.fold(operations, u64::saturating_add), seconds + run.seconds)
        })
    }

    /// The runs of a target's warm-up.
    pub fn warm_ups(&self, party: usize) -> impl Iterator<Item = &RunOutcome> {
        self.runs
            .iter()
            .filter(move |run| run.party == party && run.role == Role::Warm)
    }
}

/// One target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// Name in tables and charts.
    pub name: String,
    /// Version, if known.
    pub version: String,
    /// Its address as given.
    pub url: String,
    /// Its processes, if they run on this machine.
    pub processes: Vec<Watched>,
    /// Its effective configuration.
    pub configuration: BTreeMap<String, String>,
    /// Directories with its data.
    pub data_dirs: Vec<String>,
    /// Its description of itself.
    pub description: Vec<(String, String)>,
}

/// The control: the generator against an echo server. No server can be faster with this generator on this machine.
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
