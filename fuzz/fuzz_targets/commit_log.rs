//! Commit log: headers and records; a record that decodes takes exactly its own length.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_commitlog::format::{GroupHeader, Record, SegmentHeader, VERSION, parse_segment_path, segment_path};

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = SegmentHeader::decode(bytes)
        && header.version <= VERSION
    {
        assert!(bytes.starts_with(&header.encode()));
    }
    if let Some(group) = GroupHeader::decode(7, bytes) {
        assert!(bytes.starts_with(&group.encode(7)));
        assert!(group.synced_through() <= group.offset);
    }
    let mut input = Bytes::copy_from_slice(bytes);
    loop {
        let before = input.len();
        let Some(record) = Record::decode(&mut input) else {
            break;
        };
        assert_eq!(before - input.len(), record.frame_len());
    }
    if let Some((stream, number)) = std::str::from_utf8(bytes).ok().and_then(parse_segment_path) {
        assert_eq!(segment_path(stream, number).as_bytes(), bytes);
    }
});
