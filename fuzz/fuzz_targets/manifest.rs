//! Manifests: any bytes are refused with a typed error or survive a round trip.
//!
//! This holds behind a valid checksum, too. Paths have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_fuzz::crc;
use stele_tablet::manifest::{parse_path, path};
use stele_tablet::{FileRef, Manifest};

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
        if let Some((tablet, number)) = parse_path(text) {
            assert_eq!(path(tablet, number), text);
        }
        if let Some(file) = FileRef::parse_path(text) {
            assert_eq!(FileRef::path(file), text);
        }
    }
});

fn decode(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode_file("manifest", bytes) {
        let again = Manifest::decode_file("manifest", &manifest.encode_file()).expect("what was encoded decodes");
        assert_eq!(again, manifest);
    }
    let _ = stele_tablet::manifest::inspect("manifest", bytes);
}
