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

use crate::plan::Workload;
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

/// The tables that the clients of one worker process know, with their history from run to run.
#[derive(Default)]
pub struct Tables {
    prepared: Mutex<prepared::Kept>,
}

impl Tables {
    /// Prepares a run, before its clients are made. `written` holds every run that wrote to its table since the table was
    /// created, in order.
    ///
    /// # Errors
    /// A corpus that cannot be read, a key space too large for this machine, a workload that makes no sense or that does
    /// not fit the contents of the table.
    pub fn prepare(&self, workload: &Workload, seed: u64, workers: u32, written: &[Written]) -> anyhow::Result<()> {
        self.prepared.lock().prepare(workload, seed, workers, written)
    }

    fn prepared(&self, workload: &Workload, seed: u64) -> anyhow::Result<Arc<prepared::Prepared>> {
        self.prepared.lock().prepared(workload, seed)
    }
}
