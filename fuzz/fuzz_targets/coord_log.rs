//! Coordination log and snapshot: any bytes are refused, or cut where they are torn.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_coord::format::{decode_log, decode_snapshot, inspect};

fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    for generation in [0, 1] {
        let _ = decode_log(&bytes, generation);
    }
    let _ = decode_snapshot(&bytes);
    let _ = inspect(&bytes);
});
