//! Value files: any bytes are refused or answer without reaching outside, as header, record and reference; also behind
//! right checksums. What is decoded encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_fuzz::crc;
use stele_tablet::StoredFile;
use stele_tablet::values::{self, HEADER_BYTES, REFERENCE_BYTES, ValueRef};
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
    let _ = values::decode_record(FILE, OFFSET, bytes);
    let (before, behind, checksum) = values::frame(FILE, OFFSET, bytes, 0);
    let record = [&before[..], bytes, &behind].concat();
    let decoded = values::decode_record(FILE, OFFSET, &record).expect("as it was written");
    assert_eq!((decoded.payload, decoded.compression, decoded.crc), (bytes, 0, checksum));
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
