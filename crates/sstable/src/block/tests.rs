//! One block against a sorted vector, and against noise.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Keys with long and short common prefixes and suffixes, also longer than a block stores once, and many versions of
/// one cell. The bodies need not be well-formed here.
fn cells() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let short = || prop::collection::vec(prop_oneof![0u8..3, Just(0xff)], 0..12);
    let around = (0usize..300, 0usize..300);
    prop_oneof![
        4 => versions(short().boxed()),
        1 => versions(Just(b"one cell".to_vec()).boxed()),
        1 => around.prop_flat_map(move |(before, behind)| {
            versions(short().prop_map(move |body| [&vec![7; before][..], &body, &vec![9; behind]].concat()).boxed())
        }),
    ]
}

fn versions(body: BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let trailer = (
        prop_oneof![-3i64..3, any::<i64>()],
        prop_oneof![0u64..5, any::<u64>()],
        1u8..=8,
    );
    let key = (body, trailer).prop_map(|(mut key, (timestamp, seq, kind))| {
        let kind = CellKind::from_byte(kind).expect("1..=8 are kinds");
        key.extend_from_slice(
            &Trailer {
                timestamp: Timestamp(timestamp),
                seq,
                kind,
            }
            .encode(),
        );
        key
    });
    let large = (any::<u8>(), 500usize..70_000).prop_map(|(byte, len)| vec![byte; len]);
    let value = prop_oneof![40 => prop::collection::vec(any::<u8>(), 0..10), 1 => large];
    prop::collection::btree_map(key, value, 1..80)
}

fn build(cells: &BTreeMap<Vec<u8>, Vec<u8>>) -> Block {
    let mut builder = BlockBuilder::default();
    let mut previous: &[u8] = &[];
    for (key, value) in cells {
        let (body, trailer) = Trailer::split(key).expect("has a trailer");
        // Rows of any length give tails of any length.
        let row_len = body.len().min(usize::from(trailer.seq as u8 % 8));
        builder.add(
            crate::index::common_prefix(previous, body),
            row_len,
            body,
            trailer,
            value,
        );
        previous = body;
    }
    let content = builder.finish();
    assert!(builder.is_empty());
    Block::parse(Bytes::from(content)).expect("just built")
}

proptest! {
    #[test]
    fn moves_like_a_sorted_vector(cells in cells(), moves in prop::collection::vec((0u8..6, any::<prop::sample::Index>()), 0..60)) {
        let list: Vec<_> = cells.iter().collect();
        let mut cursor = BlockCursor::default();
        cursor.set_block(build(&cells));
        let mut at: Option<usize> = None;
        for (what, index) in moves {
            let mut target = list[index.index(list.len())].0.clone();
            if index.index(3) == 0 {
                target.truncate(index.index(target.len()));
            }
            let below = list.partition_point(|(k, _)| **k < target);
            let (found, expected) = match (what, at) {
                (0, Some(i)) => (cursor.advance(), Some(i + 1)),
                (1, Some(i)) => (cursor.retreat(), i.checked_sub(1)),
                (2, _) => (cursor.seek(&target), Some(below)),
                (3, _) => (cursor.seek_before(&target), below.checked_sub(1)),
                (5, Some(i)) => {
                    // Moves back over all entries with a common prefix.
                    let prefix = &list[i].0[..index.index(list[i].0.len())];
                    match check_buffered(&cursor, prefix, &list[..=i])? {
                        Some(count) => (Ok(cursor.leave(count)), Some(i - count)),
                        None => continue,
                    }
                }
                (_, _) if index.index(2) == 0 => (cursor.seek_first(), Some(0)),
                (_, _) => (cursor.seek_last(), Some(list.len() - 1)),
            };
            at = expected.filter(|&i| i < list.len());
            prop_assert_eq!(found, Ok(at.is_some()));
            prop_assert_eq!(cursor.is_valid(), at.is_some());
            if let Some(i) = at {
                prop_assert_eq!(cursor.key(), list[i].0.as_slice());
                prop_assert_eq!(cursor.value(), list[i].1.as_slice());
                prop_assert_eq!(&cursor.value_bytes()[..], list[i].1.as_slice());
            }
        }
    }

    #[test]
    fn walks_back_with_what_begins_alike_at_hand(cells in cells(), len in 0usize..12) {
        let list: Vec<_> = cells.iter().collect();
        let mut cursor = BlockCursor::default();
        cursor.set_block(build(&cells));
        let mut left = list.len();
        let mut more = cursor.seek_last();
        while more == Ok(true) {
            let current = list[left - 1].0;
            prop_assert_eq!(cursor.key(), current.as_slice());
            let prefix = current.get(..len).unwrap_or(current);
            if let Some(count) = check_buffered(&cursor, prefix, &list[..left])? {
                prop_assert!(cursor.leave(count));
                left -= count;
            } else {
                more = cursor.retreat();
                left -= 1;
            }
        }
        prop_assert_eq!((more, left), (Ok(false), 0));
    }

    #[test]
    fn short_varints_are_varints(mut numbers in prop::collection::vec((any::<u64>(), 0u32..64), 1..20), rest in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut bytes = Vec::new();
        for (number, shift) in &mut numbers {
            *number >>= *shift;
            varint::put_u64(&mut bytes, *number);
        }
        let (mut at, mut passed) = (0, 0);
        for (number, _) in numbers {
            prop_assert_eq!(take_varint(&bytes, &mut at), Some(number));
            prop_assert_eq!((pass_varint(&bytes, &mut passed), passed), (Some(()), at));
        }
        prop_assert_eq!(at, bytes.len());
        bytes.extend_from_slice(&rest);
        let mut slow = &bytes[at..];
        let expected = varint::take_u64(&mut slow);
        prop_assert_eq!(take_varint(&bytes, &mut at), expected);
        prop_assert!(expected.is_none() || bytes.len() - at == slow.len());
    }

    #[test]
    fn noise_never_panics_and_always_ends(
        noise in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200),
        restarts in prop::collection::vec(0u32..200, 1..4), target in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut content = noise;
        content.extend_from_slice(&[0; 4]);
        for restart in &restarts {
            content.extend_from_slice(&restart.to_le_bytes());
        }
        // Words, no common bytes, no column tail, both bases.
        content.extend_from_slice(&vec![0; WORD_BYTES * (restarts.len() + 1)]);
        content.extend_from_slice(&[0; EXTENSION_BYTES + 8]);
        content.extend_from_slice(&((restarts.len() as u32 + 1) | LAYOUT | WIDE).to_le_bytes());
        exercise(Bytes::from(content), &target)?;
    }

    #[test]
    fn a_block_without_the_layout_bit_is_refused(cells in cells()) {
        let mut content = build(&cells).content.to_vec();
        *content.last_mut().expect("has a count") &= 0x7f;
        let error = Block::parse(Bytes::from(content)).expect_err("bit 31 is clear");
        prop_assert!(error.detail.contains("expected bit 31 to be set"), "{}", error.detail);
    }

    #[test]
    fn noise_behind_a_good_end_never_panics_and_always_ends(
        noise in prop::collection::vec(prop_oneof![0u8..4, Just(0x71), any::<u8>()], 1..200),
        restarts in prop::collection::vec((0u16..200, prop_oneof![Just(0u64), any::<u64>()]), 0..4),
        common in prop::collection::vec(0u8..3, 0..10), tail in prop::collection::vec(any::<u8>(), 0..10),
        target in prop::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..20),
    ) {
        let mut content = noise;
        let mut restarts = restarts;
        restarts.insert(0, (0, 0));
        restarts.sort_unstable();
        restarts.iter().for_each(|(at, _)| content.extend_from_slice(&at.to_le_bytes()));
        restarts.iter().for_each(|(_, word)| content.extend_from_slice(&word.to_be_bytes()));
        content.extend_from_slice(&common);
        content.extend_from_slice(&tail);
        content.extend_from_slice(&[common.len() as u8, tail.len() as u8]);
        content.extend_from_slice(&[0; 16]);
        content.extend_from_slice(&(restarts.len() as u32 | LAYOUT).to_le_bytes());
        exercise(Bytes::from(content), &target)?;
    }

    #[test]
    fn a_damaged_block_never_panics_and_always_ends(cells in cells(), at: prop::sample::Index, bit in 0u8..8) {
        let mut content = build(&cells).content.to_vec();
        let at = at.index(content.len());
        content[at] ^= 1 << bit;
        exercise(Bytes::from(content), cells.keys().next_back().expect("not empty"))?;
    }
}

/// Checks the resident entries and their number; `list` ends with the current entry.
fn check_buffered(
    cursor: &BlockCursor,
    prefix: &[u8],
    list: &[(&Vec<u8>, &Vec<u8>)],
) -> Result<Option<usize>, TestCaseError> {
    let belongs = |key: &[u8]| key.starts_with(prefix);
    let Some(entries) = cursor.buffered(belongs) else {
        return Ok(None);
    };
    let count = list.iter().rev().take_while(|(key, _)| belongs(key)).count();
    prop_assert_eq!(entries.len(), count);
    prop_assert!(count < list.len(), "the one before is known");
    for ((key, value), (expected, content)) in entries.zip(&list[list.len() - count..]) {
        prop_assert_eq!(key, expected.as_slice());
        prop_assert_eq!(value.as_slice(), content.as_slice());
        prop_assert_eq!(&value.to_bytes()[..], content.as_slice());
    }
    Ok(Some(count))
}

/// Walks and seeks until an error or the end; every step must make progress.
fn exercise(content: Bytes, target: &[u8]) -> Result<(), TestCaseError> {
    let Ok(block) = Block::parse(content) else {
        return Ok(());
    };
    let limit = block.bytes() + 1;
    let mut cursor = BlockCursor::default();
    cursor.set_block(block);
    let mut steps = 0;
    let mut more = cursor.seek_first();
    while let Ok(true) = more {
        let _ = cursor.value_bytes();
        steps += 1;
        prop_assert!(steps <= limit);
        more = cursor.advance();
    }
    more = cursor.seek_last();
    while let Ok(true) = more {
        steps += 1;
        prop_assert!(steps <= 2 * limit);
        more = cursor.retreat();
    }
    if cursor.seek(target) == Ok(true) {
        prop_assert!(cursor.key() >= target);
        prop_assert_eq!(&cursor.value_bytes()[..], cursor.value());
    }
    if cursor.seek_before(target) == Ok(true) {
        prop_assert!(cursor.key() < target);
        prop_assert_eq!(&cursor.value_bytes()[..], cursor.value());
    }
    Ok(())
}

#[test]
fn small_cells_have_small_headers() {
    let mut builder = BlockBuilder::default();
    let mut previous = Vec::new();
    let count = 500;
    for row in 0..count {
        let mut key = stele_types::KeyBuf::new();
        let timestamp = Timestamp(1_700_000_000_000_000 + 131 * row);
        let seq = stele_types::SeqNo::new(stele_types::Epoch(1), 1_000 + row as u64);
        let name = format!("user{:08}", row * 17);
        key.set(
            name.as_bytes(),
            stele_types::FamilyId(1),
            b"q",
            timestamp,
            seq,
            CellKind::Put,
        );
        let key = key.into_vec();
        let (body, trailer) = Trailer::split(&key).expect("has a trailer");
        let row_len = stele_types::key::row_prefix_len(body).expect("a row");
        builder.add(
            crate::index::common_prefix(&previous, body),
            row_len,
            body,
            trailer,
            &[7; 10],
        );
        previous = body.to_vec();
    }
    let per_cell = builder.len() as f64 / count as f64;
    assert!(
        per_cell < 33.0,
        "{per_cell:.1} bytes for a cell of 21 key, 17 trailer and 10 value bytes"
    );
}

/// A longer walk has more resident entries, and long keys do not take much memory.
#[test]
fn a_walk_back_takes_ever_more_intervals_of_short_keys() {
    for (key_bytes, keys) in [(20, 3_000u32), (5_000, 300)] {
        let cells: BTreeMap<Vec<u8>, Vec<u8>> = (0..keys)
            .map(|n| {
                let trailer = Trailer {
                    timestamp: Timestamp(0),
                    seq: 1,
                    kind: CellKind::Put,
                };
                let body = [&vec![7; key_bytes][..], &n.to_be_bytes()].concat();
                ([&body[..], &trailer.encode()].concat(), vec![1])
            })
            .collect();
        let mut cursor = BlockCursor::default();
        cursor.set_block(build(&cells));
        let mut more = cursor.seek_last();
        // The length of a run is unknown only where the first resident entry is reached.
        let (mut unknown, mut seen) = (0, 0);
        while more == Ok(true) {
            seen += 1;
            unknown += usize::from(cursor.buffered(|key| key == cursor.key()).is_none());
            assert!(cursor.window_bytes() < 2 * (64 << 10) + 16 * 2 * key_bytes);
            more = cursor.retreat();
        }
        assert_eq!((more, seen), (Ok(false), cells.len()));
        let intervals = cursor.block().intervals();
        assert!(unknown * 3 < intervals, "{unknown} of {intervals}");
    }
}
