//! The interface between the engine and the clients whose work it times.
//!
//! The engine owns time, loops, ranges and counting. An *activity* owns keys, values, calls and the verdict on
//! responses. One [`Actor`] is one client: it has at most one step in progress.

use crate::outcome::Verdict;
use crate::target::{Connection, Result};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;

/// The place of an actor in its run.
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
    /// Called before the first step of a range of operations.
    fn begin(&mut self, range: Range<u64>);

    /// Carries out operation `index`. The engine takes the time. An error fails the operation. The run continues
    /// and is failed for it afterwards.
    async fn step(&mut self, index: u64) -> Result<Step>;

    /// Called after the last step of a range, or of the part that was done when time was up. It sends buffered writes.
    /// The range counts as done only when this call has succeeded.
    async fn finish(&mut self) -> Result<Step>;
}

/// The counts of one step.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// Kind of operation, an index into the names of the run's kinds.
    pub kind: u8,
    /// Operations that this step stands for: one, or zero for a flush at the end, or the keys of a scanned range. The
    /// engine continues with operation `index + max(1, operations)`.
    pub operations: u32,
    /// Operations that the server has acknowledged with this step, if not `operations`. A write buffer acknowledges
    /// none while it fills, and all when it is flushed. Rates count acknowledged operations.
    pub acknowledged: Option<u32>,
    /// Rows read or written.
    pub rows: u32,
    /// Key and value bytes moved.
    pub bytes: u64,
    /// The errors found in the response.
    pub verdict: Verdict,
}
