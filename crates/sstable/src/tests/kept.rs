//! Tests which blocks stay in the cache.

use super::files::*;
use crate::{Cache, Cursor, CursorOptions, Sstable, WriteOptions};
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
