//! How the engine makes clients work, without knowing what they do.
//!
//! The engine owns time, loops, ranges and counting; an *activity* owns keys, values, calls and the verdict on answers. One
//! [`Actor`] is one client: it has at most one step under way.

use crate::plan::{self, Run};
use crate::target::{Connection, Result};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// What an actor is given.
#[derive(Clone)]
pub struct ActorContext {
    /// The sockets of its thread.
    pub connection: Arc<dyn Connection>,
    /// State shared by the clients of this worker process, kept from run to run.
    pub shared: Arc<crate::load::Shared>,
    /// This worker's index among those of the run.
    pub worker: u32,
    /// Workers of the run.
    pub workers: u32,
    /// This client's index within the whole run.
    pub client: u32,
    /// Clients of the whole run.
    pub clients: u32,
    /// Seed of the run.
    pub seed: u64,
}

/// One client.
#[async_trait]
pub trait Actor: Send {
    /// Told before the first step of a range of operations.
    fn begin(&mut self, range: Range<u64>);

    /// Carries out operation `index`. The engine takes the time. An error fails the operation, not the run; the run is
    /// failed for it afterwards.
    async fn step(&mut self, index: u64) -> Result<Step>;

    /// Told after the last step of a range, or of what was done of it before time was up: sends what is buffered. The
    /// range counts as done only when this has succeeded.
    async fn finish(&mut self) -> Result<Step>;
}

/// What one step did.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// Kind of operation, an index into [`kinds`].
    pub kind: u8,
    /// Operations that this step stands for: one, or zero for a flush at the end, or the keys of a scanned range. The
    /// engine goes on with operation `index + max(1, operations)`.
    pub operations: u32,
    /// Operations that the server has acknowledged with this step, where that is not `operations`: a write buffer
    /// acknowledges none while it fills and all when it is flushed. Rates count what is acknowledged.
    pub acknowledged: Option<u32>,
    /// Rows read or written.
    pub rows: u32,
    /// Key and value bytes moved.
    pub bytes: u64,
    /// What was found wrong in the answer.
    pub verdict: Verdict,
}

/// What was found in the answers of a step. All counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Answers that were compared with what had been written.
    pub checked: u64,
    /// Rows that must exist and were not returned.
    pub missing: u64,
    /// Rows returned that cannot exist, or out of order, or twice.
    pub unexpected: u64,
    /// Values that were never written there.
    pub wrong: u64,
    /// Values older than a write acknowledged before the read began.
    pub stale: u64,
    /// The first few of these, described.
    pub examples: Vec<String>,
}

impl Verdict {
    /// Examples kept of each run; more would say nothing new.
    pub const EXAMPLES_MAX: usize = 10;

    /// Whether every answer was right.
    pub fn is_right(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.wrong == 0 && self.stale == 0
    }

    /// Adds another one's counts, and its examples while there is room.
    pub fn merge(&mut self, other: &Self) {
        self.checked += other.checked;
        self.missing += other.missing;
        self.unexpected += other.unexpected;
        self.wrong += other.wrong;
        self.stale += other.stale;
        let room = Self::EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }

    /// Notes an example if there is room.
    pub fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < Self::EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// Names of a run's kinds of operation, in the order of [`Step::kind`].
pub fn kinds(run: &Run) -> Vec<String> {
    match &run.activity {
        plan::Activity::Table(workload) => crate::load::table::kinds(workload),
        plan::Activity::Social(social) => crate::social::kinds(social),
    }
}

/// Makes one client of a run.
pub fn actor(run: &Run, context: ActorContext) -> anyhow::Result<Box<dyn Actor>> {
    match &run.activity {
        plan::Activity::Table(workload) => crate::load::table::actor(workload, context),
        plan::Activity::Social(social) => crate::social::actor(social, context),
    }
}
