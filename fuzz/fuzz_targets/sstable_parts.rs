//! The small parts of sstables: footer, block frame, properties, bloom filter.
//!
//! Any bytes are refused or read within bounds, also behind valid checksums.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_fuzz::crc;
use stele_sstable::Properties;
use stele_sstable::filter::{Filter, row_hash};
use stele_sstable::footer::{FOOTER_BYTES, Footer};
use stele_sstable::frame::{self, HANDLE_BYTES, Handle};
use stele_types::FileId;

fuzz_target!(|bytes: &[u8]| {
    footer(bytes);
    if let Some(tail) = bytes.last_chunk::<FOOTER_BYTES>() {
        let mut tail = *tail;
        let checksum = crc(&[&tail[..48], &tail[52..]]);
        tail[48..52].copy_from_slice(&checksum.to_le_bytes());
        footer(&tail);
    }
    let place = [1u64.to_le_bytes(), 0u64.to_le_bytes()].concat();
    let mut framed = bytes.to_vec();
    framed.extend_from_slice(&crc(&[&place, bytes]).to_le_bytes());
    for framed in [Bytes::copy_from_slice(bytes), framed.into()] {
        let _ = frame::open(FileId(1), 0, &framed);
    }
    if let Some(handle) = Handle::decode(bytes) {
        let mut encoded = Vec::new();
        handle.encode(&mut encoded);
        assert_eq!(bytes.get(..HANDLE_BYTES), Some(&encoded[..]));
        assert!(handle.end().is_none_or(|end| end > handle.offset));
    }
    if let Ok(properties) = Properties::decode_checked(bytes) {
        assert!(properties.deletes() <= properties.cells);
    }
    if let Ok(filter) = Filter::parse(Bytes::copy_from_slice(bytes)) {
        for row in [&b""[..], b"row", bytes] {
            let _ = filter.may_contain(row_hash(row));
        }
    }
});

fn footer(bytes: &[u8]) {
    if let Ok(footer) = Footer::decode(bytes) {
        assert_eq!(footer.encode(), bytes);
    }
}
