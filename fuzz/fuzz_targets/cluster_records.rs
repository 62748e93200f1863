//! Records of servers in the coordinator: any bytes are refused or survive a round trip.
//!
//! Keys have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_cluster::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::records(bytes));
