//! Control calls between servers, and their answers: refused, or survive a round trip.
//!
//! Tablets to be opened keep their schemas when they are distributed over calls again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_cluster::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::control(bytes));
