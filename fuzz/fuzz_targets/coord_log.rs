//! Coordination log and snapshot: any bytes are refused, or cut where they are torn.
//!
//! This holds behind valid checksums, too.
//!
//! Decoded content keeps its meaning when it is written again. A damaged folder is refused or repaired for good.
#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stele_coord::embedded::salvage::salvage;
use stele_coord::format::{
    LOG_HEADER_BYTES, RECORD_HEADER_BYTES, decode_log, decode_snapshot, encode_log_header, encode_record, inspect,
};
use stele_fuzz::{crc, storage};
use stele_storage::Storage;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    let mut sealed = bytes.to_vec();
    seal_log(&mut sealed);
    decode(&sealed);
    let mut sealed = bytes.to_vec();
    if sealed.len() > 16 {
        let checksum = crc(&[&sealed[..12], &sealed[16..]]);
        sealed[12..16].copy_from_slice(&checksum.to_le_bytes());
        decode(&sealed);
    }
});

fn decode(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    for generation in [0, 1] {
        let Ok(log) = decode_log(&bytes, generation) else {
            continue;
        };
        let records = log.records.iter();
        let records = records.map(|record| encode_record(generation, record.revision, &record.writes));
        let again = Bytes::from(
            [encode_log_header(generation)]
                .into_iter()
                .chain(records)
                .collect::<Vec<_>>()
                .concat(),
        );
        let again = decode_log(&again, generation).expect("what was encoded decodes");
        let content = |log: &stele_coord::format::Log| {
            let records = log
                .records
                .iter()
                .map(|record| (record.revision, record.writes.clone()));
            records.collect::<Vec<_>>()
        };
        assert_eq!(content(&again), content(&log));
    }
    let _ = decode_snapshot(&bytes);
    let _ = inspect(&bytes);
    // As either file of a folder that has only that one.
    for path in ["coord/snapshot-00000000000000000001", "coord/log-00000000000000000001"] {
        let storage: Arc<dyn Storage> = storage([(path, bytes.clone())]);
        if let Ok(Some(salvaged)) = block_on(salvage(&storage))
            && block_on(salvaged.put(&storage)).is_ok()
        {
            assert!(
                matches!(block_on(salvage(&storage)), Ok(None)),
                "damaged after the repair"
            );
        }
    }
}

/// Puts right checksums on the header and on every record whose length fits.
fn seal_log(bytes: &mut [u8]) {
    let Some((header, mut rest)) = bytes.split_at_mut_checked(LOG_HEADER_BYTES) else {
        return;
    };
    let checksum = crc(&[&header[..12], &header[16..]]);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    let generation = &header[16..];
    while let Some((head, body)) = rest.split_at_mut_checked(RECORD_HEADER_BYTES) {
        let len = head[4..8].try_into().map_or(0, u32::from_le_bytes) as usize;
        let Some((body, after)) = body.split_at_mut_checked(len) else {
            return;
        };
        let checksum = crc(&[generation, &head[..8]]);
        head[8..12].copy_from_slice(&checksum.to_le_bytes());
        let checksum = crc(&[generation, body]);
        head[12..16].copy_from_slice(&checksum.to_le_bytes());
        rest = after;
    }
}
