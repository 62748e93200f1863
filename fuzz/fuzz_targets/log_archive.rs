//! Archived logs: parts, marks and pieces are refused or survive a round trip.
//!
//! This holds behind valid checksums, too. Paths have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_backup::archive::format::{Part, TableChanges, inspect, parse_part, parse_piece, part_path};
use stele_commitlog::format::{GROUP_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use stele_commitlog::{Mark, Pieces};
use stele_fuzz::{crc, seal_records};

const HEADER_BYTES: usize = 20;

/// Stream and number of the golden segment.
const STREAM: u32 = 2;
const SEGMENT: u64 = 0x0300;

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
    for from in [0, SEGMENT_HEADER_BYTES] {
        let segment = bytes.get(from..).unwrap_or_default();
        pieces(segment, from as u64);
        pieces(&sealed(segment, from), from as u64);
    }
});

/// A segment from an offset on, with right checksums. Each group is where its header says, and ends with the bytes at the latest.
fn sealed(bytes: &[u8], from: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let header_bytes = if from == 0 { SEGMENT_HEADER_BYTES } else { 0 };
    let (header, mut rest) = out.split_at_mut(header_bytes.min(bytes.len()));
    if let Some((body, checksum)) = header.split_last_chunk_mut::<4>() {
        checksum.copy_from_slice(&crc(&[body]).to_le_bytes());
    }
    let mut at = from + header.len();
    while let Some((header, behind)) = rest.split_first_chunk_mut::<GROUP_HEADER_BYTES>() {
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (records, behind) = behind.split_at_mut(len.min(behind.len()));
        header[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
        header[12..20].copy_from_slice(&(at as u64).to_le_bytes());
        if let Some((body, checksum)) = header.split_last_chunk_mut::<4>() {
            checksum.copy_from_slice(&crc(&[&SEGMENT.to_le_bytes(), body]).to_le_bytes());
        }
        seal_records(records);
        at += GROUP_HEADER_BYTES + records.len();
        rest = behind;
    }
    out
}

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

/// The records of a segment, and its damage, do not depend on where its pieces end.
fn pieces(bytes: &[u8], from: u64) {
    let read = |piece: usize| {
        let mut pieces = Pieces::new(STREAM, SEGMENT, from);
        let mut records = Vec::new();
        let mut read_all = || {
            for piece in bytes.chunks(piece) {
                pieces.push(piece);
                pieces.take_header()?;
                while let Some(group) = pieces.next_group()? {
                    records.extend(group);
                }
            }
            pieces.finish()
        };
        let end = read_all();
        (records, end)
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(read(37), whole);
}
