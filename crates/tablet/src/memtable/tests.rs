//! The skip list against a sorted map, and readers beside a writer.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn filled(entries: &BTreeMap<Vec<u8>, Vec<u8>>, order: &[Vec<u8>]) -> Arc<Memtable> {
    let table = Memtable::new(MemoryAccount::default());
    table.insert_all(|insert| {
        for key in order {
            insert(key, &entries[key], SeqNo::ZERO);
        }
    });
    Arc::new(table)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
    #[test]
    fn behaves_like_a_sorted_map(keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 0..200),
                                 probes in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 20)) {
        let entries: BTreeMap<Vec<u8>, Vec<u8>> = keys.iter().map(|k| (k.clone(), [k.as_slice(), b"v"].concat())).collect();
        let table = filled(&entries, &keys);
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
    }
}

#[test]
fn readers_see_complete_entries_while_a_writer_inserts() {
    let table = Arc::new(Memtable::new(MemoryAccount::default()));
    let count: u32 = if cfg!(miri) { 50 } else { 20_000 };
    let reader = |table: Arc<Memtable>| {
        move || {
            let mut last = 0;
            while last < count {
                let mut cursor = MemtableCursor::new(table.clone());
                let mut seen = 0;
                let mut valid = cursor.seek(&[]);
                while valid {
                    assert_eq!(cursor.key(), cursor.value(), "an entry was seen before it was complete");
                    seen += 1;
                    valid = cursor.advance();
                }
                assert!(seen >= last, "an entry disappeared");
                last = seen;
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(reader(table.clone()));
        for i in 0..count {
            let key = i.wrapping_mul(0x9e37_79b1).to_be_bytes();
            table.insert_all(|insert| insert(&key, &key, SeqNo(u64::from(i))));
        }
    });
    assert_eq!(table.len(), u64::from(count));
}

#[test]
fn the_account_is_settled_when_tables_go() {
    let account = MemoryAccount::default();
    let table = Memtable::new(account.clone());
    table.insert_all(|insert| insert(b"k", &[0; 100_000], SeqNo::ZERO));
    assert!(account.bytes() >= 100_000);
    drop(table);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn tables_that_go_leave_the_account_of_the_others_alone() {
    let account = MemoryAccount::default();
    let stays = Memtable::new(account.clone());
    stays.insert_all(|insert| insert(b"k", &[0; 100_000], SeqNo::ZERO));
    let before = account.bytes();
    for _ in 0..100 {
        let goes = Memtable::new(account.clone());
        goes.insert_all(|insert| insert(b"k", b"v", SeqNo::ZERO));
    }
    assert_eq!(account.bytes(), before);
}
