//! Deterministic simulation: virtual clock, seeded scheduler, faults, model and checkers.
