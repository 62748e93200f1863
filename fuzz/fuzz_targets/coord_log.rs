//! Coordination log and snapshot: any bytes are refused, or cut where they are torn, also behind right checksums.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_coord::format::{LOG_HEADER_BYTES, RECORD_HEADER_BYTES, decode_log, decode_snapshot, inspect};
use stele_fuzz::crc;

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
        let _ = decode_log(&bytes, generation);
    }
    let _ = decode_snapshot(&bytes);
    let _ = inspect(&bytes);
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
