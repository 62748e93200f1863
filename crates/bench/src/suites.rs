//! The documents' experiments as suites, and the figures they published.
//!
//! Terms: a *document* is one of the published evaluations of the family; its suite has one experiment for each row of the
//! list in `docs/benchmarking.md`. *Quick* is a size of its own: every experiment still runs, on data that fits into
//! two minutes, and its list of differences explains the consequences.
//!
//! Published figures stand next to the runs that repeat them, as the documents print them. They serve to compare shapes
//! (ratio against ratio), because the machines of 2006 to 2012 are gone.
//!
//! Invariants, held by tests over every suite and size:
//! * Each experiment of the list is in exactly one suite, and has either stages or a reason why it cannot be run.
//! * Labels are unique within an experiment and safe as file names; tables start with `bench-`.
//! * A stage that writes a table is followed by a check that reads all of it before the table is created again or
//!   dropped.
//! * A published figure stands at the point of some run.
//! * A quick suite is estimated to take at most [`QUICK_SECONDS_MAX`] for each target.

mod bg_social;
mod bigtable_2006;
mod dataset;
mod estimate;
mod hstack_2010;
mod hypertable_2010;
mod hypertable_2012;
mod purdue_2008;
mod recipe;
mod sizing;
#[cfg(test)]
mod tests;
mod ycsb;

pub use estimate::estimate_seconds;

use crate::plan::{Experiment, Suite};
use sizing::Sizing;

/// Longest quick suite for one target, in seconds. Two targets, ten seconds of warm-up each, and the measurement of the
/// generator then take 5 minutes.
pub const QUICK_SECONDS_MAX: f64 = 135.0;

/// Inputs of a suite.
#[derive(Debug, Clone, Default)]
pub struct SuiteOptions {
    /// 1.0 is the document's own size; quick mode has its own sizes.
    pub scale: f64,
    /// Sizes and times such that the whole suite takes about 5 minutes for two targets on two cores.
    pub quick: bool,
    /// Text file from which values are cut, where the document used real text. Values are incompressible when absent.
    pub corpus: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Command that kills a server, for the experiments that do so.
    pub kill_command: Option<String>,
}

/// One suite's name, its document's title, and the function that makes its experiments.
type Entry = (&'static str, &'static str, fn(&Sizing) -> Vec<Experiment>);

const SUITES: [Entry; 7] = [
    (
        "bigtable-2006",
        "Bigtable: A Distributed Storage System for Structured Data (OSDI 2006), section 7",
        bigtable_2006::experiments,
    ),
    (
        "hypertable-2010",
        "Hypertable vs. HBase Performance Evaluation, Test 1 (2010)",
        hypertable_2010::experiments,
    ),
    (
        "hypertable-2012",
        "Hypertable Routs HBase in Performance Test (February 2012)",
        hypertable_2012::experiments,
    ),
    (
        "hstack-2010",
        "HBase Performance Testing (hstack, April 2010)",
        hstack_2010::experiments,
    ),
    (
        "purdue-2008",
        "HBase and Hypertable for large scale distributed storage systems (Khetrapal and Ganesh, Purdue University)",
        purdue_2008::experiments,
    ),
    (
        "bg-social",
        "Benchmarking HBase in Distributed Mode (Chhabra and Sauray), with the BG social network benchmark",
        bg_social::experiments,
    ),
    (
        "ycsb",
        "Benchmarking Cloud Serving Systems with YCSB (SoCC 2010), core workloads",
        ycsb::experiments,
    ),
];

/// Names of all suites.
pub fn names() -> Vec<&'static str> {
    SUITES.iter().map(|(name, ..)| *name).collect()
}

/// Builds a suite. `None` if there is none of that name.
pub fn build(name: &str, options: &SuiteOptions) -> Option<Suite> {
    let (name, document, experiments) = SUITES.iter().find(|(n, ..)| *n == name)?;
    let sizing = Sizing::new(options);
    Some(Suite {
        name: (*name).to_owned(),
        document: (*document).to_owned(),
        scale: options.scale,
        experiments: experiments(&sizing),
    })
}
