//! Compares searches with a directory to searches without one.

use crate::block::{Block, BlockBuilder, BlockCursor, Trailer};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use stele_types::{CellKind, Timestamp};

type Cells = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of rows that differ early or late, of one cell or several, with large values.
fn cells() -> impl Strategy<Value = Cells> {
    let name = prop_oneof![
        // Within one word, over several words, and with others as their prefixes.
        prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..4),
        prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..24),
        prop::collection::vec(prop_oneof![Just(b'a'), Just(0xff), 2u8..4], 8..12),
    ];
    let key = (0usize..2, name, 0u8..3, -2i64..2, 0u64..3).prop_map(|(prefix, name, column, timestamp, seq)| {
        let row = [&b"a common beginning "[..19 * prefix], &name[..]].concat();
        let trailer = Trailer {
            timestamp: Timestamp(timestamp),
            seq,
            kind: CellKind::Put,
        };
        let body = [&row[..], &[0, 1, 1, 1, 1, b'c', column + 2, 0, 1, 1]].concat();
        [&body[..], &trailer.encode()].concat()
    });
    let value = prop_oneof![300usize..1500, Just(0usize)].prop_map(|len| vec![b'v'; len]);
    prop::collection::btree_map(key, value, 1..20)
}

fn build(cells: &Cells) -> Block {
    let mut builder = BlockBuilder::default();
    let mut previous: &[u8] = &[];
    for (key, value) in cells {
        let (body, trailer) = Trailer::split(key).expect("has a trailer");
        let row_len = stele_types::key::row_prefix_len(body).expect("a row");
        let common = crate::index::common_prefix(previous, body);
        builder.add(common, row_len, body, trailer, value);
        previous = body;
    }
    Block::parse(Bytes::from(builder.finish())).expect("just built")
}

/// Every word of the block is in its directory, at most once per interval, and no other word is.
fn check_words(block: &Block, cells: &Cells) {
    let block = block.clone().with_directory();
    let Some(directory) = &block.directory else { return };
    let ends = block.common.len() + block.tail.len();
    let landmarks = &directory.0[..directory.0.len() - ends];
    let mut found: Vec<u64> = landmarks.as_chunks().0.iter().map(super::word).collect();
    found.dedup();
    let common = block.common();
    let word = |key: &Vec<u8>| match key.strip_prefix(common) {
        Some(rest) => u64::from_be_bytes(*rest.first_chunk().expect("a trailer is longer")),
        None => u64::MAX,
    };
    let mut expected: Vec<u64> = cells.keys().map(word).collect();
    expected.dedup();
    assert_eq!(found, expected);
}

fn cursor(block: Block) -> BlockCursor {
    let mut cursor = BlockCursor::default();
    cursor.set_block(block);
    cursor
}

proptest! {
    #[test]
    fn finds_what_a_search_without_it_finds(cells in cells(), picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..60, 0u8..3), 1..20)) {
        let block = build(&cells);
        check_words(&block, &cells);
        let (mut with, mut without) = (cursor(block.clone().with_directory()), cursor(block));
        let keys: Vec<_> = cells.keys().collect();
        for (pick, len, change) in picks {
            let mut target = keys[pick.index(keys.len())].clone();
            target.truncate(len.max(1));
            if let Some(last) = target.last_mut() {
                *last = last.wrapping_add(change).wrapping_sub(1);
            }
            let found = with.seek(&target);
            prop_assert_eq!(&found, &without.seek(&target));
            let mut valid = found == Ok(true);
            prop_assert_eq!(with.is_valid(), valid);
            // The cursor continues correctly in either direction.
            let mut back = pick.index(2) == 0;
            for _ in 0..4 {
                if !valid {
                    break;
                }
                prop_assert_eq!(with.key(), without.key());
                prop_assert_eq!(with.value(), without.value());
                if with.is_last_of_row() {
                    let row = with.key()[..stele_types::key::row_prefix_len(with.key()).unwrap()].to_vec();
                    let at = keys.partition_point(|key| key.as_slice() <= with.key());
                    prop_assert!(keys.get(at).is_none_or(|next| !next.starts_with(&row)));
                }
                let moved = if back { (with.retreat(), without.retreat()) } else { (with.advance(), without.advance()) };
                prop_assert_eq!(&moved.0, &moved.1);
                valid = moved.0 == Ok(true);
                back ^= len % 3 == 0;
            }
        }
    }
}

/// Rows of one cell of a kilobyte, the most common case for a directory.
fn kilobytes(rows: u64) -> (Vec<Vec<u8>>, Block) {
    let keys: Vec<Vec<u8>> = (0..rows)
        .map(|n| {
            let trailer = Trailer {
                timestamp: Timestamp(7 + n as i64 % 2),
                seq: 100 + n,
                kind: CellKind::Put,
            };
            let row = format!("user{:016x}", 0x1234_0000_0000_0000 + n * 0x0123_4567_89ab);
            [row.as_bytes(), &[0, 1, 1, 1, 1, b'v', 0, 1, 1], &trailer.encode()].concat()
        })
        .collect();
    let cells: Cells = keys.iter().map(|key| (key.clone(), vec![b'x'; 1000])).collect();
    (keys, build(&cells))
}

#[test]
fn large_entries_have_a_directory_and_lead_to_rows_of_one_cell() {
    let (keys, block) = kilobytes(8);
    assert!(block.directory.is_none());
    let block = block.with_directory();
    let memory = block.memory_bytes() - block.bytes();
    assert!((1..1 + block.bytes() / 10).contains(&memory), "{memory}");
    let mut cursor = cursor(block);
    for (n, key) in keys.iter().enumerate() {
        let row = &key[..stele_types::key::row_prefix_len(key).unwrap()];
        assert_eq!(cursor.seek(row), Ok(true));
        assert_eq!(cursor.key(), key.as_slice());
        assert_eq!(cursor.is_last_of_row(), n + 1 < keys.len(), "row {n}");
    }
}

#[test]
fn small_entries_have_none() {
    let cells: Cells = kilobytes(60).0.into_iter().map(|key| (key, vec![b'x'; 100])).collect();
    assert!(build(&cells).with_directory().directory.is_none());
}
