//! Bodies of answers between servers.
//!
//! Any bytes are refused, or decode to the same again once encoded.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| stele_peer::fuzzing::answers(&Bytes::copy_from_slice(bytes)));
