//! What is stored of an instance: any bytes are refused or can be shown, and say the same when they are written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_bigtable::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::instance_data(bytes));
