//! Tablets of files whose filters are not in memory.

use super::*;

fn rows(tablet: &Tablet, rows: impl Iterator<Item = u32>) {
    for row in rows {
        write_row(tablet, Bytes::from(format!("row{row:05}")), vec![put(1, "v")]);
    }
}

/// A flush's estimate of how many rows it shares with older files, with `bloom_memory` bytes of memory for filters.
async fn overlap(bloom_memory: usize) -> u64 {
    let storage = MemoryStorage::new();
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1).with_bloom_memory(bloom_memory);
    let tablet = tablet_with(storage, schema(DeleteRule::BySequence, None), files).await;
    // One in four, in no order.
    rows(
        &tablet,
        (0..2_000).filter(|row: &u32| row.wrapping_mul(0x9e37_79b9) >> 30 == 0),
    );
    tablet.flush().await.unwrap();
    rows(&tablet, 0..2_000);
    tablet.flush().await.unwrap();
    assert_eq!(
        tablet.sstables().iter().any(|(table, _)| table.holds_filter()),
        bloom_memory > 0
    );
    let state = tablet.state();
    let group = state.group(GroupId(0)).unwrap();
    let last = group.files.last().unwrap().reference.id();
    group.compaction_stats.known_overlap(last).unwrap()
}

/// A quarter of the rows, give or take the error of a sample.
#[tokio::test]
async fn overlaps_are_learnt_without_filters_in_memory() {
    for bloom_memory in [usize::MAX, 0] {
        let percent = overlap(bloom_memory).await;
        assert!((12..=38).contains(&percent), "{percent} with room for {bloom_memory}");
    }
}
