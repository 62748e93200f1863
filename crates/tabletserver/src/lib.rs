//! A tablet server: serves tablets, owns their commit log, keeps memory and disk within bounds (Bigtable §5.2–5.4).
//!
//! * [`server::TabletServer`] is what the router and the master talk to.
//! * [`write`] is the way of a write from request to acknowledgement; [`latch`] what makes read-modify-write atomic;
//!   [`admission`] what refuses or delays writes when memory or disk run out; [`waits`] says for how long, and why.
//! * [`read`] answers reads, of hot rows from the [`row_cache`].
//! * [`maintenance`] decides when tablets are flushed and compacted.
//! * [`governor`] divides memory.
//! * [`recovery`] turns a data root into a running server.
#![forbid(unsafe_code)]

pub mod admission;
pub mod error;
pub mod governor;
pub mod latch;
pub mod maintenance;
mod memory;
pub mod metrics;
pub mod options;
pub mod read;
pub mod recovery;
pub mod rmw;
pub mod row_cache;
pub mod server;
pub mod service;
pub mod split;
pub mod waits;
pub mod write;

pub use options::{MemoryBudget, MemtableLimits, ServerOptions};
pub use read::OneRow;
pub use recovery::{RecoveryReport, last_epoch};
pub use server::TabletServer;
pub use waits::{Cause, WriteWaits};
