//! Index blocks of sstables: any bytes are refused or answer every question about them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::index::IndexBlock;

fuzz_target!(|bytes: &[u8]| {
    let Ok(index) = IndexBlock::parse(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    for n in 0..index.len().saturating_add(1) {
        let _ = (index.separator(n), index.child(n), index.lists_handles());
    }
    let _ = (index.find(b"", true), index.find(bytes, false));
});
