//! Keys, values, and checked reads and writes of one table.
//!
//! * [`random`], [`zipf`], [`operations`]: the choice of operation `i` of a run. [`keys`], [`values`], [`shape`]: its
//!   bytes.
//! * [`contents`], [`skew`]: a run computed again without a server: rows that must exist, and the skew of its keys.
//! * [`ledger`], [`counters`], [`recent`]: the record of this process's writes, which reveals stale and lost writes.
//! * [`held`]: the values of counters after the increments of all processes.
//! * [`prepared`] combines these for a run; [`judge`] gives the verdict; [`table`] is the client.

pub mod contents;
pub mod counters;
pub mod held;
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

/// Acknowledged writes to a table, in a form from which their rows and values can be computed again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// Kinds of its operations, keys and values.
    pub workload: Workload,
    /// With which seed.
    pub seed: u64,
    /// Its operations that were done, ascending.
    pub spans: Vec<Range<u64>>,
    /// Further operations, some of which failed: their writes may or may not exist.
    pub uncertain: Vec<Range<u64>>,
    /// Operations that a lost worker may have carried out as well. That matters for increments only: another write that is
    /// repeated changes nothing.
    pub repeated: Vec<Range<u64>>,
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
    /// A corpus that cannot be read, a key space too large for this machine, a workload that is invalid or does not fit
    /// the contents of the table.
    pub fn prepare(&self, workload: &Workload, seed: u64, workers: u32, written: &[Written]) -> anyhow::Result<()> {
        self.prepared.lock().prepare(workload, seed, workers, written)
    }

    fn prepared(&self, workload: &Workload, seed: u64) -> anyhow::Result<Arc<prepared::Prepared>> {
        self.prepared.lock().prepared(workload, seed)
    }
}
