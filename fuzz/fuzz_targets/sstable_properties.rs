//! Properties of sstables: any bytes are refused or counted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_sstable::Properties;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(properties) = Properties::decode_checked(bytes) {
        let _ = properties.deletes();
    }
});
