//! The commit log makes a write survive.
//!
//! Terms: a *record* is one tablet's batch of mutations; a *group* is the records that one group commit wrote; a *segment*
//! is one file; a *stream* is the sequence of segments one task writes. A server has a few streams, not one per tablet
//! (Bigtable §6, "Exploiting commit logs"). Byte tables: `docs/formats/commit-log.md`.
//!
//! Invariants:
//! * Records of one tablet reach its memtable in the order of their submission, each only after it is as durable as
//!   its writer asked.
//! * A record whose write or sync failed is refused, and does not come back at recovery.
//! * After a failed append or sync the segment is never written again.
//! * Segments of a stream become durable in their order. Power loss takes a suffix of the stream, except records in a
//!   segment whose sync has failed, whose tablets must be flushed.
//! * A segment is deleted only when every tablet with records in it has flushed past them, and no reader needs its header
//!   for the segment before it ([`retention`]).
//!
//! This crate does not know the meaning of a record.
#![forbid(unsafe_code)]

pub mod error;
pub mod format;
mod group;
mod lead;
pub mod mark;
mod metrics;
mod pieces;
mod queue;
pub mod replay;
pub mod retention;
pub mod salvage;
mod segment;
mod stream;
mod task;

pub use error::{LogError, is_no_space};
pub use format::{Payload, Record, RecordRef};
pub use group::{Append, Completion};
pub use lead::{Gathered, Lead, Slot, Submitted};
pub use mark::{BarrierCause, LogClock, Mark};
pub use metrics::LogMetrics;
pub use pieces::{BadPiece, Pieces};
pub use queue::LogOptions;
pub use replay::{OpenedLog, ReplayReport, independent_bytes, inspect, replay, replay_through};
pub use retention::{LogPosition, SegmentInfo};
pub use segment::SegmentNumbers;
pub use stream::{HeldSegments, LogStream};

#[cfg(test)]
mod tests;
