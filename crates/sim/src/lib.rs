//! Deterministic simulation: virtual clock, seeded scheduler, faults, model and checkers.
//!
//! [`runtime`] runs whole servers on one thread, every choice drawn from one seed. [`model`] says what a tablet must
//! answer, without any of the engine's means. `docs/simulation.md` tells how to run a simulation and how to read its
//! verdict.

pub mod model;
pub mod runtime;
