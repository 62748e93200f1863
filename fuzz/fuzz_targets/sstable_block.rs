//! Data blocks of sstables: any bytes are refused or can be walked from both ends.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::block::Block;

fuzz_target!(|bytes: &[u8]| {
    let _ = Block::parse(Bytes::copy_from_slice(bytes));
});
