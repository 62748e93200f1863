//! Batches of mutations, the payload of log records: any bytes are refused or can be applied.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_tablet::Batch;
use stele_types::{CellKey, SeqNo};

fuzz_target!(|bytes: &[u8]| {
    let Some(batch) = Batch::decode(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let (first, last) = (SeqNo(1), SeqNo(batch.len()));
    let numbered = Batch::decode_record(batch.bytes().clone(), first, last);
    assert_eq!(numbered.is_some(), !batch.is_empty());
    let mut entries = 0;
    batch.entries(first, |key, _| {
        assert!(
            CellKey::decode(key).is_some(),
            "an entry has a key the memtable cannot hold"
        );
        entries += 1;
    });
    assert_eq!(entries, batch.len());
});
