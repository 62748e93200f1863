//! Data blocks of sstables: any bytes are refused or can be walked from both ends, to the same cells.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::block::{Block, BlockCursor};

fuzz_target!(|bytes: &[u8]| {
    let Ok(block) = Block::parse(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let mut cursor = BlockCursor::default();
    cursor.set_block(block);
    let (forward, reached_end) = walk(&mut cursor, true);
    let (backward, reached_start) = walk(&mut cursor, false);
    // A block whose restarts are out of order may show other cells to other ways in, or none; it must not panic.
    let sound = restarts_ascend(bytes) && reached_end && reached_start;
    let sorted = forward.is_sorted_by(|a, b| a.0 < b.0);
    if sound {
        assert!(forward.iter().eq(backward.iter().rev()));
    }
    for (at, (key, value)) in forward.iter().enumerate().step_by(5).take(20) {
        let found = search(&mut cursor, key);
        if sound && sorted {
            assert_eq!(found, Some((key.clone(), value.clone())));
        }
        let before = cursor.seek_before(key);
        if before == Ok(true) {
            assert!(cursor.key() < &key[..]);
        }
        if sound && sorted {
            assert_eq!(before, Ok(at > 0));
        }
        if before == Ok(true) && cursor.retreat() == Ok(true) {
            let _ = (cursor.value_bytes(), cursor.advance());
        }
    }
    search(&mut cursor, bytes);
    if cursor.seek_before(bytes) == Ok(true) {
        assert!(cursor.key() < bytes);
    }
});

/// The first cell not below `target`, if it is found.
fn search(cursor: &mut BlockCursor, target: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if cursor.seek(target) != Ok(true) {
        return None;
    }
    assert!(cursor.key() >= target);
    assert_eq!(cursor.value_bytes(), cursor.value());
    Some((cursor.key().to_vec(), cursor.value().to_vec()))
}

/// Whether the restarts at the end of the block are in order.
fn restarts_ascend(bytes: &[u8]) -> bool {
    restarts(bytes).is_some_and(|restarts| restarts.is_sorted_by(|a, b| a < b))
}

fn restarts(bytes: &[u8]) -> Option<Vec<u32>> {
    let (rest, count) = bytes.split_last_chunk::<4>()?;
    let count = u32::from_le_bytes(*count);
    let mut end = rest.len().checked_sub(8)?;
    let (mut number, mut width) = (count as usize, 4);
    if count >> 31 == 1 {
        number = (count & 0x3fff_ffff) as usize;
        width = if count >> 30 & 1 == 1 { 4 } else { 2 };
        let lengths = end.checked_sub(10)?;
        let [common, tail] = *rest.get(lengths..)?.first_chunk()?;
        end = lengths.checked_sub(usize::from(common) + usize::from(tail) + 8 * number)?;
    }
    let restarts = rest.get(end.checked_sub(width * number)?..end)?.chunks_exact(width);
    Some(restarts.map(|n| n.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))).collect())
}

/// The cells in one direction, and whether they ended without an error.
fn walk(cursor: &mut BlockCursor, forward: bool) -> (Vec<(Vec<u8>, Vec<u8>)>, bool) {
    let mut cells = Vec::new();
    let mut step = if forward {
        cursor.seek_first()
    } else {
        cursor.seek_last()
    };
    while step == Ok(true) {
        assert!(cursor.is_valid());
        assert_eq!(cursor.value_bytes(), cursor.value());
        cells.push((cursor.key().to_vec(), cursor.value().to_vec()));
        step = if forward { cursor.advance() } else { cursor.retreat() };
    }
    (cells, step.is_ok())
}
