//! Tests which blocks stay in the cache.

use super::files::*;
use crate::{Cache, Cursor, CursorOptions, Sstable, Step, WriteOptions};
use futures::executor::block_on;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reads each block once of several times the cache's capacity, and counts the blocks that were not admitted.
fn turned_away(reads_from_memory: bool) -> u64 {
    let (bytes, _) = write(
        &grid(40_000, 1, 100),
        WriteOptions {
            block_bytes: 1_024,
            ..options()
        },
    );
    let file = Memory::new(bytes, true);
    file.reads_from_memory.store(reads_from_memory, Ordering::Relaxed);
    let cache = Arc::new(Cache::new(1 << 20));
    let table = block_on(Sstable::open(file, FILE, cache.clone())).expect("just written");
    let mut cursor = Cursor::new(
        table,
        CursorOptions {
            readahead_bytes: 0,
            ..CursorOptions::default()
        },
    );
    assert_eq!(read_all(&mut cursor).expect("whole").len(), 40_000);
    drop(cursor);
    cache.stats().turned_away
}

#[test]
fn only_blocks_that_are_at_hand_are_not_kept() {
    assert!(turned_away(true) > 1_000);
    assert_eq!(turned_away(false), 0);
}

const CHUNK_BYTES: u64 = 16 << 10;

/// A table of a remote file, of which chunks are read; random reads of it, and those that went to storage.
fn read_randomly(cache_bytes: usize) -> (Arc<Cache>, u64, usize) {
    let cells = grid(10_000, 1, 100);
    let smaller = WriteOptions {
        block_bytes: 1_024,
        ..options()
    };
    let (bytes, _) = write(&cells, smaller);
    let chunks = bytes.len() as u64 / CHUNK_BYTES + 1;
    let file = Memory::new(bytes, false);
    file.reads_from_memory.store(false, Ordering::Relaxed);
    file.chunk_bytes.store(CHUNK_BYTES, Ordering::Relaxed);
    let cache = Arc::new(Cache::new(cache_bytes));
    let table = block_on(Sstable::open(file.clone(), FILE, cache.clone())).expect("just written");
    file.reads.lock().expect("one thread").clear();
    let cells: Vec<_> = cells.iter().collect();
    let options = CursorOptions {
        single_row: true,
        ..CursorOptions::default()
    };
    for read in 0..cells.len() {
        // Each cell once, far from the one before.
        let (key, value) = cells[read * 7_919 % cells.len()];
        let mut cursor = Cursor::new(table.clone(), options);
        let step = cursor.seek(key);
        assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
        assert_eq!((cursor.key(), cursor.value()), (key.as_slice(), value.as_slice()));
    }
    let reads = file.reads.lock().expect("one thread").len();
    (cache, chunks, reads)
}

#[test]
fn a_chunk_is_fetched_once_or_twice_while_its_blocks_fit_into_the_cache() {
    let (cache, chunks, reads) = read_randomly(16 << 20);
    assert!(chunks > 10, "{chunks} chunks");
    // Index blocks are read, too, and a block may lie in two chunks.
    assert!(reads as u64 <= 3 * chunks, "{reads} reads of {chunks} chunks");
    assert_eq!(cache.stats().evicted_bytes, 0);
}

#[test]
fn neighbours_of_a_block_evict_nothing() {
    let (cache, chunks, reads) = read_randomly(64 << 10);
    assert!(reads as u64 > 20 * chunks, "the cache holds a few blocks");
    // Each read inserts its own block, and sometimes an index block.
    let stats = cache.stats();
    assert!(stats.inserted_bytes < 3 * reads as u64 * 1_500, "{stats:?}");
}
