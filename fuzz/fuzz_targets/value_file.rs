//! Value files: any bytes are refused or are read within bounds.
//!
//! This holds for header, record and reference, also behind valid checksums. Decoded values encode to the same bytes.
#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use stele_fuzz::{crc, storage};
use stele_storage::Storage;
use stele_tablet::StoredFile;
use stele_tablet::values::file::{self, ValueFile};
use stele_tablet::values::{self, HEADER_BYTES, RECORD_BYTES, REFERENCE_BYTES, ValueRef};
use stele_types::FileId;

const FILE: FileId = FileId(7);
const OFFSET: u64 = 24;

fuzz_target!(|bytes: &[u8]| {
    header(bytes);
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let mut right = *header;
        let checksum = crc(&[&right[..12], &right[16..]]);
        right[12..16].copy_from_slice(&checksum.to_le_bytes());
        self::header(&right);
    }
    whole(bytes);
    let _ = values::decode_record(FILE, OFFSET, bytes);
    let (before, behind, checksum) = values::frame(FILE, OFFSET, bytes, 0);
    let record = [&before[..], bytes, &behind].concat();
    let decoded = values::decode_record(FILE, OFFSET, &record).expect("as it was written");
    assert_eq!(
        (decoded.payload, decoded.compression, decoded.crc),
        (bytes, 0, checksum)
    );
    assert_eq!(values::record_len(&record), Some(record.len()));
    assert!(values::decode_record(FILE, OFFSET + 1, &record).is_err());
    if let Some(reference) = bytes.get(..REFERENCE_BYTES).and_then(ValueRef::decode) {
        assert_eq!(Some(&reference.encode()[..]), bytes.get(..REFERENCE_BYTES));
    }
    if let Some(file) = std::str::from_utf8(bytes).ok().and_then(StoredFile::parse_path) {
        assert_eq!(file.path().as_bytes(), bytes);
    }
});

fn header(bytes: &[u8]) {
    if let Ok(file) = values::decode_header(bytes) {
        assert_eq!(Some(&values::encode_header(file)[..]), bytes.get(..HEADER_BYTES));
    }
}

/// As a file: read through, printed, and asked for the value that a reference stands for.
fn whole(bytes: &[u8]) {
    let mut file = values::encode_header(FILE).to_vec();
    file.extend_from_slice(bytes);
    let path = StoredFile::Values(FILE).path();
    let storage = storage([(path.as_str(), Bytes::from(file))]);
    let open = || block_on(storage.open(&path)).expect("just made");
    let _ = block_on(file::inspect(open(), true));
    let checked = block_on(file::check(&*open(), FILE, |_| {}, |_, _, _| {})).expect("the header is right");
    assert!(checked.bytes <= bytes.len() as u64);
    if let Some(reference) = bytes.get(..REFERENCE_BYTES).and_then(ValueRef::decode) {
        let values = block_on(ValueFile::open(open(), FILE)).expect("the header is right");
        let _ = block_on(values.read(reference));
        let here = ValueRef {
            file: FILE,
            offset: OFFSET,
            payload_len: bytes.len().saturating_sub(RECORD_BYTES) as u32,
            ..reference
        };
        let _ = block_on(values.read(here));
    }
}
