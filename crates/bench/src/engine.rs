//! Dispatcher, workers, loops and clocks.
//!
//! One process, the *dispatcher*, owns the plan and hands out ranges of operations; *worker* processes on any number of
//! machines carry them out, and ask for more. This is how the Bigtable paper and Hypertable's harness divided the work
//! (10 ranges for each client, the next one on demand), and it makes a fast client do more instead of waiting.
//!
//! The dispatcher drives servers only to make, flush and drop tables. What it measures itself are CPU seconds of server
//! processes; everything else comes from workers, once a second, as increments: what a worker has reported stays counted
//! when it dies, and the ranges it had not finished are given to another one.

pub mod client;
pub mod conductor;
pub mod dispatcher;
pub mod frames;
pub mod pace;
pub mod parties;
pub mod progress;
pub mod ranges;
pub mod recorder;
pub mod timer;
pub mod warm;
pub mod witness;
pub mod worker;
