//! Deterministic simulation of Stele: a whole server, its faults, and the checkers of its results.
//!
//! * [`runtime`] runs whole servers on one thread and makes every choice from one seed.
//! * [`network`] connects processes, and loses, delays and partitions.
//! * [`model`] computes a tablet's results without any part of the engine.
//! * [`cluster`] is a server on a [`backend`] with faults, a disk or a [`bucket`].
//! * [`workload`] has the clients. [`history`], [`possible`] and [`contended`] check the results that they get.
//!   [`simulation`] runs all of it for one seed.
//! * [`archived`] is a server that archives its log, and restores to moments.
//! * [`fleet`] has several servers that share a bucket, with a driver that assigns tablets in place of a master.
//!
//! `docs/simulation.md` tells how to run a simulation and how to read its verdict.
#![forbid(unsafe_code)]

pub mod archived;
pub mod backend;
pub mod bucket;
pub mod cluster;
pub mod contended;
pub mod fleet;
pub mod hdfs;
pub mod history;
pub mod model;
pub mod network;
pub mod possible;
pub mod requests;
pub mod runtime;
pub mod shared;
pub mod simulation;
pub mod workload;
