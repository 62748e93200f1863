//! `stele-bench`: every published evaluation of the Bigtable family, on anybody's machines, against any server.
//!
//! Rooms, from the bottom up; each knows only those above it in this list:
//! * [`target`]: servers under test and how to talk to them; [`plan`]: what will be run; [`activity`] and [`outcome`]: the
//!   seam between what clients do and how their work is timed and counted.
//! * [`load`]: keys, values, what was written, reads and writes of a table; [`social`]: the BG social network.
//! * [`xray`]: what processes, disks and networks did meanwhile.
//! * [`engine`]: dispatcher, workers, loops, clocks.
//! * [`suites`]: the documents' experiments and their published figures.
//! * [`bundle`], [`report`]: what is left for another person to check and to read.
//!
//! This is a client: it speaks public protocols only, and depends on no part of the database but the wire codec.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a load generator is the world outside the simulated database: real clock, files and sockets"
)]

pub mod activity;
pub mod bundle;
pub mod engine;
pub mod load;
pub mod outcome;
pub mod plan;
pub mod report;
pub mod social;
pub mod suites;
pub mod target;
pub mod xray;
