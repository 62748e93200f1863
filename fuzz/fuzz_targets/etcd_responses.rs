//! Responses of etcd: any bytes are refused or survive a round trip.
//!
//! Outcomes of transactions name keys and revisions of the caller or of the response.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_etcd::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::responses(bytes));
