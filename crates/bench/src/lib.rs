//! `stele-bench` repeats the published evaluations of the Bigtable family against any server.
//!
//! Modules, from the bottom up; each uses only modules above it in this list:
//! * [`target`]: servers under test and the protocols that they speak. [`plan`]: suites, experiments and runs.
//! * [`outcome`]: results of a run. [`activity`]: the interface between clients and the engine that times and counts them.
//! * [`load`]: keys, values, the record of writes, reads and writes of one table. [`social`]: the BG social network.
//! * [`clients`]: makes the clients of a run from `load` and `social`.
//! * [`xray`]: samples of processes, disks and networks during the runs.
//! * [`bundle`]: the folder with all results, which another person can check.
//! * [`engine`]: dispatcher, workers, loops, clocks.
//! * [`report`]: the page made from bundles. [`suites`]: the documents' experiments and their published figures.
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
pub mod clients;
pub mod engine;
pub mod load;
pub mod outcome;
pub mod plan;
pub mod report;
pub mod social;
pub mod suites;
pub mod target;
pub mod xray;
