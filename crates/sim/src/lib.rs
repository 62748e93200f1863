//! Deterministic simulation: virtual clock, seeded scheduler, faults, model and checkers.
//!
//! * [`runtime`] runs whole servers on one thread, every choice drawn from one seed.
//! * [`model`] says what a tablet must answer, without any of the engine's means.
//! * [`cluster`] is a server on a [`backend`] that fails, a disk or a [`bucket`].
//! * [`workload`] is what clients do to it, [`history`], [`possible`] and [`contended`] are the judges of the answers they get,
//!   [`simulation`] is all of it together for one seed.
//!
//! `docs/simulation.md` tells how to run a simulation and how to read its verdict.
#![forbid(unsafe_code)]

pub mod backend;
pub mod bucket;
pub mod cluster;
pub mod contended;
pub mod history;
pub mod model;
pub mod possible;
pub mod runtime;
pub mod simulation;
pub mod workload;
