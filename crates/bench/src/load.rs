//! Keys, values, and reads and writes of one table whose answers are checked.

pub mod table;
pub mod values;

use crate::outcome::Skew;
use crate::plan::{Activity, Run, Workload};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Writes that a table has been given and has acknowledged, in a form that can be carried out again in thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// What was done.
    pub workload: Workload,
    /// With which seed.
    pub seed: u64,
    /// Which operations of it, ascending.
    pub spans: Vec<Range<u64>>,
}

/// State shared by the clients of one worker process, kept from run to run.
#[derive(Default)]
pub struct Shared {
    /// The social network, if there is one.
    pub social: crate::social::State,
}

impl Shared {
    /// Told before the clients of a run are made. `written` is what the run's table holds.
    ///
    /// # Errors
    /// A corpus that cannot be read, a key space too large for this machine.
    pub fn prepare(&self, run: &Run, worker: u32, workers: u32, _written: &[Written]) -> anyhow::Result<()> {
        if let Activity::Social(social) = &run.activity {
            self.social.prepare(social, worker, workers)?;
        }
        Ok(())
    }
}

/// Rows that a table holds after these writes.
pub fn expected_rows(_written: &[Written]) -> u64 {
    0
}

/// How unevenly these operations chose their keys.
pub fn skew(_operations: &Written) -> Skew {
    Skew::default()
}
