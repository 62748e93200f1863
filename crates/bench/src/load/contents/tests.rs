//! Replays against plain sets.
#![allow(clippy::single_range_in_vec_init, reason = "one span is a list of one")]

use super::*;
use crate::plan::{KeyOrder, Keys, Workload};
use std::collections::HashSet;

fn written(operation: Operation, records: u64, order: KeyOrder, spans: Vec<Range<u64>>) -> Written {
    Written {
        workload: Workload {
            mix: vec![(operation, 1.0)],
            keys: Keys {
                records,
                order,
                ..Keys::default()
            },
            ..Workload::default()
        },
        seed: 3,
        spans,
        ..Written::default()
    }
}

/// The set of keys must agree with contents and row count.
fn check(written: &[Written], keys: &HashSet<u64>, end: u64) {
    let contents = Contents::replay(written).unwrap();
    for key in 0..end + 200 {
        let expected = if keys.contains(&key) {
            Presence::Present
        } else {
            Presence::Absent
        };
        assert_eq!(contents.presence(key), expected, "key {key}");
    }
    let mut ascending: Vec<u64> = keys.iter().copied().collect();
    ascending.sort_unstable();
    assert_eq!(contents.present().collect::<Vec<u64>>(), ascending);
    for (start, stop) in [
        (0, end),
        (1, 64),
        (63, 65),
        (64, 128),
        (7, 7),
        (9, 3),
        (100, 1_000),
        (end / 2, u64::MAX),
    ] {
        let counted = keys.iter().filter(|&&key| start <= key && key < stop).count() as u64;
        assert_eq!(contents.count(start..stop), counted, "keys {start} to {stop}");
    }
    assert_eq!(expected_rows(written), keys.len() as u64);
}

#[test]
fn nothing_written_is_nothing() {
    check(&[], &HashSet::new(), 10);
    let read = written(Operation::Get, 10, KeyOrder::Sequential, vec![0..10]);
    check(&[read], &HashSet::new(), 10);
}

#[test]
fn a_load_in_order_needs_no_bitmap() {
    let load = written(Operation::Put, 1_000, KeyOrder::Sequential, vec![0..400, 400..1_000]);
    let contents = Contents::replay(std::slice::from_ref(&load)).unwrap();
    assert!(contents.bits.is_empty());
    check(&[load], &(0..1_000).collect(), 1_000);
}

#[test]
fn gaps_random_keys_and_inserts_are_replayed() {
    let gap = written(Operation::Put, 1_000, KeyOrder::Sequential, vec![0..300, 500..600]);
    let random = written(Operation::Put, 2_000, KeyOrder::Uniform, vec![0..100, 700..900]);
    let insert = written(Operation::Insert, 1_000, KeyOrder::Sequential, vec![5..10]);
    let mut keys: HashSet<u64> = (0..300).chain(500..600).chain(1_005..1_010).collect();
    let operations = Operations::new(&random.workload, random.seed).unwrap();
    keys.extend((0..100).chain(700..900).map(|i| operations.at(i).key));
    check(&[gap, random, insert], &keys, 2_000);
}

#[test]
fn windows_of_a_large_key_space_add_up() {
    let random = written(Operation::Put, 1_000, KeyOrder::Uniform, vec![0..1_500]);
    let replays = [Replay::new(&random).unwrap()];
    let whole = count_bits(&bitmap(&replays, done, &(0..1_000)), 0..1_000);
    let parts: u64 = [(0, 100), (100, 777), (777, 1_000)]
        .iter()
        .map(|&(start, end)| count_bits(&bitmap(&replays, done, &(start..end)), 0..end - start))
        .sum();
    assert_eq!(whole, parts);
    assert_eq!(whole, expected_rows(&[random]));
}

#[test]
fn a_key_space_too_large_to_follow_is_refused() {
    let huge = written(Operation::Put, BITMAP_KEYS_MAX + 1, KeyOrder::Uniform, vec![0..10]);
    assert!(Contents::replay(&[huge]).is_err());
}

#[test]
fn what_failed_may_or_may_not_be_there() {
    let mut load = written(Operation::Put, 100, KeyOrder::Sequential, vec![0..50]);
    load.uncertain = vec![40..60];
    let contents = Contents::replay(std::slice::from_ref(&load)).unwrap();
    let presences: Vec<Presence> = [0, 45, 50, 59, 60].map(|key| contents.presence(key)).to_vec();
    use Presence::{Absent, Present, Unsure};
    assert_eq!(presences, [Present, Present, Unsure, Unsure, Absent]);
    assert_eq!((contents.count(0..100), expected_rows(&[load])), (50, 50));
}
