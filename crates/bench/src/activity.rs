//! How the engine makes clients work, without knowing what they do.
//!
//! The engine owns time, loops, ranges and counting; an *activity* owns keys, values, calls and the verdict on answers. One
//! [`Actor`] is one client: it has at most one step under way.

use crate::outcome::Verdict;
use crate::target::{Connection, Result};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;

/// What an actor is given.
#[derive(Clone)]
pub struct ActorContext {
    /// The sockets of its thread.
    pub connection: Arc<dyn Connection>,
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
    /// Kind of operation, an index into the names of the run's kinds.
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
