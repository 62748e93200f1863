//! The encoded order must be the order of the decoded tuples. Decoding must reject bytes that encoding cannot make.

use super::*;
use proptest::prelude::*;

fn small_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![Just(0u8), Just(1), Just(2), Just(0xfe), Just(0xff), any::<u8>()],
        0..6,
    )
}

fn kind() -> impl Strategy<Value = CellKind> {
    (1u8..=9).prop_map(|k| CellKind::from_byte(k).expect("1..=9 are kinds"))
}

prop_compose! {
    fn cell()(row in small_bytes(), family in prop_oneof![1u32..4, Just(255), Just(256), any::<u32>()],
              qualifier in small_bytes(), ts in prop_oneof![-2i64..3, any::<i64>()], seq in any::<u64>(), kind in kind())
              -> CellKey<'static> {
        let level = kind.level();
        CellKey {
            row: Cow::Owned(row),
            family: FamilyId(if level == Level::Row { 0 } else { family.max(1) }),
            qualifier: Cow::Owned(if matches!(level, Level::Row | Level::Family) { vec![] } else { qualifier }),
            timestamp: Timestamp(ts), seq: SeqNo(seq), kind,
        }
    }
}

/// The order the byte table promises, written without the encoding.
fn sort_key(c: &CellKey<'_>) -> impl Ord + use<> {
    let (in_family, in_column, is_cell) = match c.kind.level() {
        Level::Row => (0, 0, 0),
        Level::Family => (1, 0, 0),
        Level::Column => (1, 1, 0),
        Level::Cell => (1, 1, 1),
    };
    let newest_first = (std::cmp::Reverse(c.timestamp), std::cmp::Reverse(c.seq), c.kind as u8);
    (
        c.row.to_vec(),
        in_family,
        c.family,
        in_column,
        c.qualifier.to_vec(),
        is_cell,
        newest_first,
    )
}

proptest! {
    #[test]
    fn order_is_the_order_of_the_parts(a in cell(), b in cell()) {
        prop_assert_eq!(a.encode().cmp(&b.encode()), sort_key(&a).cmp(&sort_key(&b)));
    }

    #[test]
    fn decode_inverts_encode(a in cell()) {
        let bytes = a.encode();
        prop_assert_eq!(CellKey::decode(&bytes), Some(a));
    }

    #[test]
    fn a_row_is_measured_with_or_without_escapes(a in cell(), cut in any::<prop::sample::Index>()) {
        let key = a.encode();
        let key = &key[..cut.index(key.len() + 1)];
        let measured = measure_row_prefix(key);
        prop_assert_eq!(measured.map(|(len, _)| len), row_prefix_len(key));
        if let Some((_, is_plain)) = measured {
            prop_assert_eq!(is_plain, !a.row.contains(&0));
        }
    }

    #[test]
    fn a_buffer_keeps_its_row(a in cell(), b in cell()) {
        let mut buf = KeyBuf::new();
        buf.set_row(&a.row);
        buf.set_after_row(b.family, &b.qualifier, b.timestamp, b.seq, b.kind);
        buf.set_after_row(a.family, &a.qualifier, a.timestamp, a.seq, a.kind);
        prop_assert_eq!(buf.as_slice(), &a.encode()[..]);
    }

    #[test]
    fn whatever_decodes_is_canonical(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Some(key) = CellKey::decode(&bytes) {
            prop_assert_eq!(key.encode(), bytes);
        }
    }

    #[test]
    fn splitting_one_after_the_other_is_parsing(cells in prop::collection::vec(cell(), 0..12), repeats in 1usize..3,
                                                broken in any::<(bool, u8, u8)>()) {
        let mut splitter = KeySplitter::default();
        let mut was_put = false;
        for cell in cells.iter().flat_map(|cell| std::iter::repeat_n(cell, repeats)) {
            let mut key = cell.encode();
            let row_end = row_prefix_len(&key).expect("just encoded");
            if broken.0 {
                let at = usize::from(broken.1) % key.len();
                key[at] = broken.2;
            }
            let parts = KeyParts::parse_after_row(&key, row_end);
            let column = parts.map(|parts| key[parts.row_end..parts.qualifier_end].to_vec());
            let same = splitter.put_in_same_column(&key, row_end);
            let is_put = parts.filter(|parts| parts.kind == CellKind::Put && column.as_deref() == Some(splitter.column()));
            // The previous key may have been a tombstone of the column.
            if same.is_some() || was_put {
                prop_assert_eq!(same, is_put.map(|parts| (parts.timestamp, parts.seq)));
            }
            prop_assert_eq!(splitter.split(&key, row_end).copied(), parts);
            was_put = parts.is_some_and(|parts| parts.kind == CellKind::Put);
            if was_put {
                prop_assert_eq!(Some(splitter.column()), column.as_deref());
            }
        }
    }

    #[test]
    fn short_strings_are_the_same_when_equal(a in prop::collection::vec(any::<u8>(), 0..20), at in any::<usize>(), cut in any::<bool>()) {
        prop_assert!(is_same(&a, &a.clone()));
        let mut other = a.clone();
        if cut {
            other.push(0);
        } else if let Some(byte) = other.get_mut(at % a.len().max(1)) {
            *byte ^= 1;
        }
        prop_assert_eq!(is_same(&a, &other), a == other);
        prop_assert_eq!(is_same(&other, &a), a == other);
    }

    #[test]
    fn the_first_zero_is_found(bytes in prop::collection::vec(prop_oneof![3 => Just(1u8), 1 => Just(0), 1 => any::<u8>()], 0..40)) {
        prop_assert_eq!(first_zero(&bytes), bytes.iter().position(|&b| b == 0));
    }

    #[test]
    fn row_prefix_bounds_hold_exactly_the_row(a in cell(), other in small_bytes()) {
        let key = a.encode();
        let prefix = row_prefix(&other);
        let within = key >= prefix && key < row_prefix_end(&prefix);
        prop_assert_eq!(within, *a.row == *other);
    }

    #[test]
    fn no_row_lies_before_the_next(a in cell(), row in small_bytes()) {
        let next = next_row_prefix(&row_prefix(&row));
        prop_assert_eq!(&next, &row_prefix(&[&row[..], &[0]].concat()));
        prop_assert_eq!(a.encode() < next, a.row[..] <= row[..]);
    }
}
