//! Data blocks of sstables: any bytes are refused or can be walked.
//!
//! Walks from both ends give the same cells.
//!
//! Where the cells ascend, a search finds the result of a linear search, with a directory as well as without.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_sstable::DecodeError;
use stele_sstable::block::{Block, BlockCursor};
use stele_types::key::row_prefix_len;

/// Cells whose surroundings are searched, from the first to the last.
const SOUGHT: usize = 40;

fuzz_target!(|bytes: &[u8]| {
    let Ok(block) = Block::parse(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let mut cursor = BlockCursor::default();
    cursor.set_block(block.clone());
    let (forward, reached_end) = walk(&mut cursor, true);
    let (backward, reached_start) = walk(&mut cursor, false);
    // A block whose restarts are out of order may show other cells to other ways in, or none; it must not panic.
    let sound = restarts_ascend(bytes) && reached_end && reached_start;
    let sorted = forward.is_sorted_by(|a, b| a.0 < b.0);
    if sound {
        assert!(forward.iter().eq(backward.iter().rev()));
    }
    let cells = Some(&forward).filter(|_| sound && sorted);
    let directed = block.clone().with_directory();
    for block in [block, directed] {
        cursor.set_block(block);
        for (key, _) in forward.iter().step_by(forward.len().div_ceil(SOUGHT).max(1)) {
            let longer = [key, &[0][..]].concat();
            let other = [&key[..key.len() / 2], &[0xff]].concat();
            for target in [key, &longer, &other, &key[..key.len() - 1]] {
                search(&mut cursor, cells, target);
            }
        }
        search(&mut cursor, cells, bytes);
        search(&mut cursor, cells, b"");
    }
});

type Cells = Vec<(Vec<u8>, Vec<u8>)>;

/// Searches a target from both sides, and goes one step each way from there. `cells` are those of a well-formed block:
/// a linear search over them gives the expected result.
fn search(cursor: &mut BlockCursor, cells: Option<&Cells>, target: &[u8]) {
    let below = cells.map(|cells| cells.iter().take_while(|(key, _)| &key[..] < target).count());
    let found = cursor.seek(target);
    check(cursor, &found, cells, below);
    if found == Ok(true) {
        assert!(cursor.key() >= target);
        if cursor.is_last_of_row() {
            let row = row_prefix_len(cursor.key()).map(|len| cursor.key()[..len].to_vec());
            let next = cells.zip(below).and_then(|(cells, at)| cells.get(at + 1));
            assert!(next.is_none_or(|(next, _)| row.is_some_and(|row| !next.starts_with(&row))));
        }
        let back = cursor.retreat();
        check(cursor, &back, cells, below.map(|below| below.wrapping_sub(1)));
    }
    let _ = cursor.seek(target);
    if cursor.is_valid() {
        let on = cursor.advance();
        check(cursor, &on, cells, below.map(|below| below + 1));
    }
    let found = cursor.seek_before(target);
    check(cursor, &found, cells, below.map(|below| below.wrapping_sub(1)));
    if found == Ok(true) {
        assert!(cursor.key() < target);
        let on = cursor.advance();
        check(cursor, &on, cells, below);
    }
}

/// Whether a move has come to the cell at `expected`, or past the last one.
fn check(cursor: &BlockCursor, moved: &Result<bool, DecodeError>, cells: Option<&Cells>, expected: Option<usize>) {
    let here = (cursor.key().to_vec(), cursor.value().to_vec());
    if *moved == Ok(true) {
        assert!(cursor.is_valid());
        assert_eq!(cursor.value_bytes(), cursor.value());
    }
    if let Some((cells, expected)) = cells.zip(expected) {
        assert_eq!(moved, &Ok(expected < cells.len()));
        assert!(cells.get(expected).is_none_or(|cell| *cell == here), "another cell");
    }
}

/// Whether the restarts at the end of the block are in order.
fn restarts_ascend(bytes: &[u8]) -> bool {
    restarts(bytes).is_some_and(|restarts| restarts.is_sorted_by(|a, b| a < b))
}

fn restarts(bytes: &[u8]) -> Option<Vec<u32>> {
    let (rest, count) = bytes.split_last_chunk::<4>()?;
    let count = u32::from_le_bytes(*count);
    let number = (count & 0x3fff_ffff) as usize;
    let width = if count >> 30 & 1 == 1 { 4 } else { 2 };
    let lengths = rest.len().checked_sub(8 + 10)?;
    let [common, tail] = *rest.get(lengths..)?.first_chunk()?;
    let end = lengths.checked_sub(usize::from(common) + usize::from(tail) + 8 * number)?;
    let restarts = rest.get(end.checked_sub(width * number)?..end)?.chunks_exact(width);
    Some(
        restarts
            .map(|n| n.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
            .collect(),
    )
}

/// The cells in one direction, and whether they ended without an error.
fn walk(cursor: &mut BlockCursor, forward: bool) -> (Cells, bool) {
    let mut cells = Cells::new();
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
