//! HFiles: any bytes are refused or read within bounds, also without checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_hfile::fuzzing::{decode_block, read_all, without_checksums};

fuzz_target!(|bytes: &[u8]| {
    let _ = read_all(bytes);
    let mut unchecked = bytes.to_vec();
    without_checksums(&mut unchecked);
    let _ = read_all(&unchecked);
    decode_block(bytes);
});
