//! Row filters of sstables: any bytes are refused or answer without reaching outside.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::filter::{Filter, row_hash};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(filter) = Filter::parse(Bytes::copy_from_slice(bytes)) {
        for row in [&b""[..], b"row", bytes] {
            let _ = filter.may_contain(row_hash(row));
        }
    }
});
