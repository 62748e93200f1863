//! The tree against a sorted map, readers concurrent with a writer, and memory accounting.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn filled(entries: &BTreeMap<Vec<u8>, Vec<u8>>, order: &[Vec<u8>], batch: usize) -> Arc<Memtable> {
    let table = Memtable::new(MemoryAccount::default());
    for keys in order.chunks(batch) {
        table.insert_all(|insert| {
            keys.iter()
                .for_each(|key| insert.insert(key, &entries[key], SeqNo::ZERO))
        });
    }
    Arc::new(table)
}

/// Keys with parts in common and beginnings of one another; many of them, for a tree of three levels.
fn keys(count: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = || prop_oneof![0u8..4, Just(0xff)];
    let short = prop::collection::vec(byte(), 0..6);
    let long = prop::collection::vec(byte(), 3..9).prop_map(|end| [&[7; 20], &end[..]].concat());
    let any = prop::collection::vec(any::<u8>(), 4..5);
    prop::collection::vec(prop_oneof![short, long, any], 0..count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 16 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn behaves_like_a_sorted_map(mut keys in keys(if cfg!(miri) { 60 } else { 4000 }), probes in keys(50),
                                 order in 0..4, batch in 1usize..2000) {
        let entries: BTreeMap<Vec<u8>, Vec<u8>> = keys.iter().map(|k| (k.clone(), [k.as_slice(), b"v"].concat())).collect();
        match order {
            0 => keys.sort(),
            1 => keys.sort_by(|a, b| b.cmp(a)),
            2 => keys.chunks_mut(batch).for_each(|batch| batch.sort()),
            _ => (),
        }
        let table = filled(&entries, &keys, batch);
        prop_assert_eq!(table.len(), entries.len() as u64);
        let mut cursor = MemtableCursor::new(table);
        for probe in probes {
            let expected = entries.range(probe.clone()..).next();
            prop_assert_eq!(cursor.seek(&probe), expected.is_some());
            if let Some((key, value)) = expected {
                prop_assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            }
            let expected = entries.range(..probe.clone()).next_back();
            prop_assert_eq!(cursor.seek_before(&probe), expected.is_some());
            if let Some((key, _)) = expected {
                prop_assert_eq!(cursor.key(), &key[..]);
            }
        }
        cursor.seek(&[]);
        for key in entries.keys() {
            prop_assert_eq!(cursor.key(), &key[..]);
            cursor.advance();
        }
        prop_assert!(!cursor.is_valid());
        cursor.seek_before(&[0xff; 10]);
        for key in entries.keys().rev() {
            prop_assert_eq!(cursor.key(), &key[..]);
            cursor.retreat();
        }
        prop_assert!(!cursor.is_valid());
    }
}

/// The nodes at the edges were made for other keys than the later ones: groups of keys with a common prefix, one group
/// after the other, and then interleaved.
#[test]
fn keys_that_begin_otherwise_find_their_place() {
    let most = if cfg!(miri) { 30 } else { 12_000 };
    let mut random = 1u64;
    let mut number = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for round in 0..if cfg!(miri) { 2 } else { 20 } {
        let mut keys = Vec::new();
        // A node of few keys of the first group may get many of the second.
        for most in [most / 50 + 2, most, most / 4] {
            let begins = vec![number(256) as u8; 1 + number(2) as usize];
            keys.extend((0..most).map(|_| [&begins[..], &(number(1 << 20) as u32).to_be_bytes()].concat()));
        }
        let turned: Vec<Vec<u8>> = keys
            .iter()
            .step_by(7)
            .map(|key| key.iter().rev().copied().collect())
            .collect();
        keys.extend(turned);
        let entries: BTreeMap<Vec<u8>, Vec<u8>> = keys.iter().map(|key| (key.clone(), key.clone())).collect();
        let table = filled(&entries, &keys, 1 + round * 10);
        let mut cursor = MemtableCursor::new(table);
        cursor.seek(&[]);
        for key in entries.keys() {
            assert_eq!(cursor.key(), key);
            cursor.advance();
        }
        assert!(!cursor.is_valid());
        for key in keys.iter().take(1_000) {
            assert!(cursor.seek(key) && cursor.key() == key);
            let before = entries.range(..key.clone()).next_back();
            assert_eq!(cursor.seek_before(key), before.is_some());
            assert_eq!(cursor.key(), before.map_or(&[][..], |(before, _)| before));
        }
    }
}

/// Distinct keys in random-looking order, half of them behind a common beginning.
fn scattered(i: u32) -> Vec<u8> {
    let number = i.wrapping_mul(0x9e37_79b1).to_be_bytes();
    if i.is_multiple_of(2) {
        number.to_vec()
    } else {
        [&[0x80; 9], &number[..]].concat()
    }
}

/// Runs `read(table, done)` in two threads until all of `count` entries are in, inserted one by one.
fn with_concurrent_writer(count: u32, key: fn(u32) -> Vec<u8>, read: impl Fn(&Arc<Memtable>, u32) + Sync) {
    let table = Arc::new(Memtable::new(MemoryAccount::default()));
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Acquire) < u64::from(count) {
                    read(&table, done.load(Ordering::Acquire) as u32);
                }
            });
        }
        for i in 0..count {
            let key = key(i);
            table.insert_all(|insert| insert.insert(&key, &key, SeqNo(u64::from(i))));
            done.store(u64::from(i) + 1, Ordering::Release);
        }
    });
    assert_eq!(table.len(), u64::from(count));
}

/// Enough for hundreds of splits while readers are under way.
const RACED: u32 = if cfg!(miri) { 30 } else { 30_000 };

/// Scattered, growing and falling keys.
const ORDERS: [fn(u32) -> Vec<u8>; 3] = [scattered, |i| i.to_be_bytes().to_vec(), |i| (!i).to_be_bytes().to_vec()];

#[test]
fn walks_beside_a_writer_miss_nothing_and_stay_in_order() {
    for key in ORDERS {
        with_concurrent_writer(RACED, key, |table, done| {
            let mut cursor = MemtableCursor::new(table.clone());
            let (mut valid, mut seen, mut last) = (cursor.seek(&[]), 0, Vec::new());
            while valid {
                assert_eq!(cursor.key(), cursor.value(), "an entry was seen before it was complete");
                assert!(seen == 0 || cursor.key() > &last[..], "entries out of order");
                last.clear();
                last.extend_from_slice(cursor.key());
                seen += 1;
                valid = cursor.advance();
            }
            assert!(seen >= done, "an entry was missed");
        });
    }
}

#[test]
fn walks_backwards_beside_a_writer_miss_nothing_and_stay_in_order() {
    for key in ORDERS {
        with_concurrent_writer(RACED, key, |table, done| {
            let mut cursor = MemtableCursor::new(table.clone());
            let (mut valid, mut seen, mut last) = (cursor.seek_before(&[0xff; 14]), 0, Vec::new());
            while valid {
                assert!(seen == 0 || cursor.key() < &last[..], "entries out of order");
                last.clear();
                last.extend_from_slice(cursor.key());
                seen += 1;
                valid = cursor.retreat();
            }
            assert!(seen >= done, "an entry was missed");
        });
    }
}

#[test]
fn searches_beside_a_writer_find_what_was_inserted() {
    let picked = AtomicU64::new(0);
    with_concurrent_writer(RACED, scattered, |table, done| {
        let pick = picked.fetch_add(1, Ordering::Relaxed) as u32;
        let Some(i) = pick.wrapping_mul(0x85eb_ca6b).checked_rem(done) else {
            return;
        };
        let (key, mut cursor) = (scattered(i), MemtableCursor::new(table.clone()));
        assert!(cursor.seek(&key) && cursor.key() == key, "an entry was not found");
        let after = [&key[..], &[0]].concat();
        assert!(
            cursor.seek_before(&after) && cursor.key() == key,
            "an entry was not found backwards"
        );
        assert!(!cursor.seek(&after) || cursor.key() >= &after[..]);
        assert!(!cursor.seek_before(&key) || cursor.key() < &key[..]);
    });
}

/// Of values that share chunks of 2 MiB, all but those in the last, unfilled chunk are shared, and smaller ones are copied.
#[test]
fn values_of_a_sixteenth_of_their_chunk_are_shared() {
    let shared_of = |size: usize| {
        let table = Arc::new(Memtable::new(MemoryAccount::default()));
        let rounds = (12 << 20) / size;
        for round in 0..rounds {
            let key = (round as u32).to_be_bytes();
            table.insert_all(|insert| insert.insert(&key, &vec![1; size], SeqNo::ZERO));
        }
        let mut cursor = MemtableCursor::new(table);
        let (mut shared, mut valid) = (0, cursor.seek(&[]));
        while valid {
            shared += usize::from(cursor.value_bytes().as_ptr() == cursor.value().as_ptr());
            valid = cursor.advance();
        }
        (shared, rounds)
    };
    let (shared, all) = shared_of(200_000);
    assert!(shared >= all / 2, "{shared} of {all}");
    let (shared, all) = shared_of(100_000);
    assert!(shared < all / 2, "{shared} of {all}");
}

#[test]
fn large_values_share_memory_that_outlives_the_table() {
    let account = MemoryAccount::default();
    let table = Arc::new(Memtable::new(account.clone()));
    let sizes = [
        0,
        1,
        SHARED_BYTES_MIN - 1,
        SHARED_BYTES_MIN,
        100_000,
        300_000,
        3_000_000,
    ];
    let value = |round: usize, size: usize| vec![(round * 7 + size) as u8; size];
    for round in 0..if cfg!(miri) { 1 } else { 8 } {
        for size in sizes {
            let key = [round as u8, (size >> 16) as u8, (size >> 8) as u8, size as u8];
            table.insert_all(|insert| insert.insert(&key, &value(round, size), SeqNo::ZERO));
        }
    }
    let mut cursor = MemtableCursor::new(table);
    let mut values = Vec::new();
    let mut valid = cursor.seek(&[]);
    while valid {
        values.push((usize::from(cursor.key()[0]), cursor.value_bytes()));
        valid = cursor.advance();
    }
    let before = account.bytes();
    drop(cursor);
    assert!(account.bytes() < before, "what nobody shares was not freed");
    assert!(
        account.bytes() >= 3_000_000,
        "what is shared was freed or not accounted for"
    );
    for (round, shared) in values {
        assert_eq!(shared, value(round, shared.len()));
    }
    assert_eq!(account.bytes(), 0);
}

/// Lengths of one byte each have another encoding than longer ones. The remainder of the last four bytes is written
/// before the rest.
#[test]
fn cells_of_all_lengths_keep_what_they_were_given() {
    let mut entries = BTreeMap::new();
    for key_len in (0..9).chain(122..126) {
        for value_len in (0..9u32).chain(126..130).chain([16_383, 16_384]) {
            let key = [&value_len.to_be_bytes()[..], &vec![7u8; key_len][..]].concat();
            entries.insert(key, vec![9; value_len as usize]);
        }
    }
    let order: Vec<Vec<u8>> = entries.keys().cloned().collect();
    let mut cursor = MemtableCursor::new(filled(&entries, &order, 50));
    cursor.seek(&[]);
    for (key, value) in &entries {
        assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
        cursor.advance();
    }
    assert!(!cursor.is_valid());
}

#[test]
fn memory_follows_what_is_inserted() {
    for (count, value_bytes, per_entry_max) in [(100_000, 10, 88), (200_000, 100, 182), (40_000, 1000, 1180)] {
        if cfg!(miri) {
            return;
        }
        let table = Memtable::new(MemoryAccount::default());
        for i in 0..count {
            // As long as the key of a 20-byte row with one cell.
            let key = [&scattered(2 * i)[..], &[0; 42]].concat();
            table.insert_all(|insert| insert.insert(&key, &vec![1; value_bytes], SeqNo::ZERO));
        }
        let per_entry = table.bytes() / u64::from(count);
        assert!(
            per_entry <= per_entry_max,
            "{per_entry} bytes for a value of {value_bytes}"
        );
    }
}

#[test]
fn an_empty_table_takes_no_memory() {
    let account = MemoryAccount::default();
    let table = Arc::new(Memtable::new(account.clone()));
    let mut cursor = MemtableCursor::new(table);
    assert!(!cursor.seek(&[]) && !cursor.seek_before(&[0xff]) && !cursor.advance());
    assert_eq!(
        (cursor.key(), cursor.value_bytes(), account.bytes()),
        (&[][..], Bytes::new(), 0)
    );
}

#[test]
fn the_account_is_settled_when_tables_go() {
    let account = MemoryAccount::default();
    let table = Memtable::new(account.clone());
    table.insert_all(|insert| insert.insert(b"k", &[0; 100_000], SeqNo::ZERO));
    assert!(account.bytes() >= 100_000);
    drop(table);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn what_a_table_gives_back_is_used_again_and_bounded_by_what_is_in_use() {
    const MIB: u64 = 1 << 20;
    let account = MemoryAccount::default();
    let filled = |byte: u8, count: u64| {
        let table = Arc::new(Memtable::new(account.clone()));
        for n in 0..count {
            table.insert_all(|insert| insert.insert(&n.to_be_bytes(), &[byte; 100_000], SeqNo::ZERO));
        }
        table
    };
    let (stays, goes) = (filled(1, 400), filled(2, 400));
    drop(goes);
    let (in_use, spare) = (account.bytes(), account.spare_bytes());
    assert!(in_use / 4 - MIB < spare && spare <= in_use / 4, "{spare} of {in_use}");
    // A share of a value keeps its memory from being used again.
    let mut cursor = MemtableCursor::new(stays);
    assert!(cursor.seek(&[]));
    let value = cursor.value_bytes();
    drop(cursor);
    assert!(account.bytes() <= MIB);
    assert_eq!(account.spare_bytes(), 0, "kept for nobody");
    let goes = filled(3, 100);
    assert!(value.iter().all(|byte| *byte == 1));
    let before = account.bytes();
    drop((value, goes));
    assert!(before > 9 * MIB && account.spare_bytes() <= before / 4);
    assert_eq!(account.bytes(), 0);
    // While something is written, a quarter of a share, as far as the memory in use leaves that.
    account.keep_spare(64 * MIB);
    drop(filled(4, 400));
    assert!((14 * MIB..=16 * MIB).contains(&account.spare_bytes()));
    let stays = filled(5, 530);
    drop(filled(6, 200));
    let (in_use, spare) = (account.bytes(), account.spare_bytes());
    assert!(
        in_use > 50 * MIB && spare <= (64 * MIB - in_use).max(in_use / 4),
        "{spare} beside {in_use}"
    );
    drop(stays);
    // Memory of another size goes where it was.
    let table = Memtable::new(account.clone());
    let spare = account.spare_bytes();
    table.insert_all(|insert| insert.insert(b"k", &vec![0; 8 << 20], SeqNo::ZERO));
    assert!(account.spare_bytes() + 8 * MIB <= spare);
    drop(table);
    account.keep_spare(0);
    assert_eq!(account.spare_bytes(), 0);
}

#[test]
fn tables_that_go_leave_the_account_of_the_others_alone() {
    let account = MemoryAccount::default();
    let stays = Memtable::new(account.clone());
    stays.insert_all(|insert| insert.insert(b"k", &[0; 100_000], SeqNo::ZERO));
    let before = account.bytes();
    for _ in 0..100 {
        let goes = Memtable::new(account.clone());
        goes.insert_all(|insert| insert.insert(b"k", b"v", SeqNo::ZERO));
    }
    assert_eq!(account.bytes(), before);
}
