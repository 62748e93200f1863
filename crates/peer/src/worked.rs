//! The work behind a read of another server's tablet, for a call that is explained.
//!
//! A caller whose call is counted ([`work`]) asks for it, if the connection has version 3. The owner counts as it reads, and
//! sends the counts with the last frame of the stream.

use crate::cursor::{Cursor, Decoded};
use crate::segments::Segments;
use bytes::Bytes;
use stele_env::work::Work;

/// The counts in the order of the protocol.
pub(crate) fn encode_work(work: &Work) -> Segments {
    let mut out = Segments::default();
    for count in [
        work.row_cache_hits,
        work.memtables,
        work.runs,
        work.files,
        work.files_used(),
        work.filters_asked,
        work.filters_excluded,
        work.blocks_cached,
        work.blocks_read,
        work.block_bytes_read,
        work.values_read,
        work.value_bytes_read,
    ] {
        out.u64(count);
    }
    out
}

pub(crate) fn decode_work(body: Bytes) -> Decoded<Work> {
    let mut fields = Cursor::new("work of a read", body);
    let mut work = Work::default();
    for count in [
        &mut work.row_cache_hits,
        &mut work.memtables,
        &mut work.runs,
        &mut work.files,
        &mut work.files_used_elsewhere,
        &mut work.filters_asked,
        &mut work.filters_excluded,
        &mut work.blocks_cached,
        &mut work.blocks_read,
        &mut work.block_bytes_read,
        &mut work.values_read,
        &mut work.value_bytes_read,
    ] {
        // A sum of counts that were made up must not overflow.
        *count = fields.u64()?.min(u64::from(u32::MAX) << 16);
    }
    fields.finish()?;
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_back() {
        let expected: Vec<u8> = (1..=12_u64).flat_map(u64::to_le_bytes).collect();
        let work = decode_work(Bytes::from(expected.clone())).unwrap();
        assert_eq!(
            (work.row_cache_hits, work.files_used(), work.value_bytes_read),
            (1, 5, 12)
        );
        let encoded = encode_work(&work).into_bytes();
        // Byte for byte: a change is a new version of the protocol.
        assert_eq!(encoded[..], expected[..]);
        assert!(decode_work(encoded.slice(..95)).is_err());
    }
}
