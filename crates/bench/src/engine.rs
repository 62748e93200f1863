//! Dispatcher, workers, loops and clocks.
//!
//! One process, the *dispatcher*, owns the plan and hands out ranges of operations. *Worker* processes on any number of
//! machines carry them out and ask for more. The Bigtable paper and Hypertable's harness divided the work in this way
//! (10 ranges for each client, the next one on demand). A fast client then does more work instead of waiting.
//!
//! The dispatcher sends requests to servers only to create, flush and drop tables. It measures only the CPU seconds of
//! server processes. All other figures come from workers, once a second, as increments. The reported work of a worker
//! that dies stays counted, and its unfinished ranges go to another worker.

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
