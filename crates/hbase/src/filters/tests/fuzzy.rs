//! `FuzzyRowFilter` against a test of every row.

use super::*;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

/// A key whose byte is free where there is none.
type Key = Vec<Option<u8>>;

const KEY_BYTES: usize = 3;

fn fuzzy(keys: &[Key]) -> messages::Filter {
    let pair = |key: &Key| messages::BytesBytesPair {
        first: key.iter().map(|byte| byte.unwrap_or(7)).collect(),
        second: key.iter().map(|byte| if byte.is_none() { 2 } else { 0xFF }).collect(),
    };
    let message = messages::FuzzyRowFilter {
        fuzzy_keys_data: keys.iter().map(pair).collect(),
        is_mask_v2: Some(true),
    };
    filter("FuzzyRowFilter", &message)
}

/// The rows that a scan returns.
fn scanned<'r>(keys: &[Key], reversed: bool, rows: impl Iterator<Item = &'r Vec<u8>>) -> Vec<Vec<u8>> {
    let shape = ScanShape { reversed, ..shape() };
    let mut filter = decoded(&fuzzy(keys), &shape).unwrap();
    let mut kept = Vec::new();
    for row in rows {
        let mut cells = vec![cell("f:x@2=1"), cell("g:x@2=1")];
        if filter.row(row, &mut cells).unwrap() == RowVerdict::Kept {
            kept.push(row.clone());
        }
        if filter.all_remaining_filtered() {
            break;
        }
        // A scan may leave out the rows before this one, all of which the filter has skipped.
        if let Some(next) = filter.next_row() {
            assert!(if reversed { next < row[..] } else { next > row[..] });
        }
    }
    kept
}

#[test]
fn a_reversed_scan_finds_keys_of_fixed_zeros() {
    let rows = [vec![5, 1], vec![0, 2], vec![0, 1]];
    assert_eq!(scanned(&[vec![Some(0), None]], true, rows.iter()), rows[1..]);
}

fn byte() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0, 1, 254, 255])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Rows are at least as long as the keys: hints may lead past shorter ones.
    #[test]
    fn a_scan_in_either_direction_returns_every_row_that_matches(
        keys in vec(vec(prop::option::of(byte()), 1..=KEY_BYTES), 1..4),
        rows in btree_set(vec(byte(), KEY_BYTES..=KEY_BYTES + 1), 0..40),
    ) {
        let matches = |row: &&Vec<u8>| {
            let fits = |key: &Key| key.iter().zip(*row).all(|(key, byte)| key.is_none_or(|key| key == *byte));
            keys.iter().any(fits)
        };
        let mut expected: Vec<_> = rows.iter().filter(matches).cloned().collect();
        prop_assert_eq!(&scanned(&keys, false, rows.iter()), &expected);
        expected.reverse();
        prop_assert_eq!(&scanned(&keys, true, rows.iter().rev()), &expected);
    }
}
