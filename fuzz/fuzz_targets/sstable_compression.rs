//! Compressed blocks: any payload is refused or stays within the limit.
//!
//! Compressed blocks decompress to their content. Any bytes are a dictionary.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::compress::{Compressor, decompress, decompress_with};
use stele_sstable::dictionary::{Dictionary, train};
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
    let (dictionary, content) = bytes.split_at(bytes.len() / 2);
    let prepared = Dictionary::new(&Bytes::copy_from_slice(dictionary));
    let mut compressor = Compressor::new(Compression::Zstd, 1);
    if let Ok(prepared) = prepared
        && compressor.use_dictionary(dictionary)
    {
        let _ = decompress_with(&prepared, content);
        if let Some(packed) = compressor.compress_with_dictionary(content) {
            assert_eq!(decompress_with(&prepared, &packed).as_deref(), Ok(content));
        }
    }
    let _ = train(bytes.chunks(64), 256);
});
