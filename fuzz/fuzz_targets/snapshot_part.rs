//! Parts of snapshots: bytes are refused with an error or survive a round trip.
//!
//! This holds behind a valid checksum, too. Paths have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_fuzz::crc;
use stele_tablet::snapshot::{SnapshotPart, inspect, parse_path, path};

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
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some((snapshot, part)) = parse_path(text)
    {
        assert_eq!(path(snapshot, part), text);
    }
});

fn decode(bytes: &[u8]) {
    if let Ok(part) = SnapshotPart::decode_file("part", bytes) {
        let again = SnapshotPart::decode_file("part", &part.encode_file()).expect("what was encoded decodes");
        assert_eq!(again, part);
        assert!(part.stored().count() >= part.tablets.iter().flat_map(|tablet| tablet.all_files()).count());
    }
    let _ = inspect("part", bytes);
}
