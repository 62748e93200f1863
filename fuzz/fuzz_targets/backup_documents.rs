//! Documents of backup destinations: bytes are refused with an error or survive a round trip.
//!
//! This holds behind a valid checksum, too. Paths have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_backup::format::{Document, FileList, Record, State, inspect};
use stele_backup::paths;
use stele_fuzz::crc;

const HEADER_BYTES: usize = 20;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    if let Some(payload) = bytes.get(HEADER_BYTES..) {
        let mut sealed = bytes.to_vec();
        sealed[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let checksum = crc(&[&sealed[..16], payload]);
        sealed[16..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        decode(&sealed);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some((backup, file)) = paths::parse_file(text) {
            assert_eq!(paths::file(backup, file), text);
        }
        if let Some(number) = paths::parse_state(text) {
            assert_eq!(paths::state(number), text);
        }
    }
});

fn decode(bytes: &[u8]) {
    again::<State>(bytes);
    again::<Record>(bytes);
    again::<FileList>(bytes);
    let _ = inspect("document", bytes);
}

fn again<D: Document + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(document) = D::decode_file("document", bytes) {
        let encoded = document.encode_file("document").expect("what was read can be written");
        assert_eq!(
            D::decode_file("document", &encoded).expect("what was encoded decodes"),
            document
        );
    }
}
