//! Files of encryption at rest: damage is refused with an error.
//!
//! Data keys and headers survive a round trip, also behind valid checksums. Any bytes in the place of an encrypted file are read the
//! same in one piece and in parts, or are refused both ways. Errors of key files quote no keys.
#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use stele_encryption::{
    EncryptedStorage, FileHeader, HEADER_BYTES, KeyFile, KeyName, KeyRecord, KeyRing, SystemRandom,
};
use stele_fuzz::crc;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;

/// A root with a key, which all inputs share.
static ROOT: LazyLock<(Arc<MemoryStorage>, Arc<EncryptedStorage>)> = LazyLock::new(|| {
    let below = MemoryStorage::new();
    let text = format!("k {}", "5a".repeat(32));
    let keys = KeyFile::parse(&text, Arc::new(SystemRandom)).expect("a valid key file");
    let ring = KeyRing::open(below.clone(), Arc::new(keys), Arc::new(SystemRandom));
    let ring = block_on(ring).expect("memory does not fail");
    (below.clone(), EncryptedStorage::of_root(below, ring))
});

fuzz_target!(|bytes: &[u8]| {
    record(bytes);
    record(&sealed(bytes));
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let sealed = sealed(header);
        for header in [header, sealed.first_chunk().expect("as long as before")] {
            if let Ok(decoded) = FileHeader::decode(header) {
                assert_eq!(&decoded.encode(), header);
            }
        }
    }
    whole(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some((name, number)) = KeyName::parse_path(text) {
            assert_eq!(name.path(number), text);
        }
        if let Err(error) = KeyFile::parse(text, Arc::new(SystemRandom)) {
            let error = error.to_string();
            assert!(
                !text
                    .split_whitespace()
                    .any(|word| word.len() > 16 && error.contains(word))
            );
        }
    }
});

fn record(bytes: &[u8]) {
    if let Ok(record) = KeyRecord::decode(bytes) {
        assert_eq!(record.encode(), bytes);
    }
    let _ = KeyRecord::inspect(bytes);
}

/// The same with a valid checksum at its end.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len().saturating_sub(4)];
    [body, &crc(&[body]).to_le_bytes()].concat()
}

fn whole(bytes: &[u8]) {
    let (below, storage) = &*ROOT;
    for path in ["sst/1.sst", "log/0/1.log"] {
        block_on(async {
            below.delete(path).await.expect("memory does not fail");
            let put = below.put_if_absent(path, Bytes::copy_from_slice(bytes));
            put.await.expect("the name is free");
            let (all, file) = (storage.read_all(path).await, storage.open(path).await);
            assert_eq!(all.is_ok(), file.is_ok());
            if let (Ok(all), Ok(file)) = (all, file) {
                assert_eq!(file.len(), all.len() as u64);
                let middle = all.len() / 2;
                for (from, to) in [(0, middle), (middle, all.len())] {
                    let part = file.read_at(from as u64, to - from).await;
                    assert_eq!(part.expect("within the file"), all[from..to]);
                }
            }
        });
    }
}
