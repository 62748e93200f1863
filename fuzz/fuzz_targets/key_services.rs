//! Answers of key management services, and addresses of keys.
//!
//! The first byte of an answer chooses its status. Ids of keys are fit for the records of data keys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_kms::fuzzing;

const STATUSES: [u16; 4] = [200, 400, 472, 503];

fuzz_target!(|bytes: &[u8]| {
    if let Some((status, body)) = bytes.split_first() {
        let [first, ..] = STATUSES;
        let status = STATUSES.get(usize::from(status % 4)).copied().unwrap_or(first);
        fuzzing::answer(status, body);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        fuzzing::address(text);
    }
});
