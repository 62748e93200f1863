//! Keys, values, and reads and writes of one table whose answers are checked.
//!
//! * [`random`], [`zipf`], [`operations`]: what operation `i` of a run is. [`keys`], [`values`], [`shape`]: its bytes.
//! * [`contents`], [`skew`]: a run replayed in thought: rows that must be there, how unevenly keys were chosen.
//! * [`ledger`], [`counters`], [`recent`]: what this process wrote, so that stale and lost writes are noticed.
//! * [`prepared`] brings these together for a run; [`judge`] gives the verdict; [`table`] is the client.

pub mod contents;
pub mod counters;
mod judge;
pub mod keys;
pub mod ledger;
pub mod operations;
pub mod prepared;
pub mod random;
pub mod recent;
pub mod shape;
pub mod skew;
pub mod table;
pub mod values;
pub mod zipf;

pub use contents::expected_rows;
pub use shape::families;
pub use skew::measure as skew;

use crate::plan::{Activity, Run, Workload};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Writes that a table has been given and has acknowledged, in a form that can be carried out again in thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// What was done.
    pub workload: Workload,
    /// With which seed.
    pub seed: u64,
    /// Which operations of it, ascending.
    pub spans: Vec<Range<u64>>,
    /// Further operations, some of which failed: what they wrote may or may not be there.
    pub uncertain: Vec<Range<u64>>,
}

/// State shared by the clients of one worker process, kept from run to run.
#[derive(Default)]
pub struct Shared {
    /// The social network, if there is one.
    pub social: crate::social::State,
    tables: Mutex<prepared::Kept>,
}

impl Shared {
    /// Told before the clients of a run are made. `written` is what the run's table holds: every run that wrote to it since
    /// it was created, in order.
    ///
    /// # Errors
    /// A corpus that cannot be read, a key space too large for this machine, a workload that makes no sense or that does
    /// not fit what the table holds.
    pub fn prepare(&self, run: &Run, worker: u32, workers: u32, written: &[Written]) -> anyhow::Result<()> {
        match &run.activity {
            Activity::Table(workload) => self.tables.lock().prepare(workload, run.seed, workers, written),
            Activity::Social(social) => self.social.prepare(social, worker, workers),
        }
    }

    fn prepared(&self, workload: &Workload, seed: u64) -> anyhow::Result<Arc<prepared::Prepared>> {
        self.tables.lock().prepared(workload, seed)
    }
}
