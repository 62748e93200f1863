//! Spans that have ended, as the exporter gets them.

use super::Carried;
use crate::work::Work;
use std::sync::Arc;

/// Facts about a request. There is no field that could hold a key or a value of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The table.
    pub table: Option<String>,
    /// The number of the last tablet.
    pub tablet: Option<u64>,
    /// How many tablets the request came to.
    pub tablets: u64,
    /// Rows returned or written.
    pub rows: u64,
    /// Bytes of the request's message.
    pub request_bytes: u64,
    /// Bytes of the response.
    pub response_bytes: u64,
    /// The code of its outcome, from the constants of the protocol; empty if it was given up.
    pub outcome: &'static str,
    /// The server is to blame for a failure.
    pub is_error: bool,
}

impl Facts {
    /// The request comes to a tablet.
    pub fn visit(&mut self, tablet: u64) {
        if self.tablet.replace(tablet) != Some(tablet) {
            self.tablets += 1;
        }
    }
}

/// Facts about a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageFacts {
    /// The number of the tablet.
    pub tablet: Option<u64>,
    /// The number of the other server that is called.
    pub server: Option<u64>,
    /// Rows that were read; `None` if it reads none.
    pub rows: Option<u64>,
    /// Bytes read or written.
    pub bytes: u64,
}

/// A request that has ended, with its stages.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The protocol, and the method.
    pub name: (&'static str, &'static str),
    /// Its identity.
    pub own: Carried,
    /// The span above it, if there is one.
    pub parent: Option<u64>,
    /// The `tracestate` that the client sent.
    pub state: Option<Arc<str>>,
    /// Nanoseconds since 1970.
    pub started_nanos: u64,
    /// Nanoseconds since 1970.
    pub ended_nanos: u64,
    /// Facts about it.
    pub facts: Facts,
    /// Counts of its work in tablets of this server.
    pub work: Work,
    /// In the order in which they ended.
    pub stages: Vec<FinishedStage>,
    /// Stages that were not kept.
    pub left_out: u64,
}

impl Finished {
    /// Spans that it becomes.
    pub fn spans(&self) -> usize {
        1 + self.stages.len()
    }
}

/// A stage that has ended.
#[derive(Clone, Debug)]
pub struct FinishedStage {
    /// Its name.
    pub name: &'static str,
    /// The number of its span.
    pub span: u64,
    /// Nanoseconds since 1970.
    pub started_nanos: u64,
    /// Nanoseconds since 1970.
    pub ended_nanos: u64,
    /// Facts about it.
    pub facts: StageFacts,
}
