//! Commit log: headers and records, also behind valid checksums.
//!
//! A decoded record encodes to the same bytes, and takes exactly its own length.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_commitlog::format::{
    GROUP_HEADER_BYTES, GroupHeader, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION,
    parse_segment_path, segment_path,
};
use stele_fuzz::crc;

/// The segment that groups are of.
const SEGMENT: u64 = 7;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    for seal in [seal_segment, seal_group, seal_records] {
        let mut sealed = bytes.to_vec();
        seal(&mut sealed);
        decode(&sealed);
    }
    if let Some((stream, number)) = std::str::from_utf8(bytes).ok().and_then(parse_segment_path) {
        assert_eq!(segment_path(stream, number).as_bytes(), bytes);
    }
});

fn decode(bytes: &[u8]) {
    if let Some(header) = SegmentHeader::decode(bytes)
        && header.version <= VERSION
    {
        assert!(bytes.starts_with(&header.encode()));
    }
    if let Some(group) = GroupHeader::decode(SEGMENT, bytes) {
        assert!(bytes.starts_with(&group.encode(SEGMENT)));
        assert!(group.synced_through() <= group.offset);
        assert_eq!(GroupHeader::decode(SEGMENT + 1, bytes), None, "of another segment");
    }
    let mut input = Bytes::copy_from_slice(bytes);
    let mut again = Vec::new();
    loop {
        let before = input.len();
        let Some(record) = Record::decode(&mut input) else {
            break;
        };
        assert_eq!(before - input.len(), record.frame_len());
        assert!(record.first <= record.last);
        again.extend_from_slice(&record.encode_header());
        again.extend_from_slice(record.payload.bytes());
        assert_eq!(again.len() + input.len(), bytes.len());
    }
    assert!(bytes.starts_with(&again), "other records");
}

fn seal_segment(bytes: &mut [u8]) {
    if let Some((body, checksum)) = bytes
        .first_chunk_mut::<SEGMENT_HEADER_BYTES>()
        .and_then(|header| header.split_last_chunk_mut::<4>())
    {
        checksum.copy_from_slice(&crc(&[body]).to_le_bytes());
    }
}

fn seal_group(bytes: &mut [u8]) {
    if let Some((body, checksum)) = bytes
        .first_chunk_mut::<GROUP_HEADER_BYTES>()
        .and_then(|header| header.split_last_chunk_mut::<4>())
    {
        checksum.copy_from_slice(&crc(&[&SEGMENT.to_le_bytes(), body]).to_le_bytes());
    }
}

/// Seals record after record; a length beyond the end becomes the rest of the bytes.
fn seal_records(mut bytes: &mut [u8]) {
    while let Some((header, rest)) = bytes.split_first_chunk_mut::<RECORD_HEADER_BYTES>() {
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (payload, behind) = rest.split_at_mut(len.min(rest.len()));
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&crc(&[payload]).to_le_bytes());
        let checksum = crc(&[&header[..RECORD_HEADER_BYTES - 4]]);
        header[RECORD_HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes = behind;
    }
}
