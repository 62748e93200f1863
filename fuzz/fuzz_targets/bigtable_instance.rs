//! The stored record of an instance: any bytes are refused or can be shown.
//!
//! Shown records keep their meaning when written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_bigtable::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::instance_data(bytes));
