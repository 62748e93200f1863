//! A cursor must move as over a sorted map. The options do not matter, nor whether reads block.

use super::files::*;
use crate::limits::{BLOCK_TARGET_BYTES_MIN, VALUE_INLINE_BYTES_MAX};
use crate::{Cursor, CursorOptions, SstableError, Step, WriteOptions};
use futures::executor::block_on;
use proptest::prelude::*;
use stele_types::key::row_prefix;
use stele_types::schema::Compression;
use stele_types::{CellKind, FileId};

fn cells() -> impl Strategy<Value = Cells> {
    let bytes = |max| {
        prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0xff), Just(b'a'), any::<u8>()],
            0..max,
        )
    };
    let kind = (1u8..=8).prop_map(|k| CellKind::from_byte(k).expect("1..=8 are kinds"));
    let timestamp = prop_oneof![0i64..4, 1_000i64..100_000, any::<i64>()];
    let seq = prop_oneof![0u64..4, 1u64 << 40..(1 << 40) + 500, any::<u64>()];
    let key = (bytes(5), bytes(4), timestamp, seq, kind).prop_map(|(r, q, t, s, k)| {
        let q = if matches!(
            k,
            CellKind::DeleteRow | CellKind::DeleteFamily | CellKind::DeleteFamilyVersion
        ) {
            vec![]
        } else {
            q
        };
        key(&r, &q, t, s, k)
    });
    let large = prop::collection::vec(any::<u8>(), 3).prop_map(|b| b.repeat(VALUE_INLINE_BYTES_MAX / 3 + 1));
    let value = prop_oneof![60 => prop::collection::vec(any::<u8>(), 0..40), 1 => large];
    prop::collection::btree_map(key, value, 1..300)
}

fn write_options() -> impl Strategy<Value = WriteOptions> {
    let compression = (0u8..4).prop_map(|c| Compression::from_byte(c).expect("0..4 are compressions"));
    (
        compression,
        prop_oneof![Just(64usize), 64usize..2_000, Just(32 << 10)],
        0u32..12,
        prop_oneof![Just(0usize), Just(64), Just(1 << 10)],
    )
        .prop_map(
            |(compression, block_bytes, filter_bits_per_row, dictionary_bytes)| WriteOptions {
                compression,
                block_bytes,
                filter_bits_per_row,
                dictionary_bytes,
                ..options()
            },
        )
}

#[derive(Clone, Debug)]
enum Move {
    Advance(usize),
    Retreat(usize),
    Seek(prop::sample::Index, usize),
    SeekBefore(prop::sample::Index, usize),
    Last,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    prop::collection::vec(
        prop_oneof![
            4 => (1usize..40).prop_map(Move::Advance),
            4 => (1usize..40).prop_map(Move::Retreat),
            4 => (any::<prop::sample::Index>(), 0usize..30).prop_map(|(i, cut)| Move::Seek(i, cut)),
            2 => (any::<prop::sample::Index>(), 0usize..30).prop_map(|(i, cut)| Move::SeekBefore(i, cut)),
            1 => Just(Move::Last),
        ],
        1..40,
    )
}

/// A key of the file, a prefix of one, or one with a suffix: present and absent targets.
fn target(list: &[(&Vec<u8>, &Vec<u8>)], index: &prop::sample::Index, cut: usize) -> Vec<u8> {
    let mut target = list[index.index(list.len())].0.clone();
    match cut {
        0 => {}
        1 => target.push(0),
        cut => target.truncate(target.len().saturating_sub(cut)),
    }
    target
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn moves_like_a_sorted_map(
        cells in cells(), write_options in write_options(), resident: bool, fill_cache: bool,
        cache_bytes in prop_oneof![Just(0usize), Just(20_000), Just(10 << 20)],
        readahead_bytes in prop_oneof![Just(0usize), Just(500), Just(1 << 20)], moves in moves(),
    ) {
        let (bytes, meta) = write(&cells, write_options);
        prop_assert_eq!(meta.file_bytes, bytes.len() as u64);
        check_properties(&meta.properties, &cells);
        let table = open(Memory::new(bytes, resident), cache_bytes).expect("just written");
        prop_assert_eq!(table.properties(), &meta.properties);
        prop_assert_eq!(block_on(table.verify()), Ok(()));
        for row in rows_of(&cells) {
            prop_assert!(table.may_contain_row(&row));
        }
        let list: Vec<_> = cells.iter().collect();
        let mut cursor = Cursor::new(table, CursorOptions { fill_cache, readahead_bytes, single_row: false });
        let mut at: Option<usize> = None;
        for step in moves {
            let below = |target: &[u8]| list.partition_point(|(k, _)| k.as_slice() < target);
            let (times, seek, expected) = match &step {
                Move::Advance(n) => (*n, None, None),
                Move::Retreat(n) => (*n, None, None),
                Move::Seek(index, cut) => {
                    let target = target(&list, index, *cut);
                    (0, Some(cursor.seek(&target)), Some(below(&target)))
                }
                Move::SeekBefore(index, cut) => {
                    let target = target(&list, index, *cut);
                    (0, Some(cursor.seek_before(&target)), below(&target).checked_sub(1))
                }
                Move::Last => (0, Some(cursor.seek_last()), Some(list.len() - 1)),
            };
            if let Some(step) = seek {
                at = expected.filter(|&i| i < list.len());
                check(&mut cursor, step, at, &list, resident)?;
            }
            for _ in 0..times {
                let Some(i) = at else { break };
                let (step, next) = match step {
                    Move::Advance(_) => (cursor.advance(), Some(i + 1)),
                    _ => (cursor.retreat(), i.checked_sub(1)),
                };
                at = next.filter(|&i| i < list.len());
                check(&mut cursor, step, at, &list, resident)?;
            }
        }
    }
}

fn check(
    cursor: &mut Cursor,
    step: crate::Result<Step>,
    at: Option<usize>,
    list: &[(&Vec<u8>, &Vec<u8>)],
    resident: bool,
) -> Result<(), TestCaseError> {
    prop_assert!(!resident || step != Ok(Step::Pending), "resident data never blocks");
    let step = complete(cursor, step);
    prop_assert_eq!(step.as_ref(), Ok(&if at.is_some() { Step::Ready } else { Step::End }));
    prop_assert_eq!(cursor.status(), step.expect("just compared"));
    if let Some(i) = at {
        prop_assert_eq!(cursor.key(), list[i].0.as_slice());
        prop_assert_eq!(cursor.value(), list[i].1.as_slice());
        prop_assert_eq!(&cursor.value_bytes()[..], list[i].1.as_slice());
    }
    Ok(())
}

#[test]
fn values_are_slices_of_the_block() {
    let cells = grid(10, 1, 100);
    let (bytes, _) = write(
        &cells,
        WriteOptions {
            compression: Compression::None,
            ..options()
        },
    );
    let table = open(Memory::new(bytes.clone(), true), 0).expect("just written");
    let mut cursor = Cursor::new(
        table,
        CursorOptions {
            fill_cache: false,
            readahead_bytes: 0,
            single_row: false,
        },
    );
    assert_eq!(cursor.seek_first(), Ok(Step::Ready));
    assert_eq!(cursor.value().as_ptr(), cursor.value_bytes().as_ptr());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_cursor_for_single_rows_misses_none_of_their_cells(
        cells in cells(), write_options in write_options(), resident: bool, fill_cache: bool, absent in prop::collection::vec(0u8..3, 0..4),
    ) {
        let (bytes, _) = write(&cells, write_options);
        let table = open(Memory::new(bytes, resident), 1 << 20).expect("just written");
        let options = CursorOptions {
            fill_cache,
            readahead_bytes: 0,
            single_row: true,
        };
        let mut cursor = Cursor::new(table, options);
        for row in rows_of(&cells).into_iter().chain([row_prefix(&absent)]) {
            let step = cursor.seek(&row);
            let mut step = complete(&mut cursor, step);
            for (key, value) in cells.range(row.clone()..).take_while(|(key, _)| key.starts_with(&row)) {
                prop_assert_eq!(step, Ok(Step::Ready));
                prop_assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                let moved = cursor.advance();
                step = complete(&mut cursor, moved);
            }
            prop_assert!(step == Ok(Step::End) || step == Ok(Step::Ready) && cursor.key() > &row[..] && !cursor.key().starts_with(&row));
            // A seek ahead within the row, as by a reader that skips a part of it.
            for (key, _) in cells.range(row.clone()..).take_while(|(key, _)| key.starts_with(&row)) {
                let behind = [&key[..], &[0]].concat();
                let step = cursor.seek(&behind);
                let step = complete(&mut cursor, step);
                match cells.range(behind..).next().filter(|(key, _)| key.starts_with(&row)) {
                    Some((next, _)) => {
                        prop_assert_eq!(step, Ok(Step::Ready));
                        prop_assert_eq!(cursor.key(), &next[..]);
                    }
                    None => prop_assert!(step == Ok(Step::End) || !cursor.key().starts_with(&row)),
                }
            }
        }
    }
}

#[test]
fn a_row_at_the_end_of_its_block_is_read_without_the_next_one() {
    let cells = grid(500, 1, 10);
    let (bytes, meta) = write(
        &cells,
        WriteOptions {
            block_bytes: 64,
            ..options()
        },
    );
    assert!(meta.properties.data_blocks > 100);
    let mut read = [0, 0];
    for single_row in [false, true] {
        let file = Memory::new(bytes.clone(), false);
        let table = open(file.clone(), 0).expect("just written");
        for row in rows_of(&cells) {
            let options = CursorOptions {
                fill_cache: false,
                readahead_bytes: 0,
                single_row,
            };
            let mut cursor = Cursor::new(table.clone(), options);
            let step = cursor.seek(&row);
            assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
            let step = cursor.advance();
            complete(&mut cursor, step).expect("nothing is damaged");
        }
        read[usize::from(single_row)] = file.reads.lock().expect("one thread").len();
    }
    assert!(read[1] + 100 < read[0], "{read:?} reads");
}

#[test]
fn a_sequential_scan_reads_ahead_in_both_directions() {
    let cells = grid(5_000, 1, 1_000);
    let (bytes, meta) = write(
        &cells,
        WriteOptions {
            compression: Compression::None,
            ..options()
        },
    );
    assert!(meta.properties.data_blocks > 100);
    for forward in [true, false] {
        let file = Memory::new(bytes.clone(), false);
        let table = open(file.clone(), 0).expect("just written");
        let mut cursor = Cursor::new(
            table,
            CursorOptions {
                fill_cache: false,
                readahead_bytes: 1 << 20,
                single_row: false,
            },
        );
        let mut step = if forward {
            cursor.seek_first()
        } else {
            cursor.seek_last()
        };
        let mut seen = 0;
        while complete(&mut cursor, step) == Ok(Step::Ready) {
            seen += 1;
            step = if forward { cursor.advance() } else { cursor.retreat() };
        }
        assert_eq!(seen, cells.len());
        let reads = file.reads.lock().expect("one thread");
        assert!(
            reads.len() < 20,
            "{} reads for {} blocks",
            reads.len(),
            meta.properties.data_blocks
        );
        assert!(reads.iter().all(|&(_, len)| len <= 1 << 20));
    }
}

#[test]
fn a_large_value_has_a_block_of_its_own() {
    let mut cells = grid(5, 1, 10);
    if let Some(value) = cells.values_mut().nth(2) {
        *value = vec![1; VALUE_INLINE_BYTES_MAX + 1];
    }
    let (_, meta) = write(&cells, options());
    assert_eq!(meta.properties.data_blocks, 3);
    if let Some(value) = cells.values_mut().nth(2) {
        value.pop();
    }
    let block_bytes = 4 << 20;
    let (_, meta) = write(
        &cells,
        WriteOptions {
            block_bytes,
            ..options()
        },
    );
    assert_eq!(meta.properties.data_blocks, 1);
}

#[test]
fn a_distant_seek_ends_read_ahead_and_a_near_one_does_not() {
    let cells = grid(5_000, 1, 1_000);
    let (bytes, _) = write(
        &cells,
        WriteOptions {
            compression: Compression::None,
            block_bytes: 8 << 10,
            ..options()
        },
    );
    let keys: Vec<_> = cells.keys().collect();
    let reads = |stride: usize| {
        let file = Memory::new(bytes.clone(), false);
        let table = open(file.clone(), 0).expect("just written");
        let options = CursorOptions {
            fill_cache: false,
            readahead_bytes: 1 << 20,
            single_row: false,
        };
        let mut cursor = Cursor::new(table, options);
        let opening = file.reads.lock().expect("one thread").len();
        // A block holds about 30 cells; each round steps into the next block once.
        for at in (0..4_000).step_by(stride) {
            let step = cursor.seek(keys[at]);
            assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
            for _ in 0..30 {
                let step = cursor.advance();
                assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
            }
        }
        let reads = file.reads.lock().expect("one thread");
        // The first read after opening is the index block.
        let blocks = &reads[opening + 1..];
        (blocks.iter().map(|&(_, len)| len).max(), blocks.len())
    };
    let (near, near_reads) = reads(40);
    assert!(near > Some(256 << 10) && near_reads < 16, "{near:?} {near_reads}");
    let (far, _) = reads(400);
    assert!(far < Some(80 << 10), "{far:?}");
}

#[test]
fn a_seek_within_the_block_reads_nothing() {
    let cells = grid(1_000, 1, 10);
    let block_bytes = 16 << 10;
    let (bytes, _) = write(
        &cells,
        WriteOptions {
            block_bytes,
            ..options()
        },
    );
    let file = Memory::new(bytes, false);
    let table = open(file.clone(), 0).expect("just written");
    let mut cursor = Cursor::new(table, CursorOptions::default());
    let keys: Vec<_> = cells.keys().collect();
    let step = cursor.seek(keys[10]);
    assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
    let before = file.reads.lock().expect("one thread").len();
    for at in [11, 300, 5, 6] {
        assert_eq!(cursor.seek(keys[at]), Ok(Step::Ready));
        assert_eq!(cursor.key(), keys[at].as_slice());
    }
    assert_eq!(file.reads.lock().expect("one thread").len(), before);
}

#[test]
fn many_index_blocks() {
    let cells = grid(20_000, 1, 40);
    let (bytes, meta) = write(
        &cells,
        WriteOptions {
            block_bytes: 64,
            ..options()
        },
    );
    assert!(meta.properties.index_blocks > 5, "{}", meta.properties.index_blocks);
    let table = open(Memory::new(bytes, false), 1 << 20).expect("just written");
    assert_eq!(block_on(table.verify()), Ok(()));
    let mut cursor = Cursor::new(table, CursorOptions::default());
    for (key, value) in cells.iter().step_by(97) {
        let step = cursor.seek(key);
        assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
        assert_eq!((cursor.key(), cursor.value()), (key.as_slice(), value.as_slice()));
    }
    let mut step = cursor.seek_last();
    for key in cells.keys().rev() {
        assert_eq!(complete(&mut cursor, step), Ok(Step::Ready));
        assert_eq!(cursor.key(), key.as_slice());
        step = cursor.retreat();
    }
    assert_eq!(complete(&mut cursor, step), Ok(Step::End));
    assert_eq!(read_all(&mut cursor), Ok(cells));
}

#[test]
fn futures_can_move_between_threads() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let (mut writer, storage) = new_writer(options());
    writer
        .add(&key(b"a", b"", 1, 1, CellKind::Put), b"")
        .expect("well-formed");
    block_on(sent(writer.flush())).expect("memory does not fail");
    block_on(sent(writer.finish())).expect("memory does not fail");
    let cache = std::sync::Arc::new(crate::Cache::new(0));
    let file = Memory::new(content(&storage), false);
    let table = block_on(sent(crate::Sstable::open(file, FILE, cache))).expect("just written");
    block_on(sent(table.verify())).expect("just written");
    block_on(sent(table.split_row(None, None))).expect("just written");
    let mut cursor = sent(Cursor::new(table, CursorOptions::default()));
    assert_eq!(cursor.seek_first(), Ok(Step::Pending));
    assert_eq!(cursor.advance(), Ok(Step::Pending));
    drop(cursor.load());
    assert_eq!(block_on(sent(cursor.load())), Ok(Step::Ready));
}

#[test]
fn a_failed_write_cannot_be_followed_by_a_good_one() {
    let mut writer = crate::SstableWriter::new(Box::new(Full), options());
    for (key, value) in grid(40, 1, 1_000) {
        writer.add(&key, &value).expect("sorted and well-formed");
    }
    let failure = block_on(writer.flush()).expect_err("the device is full");
    assert_eq!(failure.kind(), stele_types::ErrorKind::ResourceExhausted);
    assert_eq!(block_on(writer.finish()), Err(failure));
}

#[test]
fn the_writer_refuses_what_it_cannot_read_back() {
    let (mut writer, _) = new_writer(options());
    let (low, high) = (key(b"a", b"", 1, 1, CellKind::Put), key(b"b", b"", 1, 1, CellKind::Put));
    assert!(matches!(
        writer.add(b"short", b""),
        Err(SstableError::InvalidCell { .. })
    ));
    assert_eq!(writer.add(&high, b""), Ok(()));
    for key in [&low, &high] {
        assert!(matches!(writer.add(key, b""), Err(SstableError::OutOfOrder { .. })));
    }
    assert_eq!(writer.cells(), 1, "refused cells leave no trace");
    let (empty, _) = new_writer(options());
    assert_eq!(block_on(empty.finish()), Err(SstableError::Empty));
}

#[test]
fn a_file_opened_under_another_id_is_refused() {
    let (bytes, _) = write(&grid(10, 1, 10), options());
    let cache = std::sync::Arc::new(crate::Cache::new(0));
    let other = block_on(crate::Sstable::open(Memory::new(bytes, true), FileId(1), cache));
    assert!(matches!(other, Err(SstableError::Corruption { .. })));
}

/// Rows of little more than a number: the file must end before the hashes for its filter take more memory than the file
/// has bytes.
#[test]
fn rows_of_next_to_nothing_count_with_their_hashes() {
    const ROWS: u64 = 50_000;
    let options = WriteOptions {
        compression: Compression::Zstd,
        ..options()
    };
    let estimated = |filter_bits_per_row| {
        let (mut writer, _storage) = new_writer(WriteOptions {
            filter_bits_per_row,
            ..options.clone()
        });
        for row in 0..ROWS {
            let key = key(&row.to_be_bytes(), b"q", 1_000, 1, CellKind::Put);
            writer.add(&key, b"").unwrap();
        }
        writer.estimated_bytes()
    };
    let (without, with) = (estimated(0), estimated(10));
    assert!(without < 8 * ROWS, "{without} bytes: too large to prove anything");
    assert_eq!(with, 8 * ROWS);
}

/// Keys with common prefixes of kilobytes, as clients may choose them. The block with all separators of a file must not
/// grow with them beyond a readable size. Nor may a file grow without end whose data compresses to nothing.
#[test]
fn long_separators_make_larger_index_blocks() {
    let long = "q".repeat(16 << 10);
    let cell = |n: u64| {
        let qualifier = format!("{long}{n:05}");
        let key = key(b"row", qualifier.as_bytes(), 1_000, n, CellKind::Put);
        (key, vec![n as u8])
    };
    let cells: Cells = (0..200).map(cell).collect();
    let options = WriteOptions {
        block_bytes: BLOCK_TARGET_BYTES_MIN,
        compression: Compression::Lz4,
        ..options()
    };
    let (mut writer, _storage) = new_writer(options.clone());
    for (key, value) in &cells {
        writer.add(key, value).unwrap();
    }
    let estimated = writer.estimated_bytes();
    assert!(estimated > 150 * (16 << 10), "{estimated} bytes");

    let (bytes, meta) = write(&cells, options);
    let index_blocks = meta.properties.index_blocks;
    assert!(index_blocks < 100, "{index_blocks} index blocks");
    let table = open(Memory::new(bytes, true), 0).unwrap();
    let mut cursor = Cursor::new(table, CursorOptions::default());
    assert_eq!(read_all(&mut cursor).unwrap(), cells);
}
