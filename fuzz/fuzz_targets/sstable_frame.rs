//! Block frames: any bytes are refused unless the checksum holds.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_types::FileId;

fuzz_target!(|bytes: &[u8]| {
    let _ = stele_sstable::frame::open(FileId(1), 0, &Bytes::copy_from_slice(bytes));
    let _ = stele_sstable::frame::Handle::decode(bytes);
});
