//! Archived logs: parts, marks and pieces are refused or survive a round trip.
//!
//! This holds behind a valid checksum, too. Paths have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_backup::archive::format::{Part, TableChanges, inspect, parse_part, parse_piece, part_path};
use stele_commitlog::{Mark, Pieces};
use stele_fuzz::crc;

const HEADER_BYTES: usize = 20;

fuzz_target!(|bytes: &[u8]| {
    again(bytes);
    if let Some(payload) = bytes.get(HEADER_BYTES..) {
        let mut sealed = bytes.to_vec();
        sealed[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let checksum = crc(&[&sealed[..16], payload]);
        sealed[16..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        again(&sealed);
    }
    if let Some(mark) = Mark::decode(bytes) {
        assert_eq!(&mark.encode()[..], bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some(number) = parse_part(text) {
            assert_eq!(part_path(number), text);
        }
        let _ = parse_piece(text);
    }
    for from in [0, 56] {
        pieces(bytes, from);
    }
});

fn again(bytes: &[u8]) {
    if let Ok(part) = Part::decode_file("part", bytes) {
        let encoded = part.encode_file().expect("what was read can be written");
        assert_eq!(
            Part::decode_file("part", &encoded).expect("what was encoded decodes"),
            part
        );
    }
    if let Ok(changes) = TableChanges::decode_file("changes", bytes) {
        let encoded = changes.encode_file().expect("what was read can be written");
        assert_eq!(
            TableChanges::decode_file("changes", &encoded).expect("what was encoded decodes"),
            changes
        );
    }
    let _ = inspect("part", bytes);
}

/// The records of a segment do not depend on where its pieces end.
fn pieces(bytes: &[u8], from: u64) {
    let read = |piece: usize| {
        let mut pieces = Pieces::new(2, 0x0300, from);
        let mut records = Vec::new();
        for piece in bytes.chunks(piece) {
            pieces.push(piece);
            pieces.take_header().ok()?;
            while let Some(group) = pieces.next_group().ok()? {
                records.extend(group);
            }
        }
        pieces.finish().ok()?;
        Some(records)
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(read(37), whole);
}
