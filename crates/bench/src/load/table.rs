//! Clients that read and write one table.

use crate::activity::{Actor, ActorContext};
use crate::plan::Workload;

/// Names of a workload's kinds of operation.
pub fn kinds(_workload: &Workload) -> Vec<String> {
    Vec::new()
}

/// Makes a client.
///
/// # Errors
/// A workload that makes no sense.
pub fn actor(_workload: &Workload, _context: ActorContext) -> anyhow::Result<Box<dyn Actor>> {
    anyhow::bail!("no such workload")
}
