//! Commit log: headers and records, also behind valid checksums.
//!
//! A decoded record encodes to the same bytes, and takes exactly its own length.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_commitlog::format::{
    GROUP_HEADER_BYTES, GroupHeader, Record, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION, parse_segment_path,
    segment_path,
};
use stele_fuzz::{crc, seal_records};

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
