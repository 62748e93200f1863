//! Compressed blocks: any payload is refused or stays within the limit; what was compressed comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_sstable::compress::{Compressor, decompress};
use stele_types::Compression;

fuzz_target!(|bytes: &[u8]| {
    for kind in [
        Compression::None,
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd,
    ] {
        let _ = decompress(kind, bytes);
        if let Some(packed) = Compressor::new(kind, 1).compress(bytes) {
            let unpacked = decompress(kind, &packed).expect("what was compressed decompresses");
            assert_eq!(unpacked, bytes);
        }
    }
});
