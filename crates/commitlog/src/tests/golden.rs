//! Tests of the bytes of version 1. A change of these bytes is a new version.

use super::*;
use crate::format::{GroupHeader, SegmentHeader};

const GOLDEN: &[u8] = include_bytes!("../../testdata/v1.log");

/// One segment of two groups, the second unsynced behind the first.
fn segment() -> Vec<u8> {
    let header = SegmentHeader {
        version: 1,
        stream: 2,
        number: 0x0300,
        previous: 0x02ff,
        previous_len: 4711,
        previous_synced: 4000,
    };
    let mut out = header.encode().to_vec();
    for (records, unsynced) in [(vec![record(1, 0), record(9, 1)], 56), (vec![record(1, 2)], 0)] {
        let records_len: usize = records.iter().map(Record::frame_len).sum();
        let group = GroupHeader {
            records_len: records_len as u32,
            records: records.len() as u32,
            offset: out.len() as u64,
            unsynced,
        };
        out.extend_from_slice(&group.encode(header.number));
        for record in records {
            out.extend_from_slice(&record.encode_header());
            out.extend_from_slice(record.payload.bytes());
        }
    }
    out
}

#[test]
fn segments_are_written_as_ever() {
    assert!(segment() == GOLDEN, "the bytes of a segment have changed");
}

#[tokio::test]
async fn segments_are_read_as_ever() {
    let storage: Arc<dyn Storage> = stele_storage::memory::MemoryStorage::new();
    let path = crate::format::segment_path(2, 0x0300);
    storage.put_if_absent(&path, Bytes::from_static(GOLDEN)).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 2]);
    let file = storage.open(&path).await.unwrap();
    let shown = crate::inspect(file, |_| String::new()).await.unwrap();
    assert_eq!(shown, include_str!("../../testdata/v1.txt"));
}
