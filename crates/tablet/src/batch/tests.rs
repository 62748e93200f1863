//! Mutations put into a batch come out of it, and nothing else is accepted.

use super::*;
use proptest::prelude::*;
use stele_types::CellKey;

#[test]
fn entries_get_absolute_sequence_numbers_in_order() {
    let mut builder = BatchBuilder::default();
    let put = |v: &'static [u8]| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(7),
        value: Bytes::from_static(v),
    };
    let mutations = vec![Mutation::DeleteRow { up_to: Timestamp::MAX }, put(b"x"), put(b"y")];
    builder.push_row(&RowMutation {
        row: Bytes::from_static(b"r"),
        mutations,
    });
    let batch = builder.finish();
    assert_eq!(Batch::decode(batch.to_bytes()), Some(batch.clone()));
    let mut seen = Vec::new();
    let first = SeqNo::new(stele_types::Epoch(3), 100);
    batch.entries(first, |key, value| {
        let key = CellKey::decode(key).expect("what was encoded decodes");
        seen.push((key.seq.counter(), key.kind, value.to_vec()));
    });
    let expected = [
        (100, CellKind::DeleteRow, vec![]),
        (101, CellKind::Put, b"x".to_vec()),
        (102, CellKind::Put, b"y".to_vec()),
    ];
    assert_eq!(seen, expected);
    // Header; kind, row, far timestamp; kind, column, far timestamp, value; kind, value.
    assert_eq!(batch.byte_len(), 2 + (1 + 2 + 10) + (1 + 3 + 10 + 2) + (1 + 2));
    for cut in 0..batch.byte_len() {
        assert_eq!(Batch::decode(batch.to_bytes().slice(..cut)), None);
    }
}

#[test]
fn a_record_has_one_number_for_each_mutation() {
    let mut builder = BatchBuilder::default();
    let mutations = vec![Mutation::DeleteRow { up_to: Timestamp::MAX }; 2];
    builder.push_row(&RowMutation {
        row: Bytes::from_static(b"r"),
        mutations,
    });
    let batch = builder.finish();
    let decode = |first, last| Batch::decode_record(batch.to_bytes(), SeqNo(first), SeqNo(last));
    assert_eq!(decode(5, 6), Some(batch.clone()));
    let last_of_epoch = SeqNo::COUNTER_MAX;
    for (first, last) in [
        (5, 5),
        (5, 7),
        (6, 5),
        (u64::MAX, u64::MAX),
        (last_of_epoch, last_of_epoch + 1),
    ] {
        assert_eq!(decode(first, last), None, "{first}..={last}");
    }
    let empty = BatchBuilder::default().finish();
    assert_eq!(Batch::decode_record(empty.to_bytes(), SeqNo(1), SeqNo(0)), None);
}

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..max).prop_map(Bytes::from)
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let family = prop_oneof![Just(1u32), Just(2), 1u32..].prop_map(FamilyId);
    let qualifier = prop_oneof![Just(Bytes::new()), Just(Bytes::from_static(b"q")), bytes(4)];
    let time = || prop_oneof![Just(0i64), 1000i64..1010, any::<i64>()].prop_map(Timestamp);
    (0..9, family, qualifier, time(), time(), bytes(20)).prop_map(
        |(kind, family, qualifier, timestamp, from, value)| match kind {
            0 => Mutation::Merge {
                family,
                qualifier,
                timestamp,
                operand: Bytes::copy_from_slice(&from.0.to_be_bytes()),
            },
            1 => Mutation::DeleteRow { up_to: timestamp },
            2 => Mutation::DeleteFamily {
                family,
                up_to: timestamp,
            },
            3 => Mutation::DeleteFamilyVersion { family, timestamp },
            4 => Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to: timestamp,
            },
            5 => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            },
            6 => Mutation::ExpiringPut {
                family,
                qualifier,
                timestamp,
                stored: stele_types::lifetime::stored(from.0, &value),
            },
            _ => Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            },
        },
    )
}

fn row() -> impl Strategy<Value = RowMutation> {
    let rows = prop_oneof![Just(Bytes::from_static(b"r")), bytes(5)];
    (rows, prop::collection::vec(mutation(), 1..5)).prop_map(|(row, mutations)| RowMutation { row, mutations })
}

/// The expected entries of a batch: worked out from the mutations without the encoding of batches.
fn expected(rows: &[RowMutation], first: SeqNo) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for row in rows {
        for mutation in &row.mutations {
            use CellKind as K;
            let none = Bytes::new;
            let (family, qualifier, timestamp, kind, value) = match mutation.clone() {
                Mutation::Put {
                    family,
                    qualifier,
                    timestamp,
                    value,
                } => (family, qualifier, timestamp, K::Put, value),
                Mutation::ExpiringPut {
                    family,
                    qualifier,
                    timestamp,
                    stored,
                } => (family, qualifier, timestamp, K::ExpiringPut, stored),
                Mutation::Merge {
                    family,
                    qualifier,
                    timestamp,
                    operand,
                } => (family, qualifier, timestamp, K::Merge, operand),
                Mutation::DeleteRow { up_to } => (FamilyId(0), none(), up_to, K::DeleteRow, none()),
                Mutation::DeleteFamily { family, up_to } => (family, none(), up_to, K::DeleteFamily, none()),
                Mutation::DeleteFamilyVersion { family, timestamp } => {
                    (family, none(), timestamp, K::DeleteFamilyVersion, none())
                }
                Mutation::DeleteColumn {
                    family,
                    qualifier,
                    from,
                    to,
                } if from == Timestamp::MIN => (family, qualifier, to, K::DeleteColumn, none()),
                Mutation::DeleteColumn {
                    family,
                    qualifier,
                    from,
                    to,
                } => (family, qualifier, to, K::DeleteRange, key::range_delete_value(from)),
                Mutation::DeleteVersion {
                    family,
                    qualifier,
                    timestamp,
                } => (family, qualifier, timestamp, K::DeleteVersion, none()),
            };
            let seq = first.plus(entries.len() as u64);
            let (row, qualifier) = (row.row[..].into(), qualifier[..].into());
            let key = CellKey {
                row,
                family,
                qualifier,
                timestamp,
                seq,
                kind,
            };
            entries.push((key.encode(), value.to_vec()));
        }
    }
    entries
}

fn entries(batch: &Batch, first: SeqNo) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    batch.entries(first, |key, value| entries.push((key.to_vec(), value.to_vec())));
    entries
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(mut rows in prop::collection::vec(row(), 1..12), flip in any::<prop::sample::Index>(), bit in 0u8..8) {
        let first = SeqNo(77);
        let mut builder = BatchBuilder::default();
        rows.iter().for_each(|row| builder.push_row(row));
        let as_given = builder.finish();
        prop_assert_eq!(entries(&as_given, first), expected(&rows, first));

        let mut builder = BatchBuilder::default();
        builder.push_rows(&rows.clone().into());
        let batch = builder.finish();
        rows.sort_by(|a, b| a.row.cmp(&b.row));
        prop_assert_eq!(entries(&batch, first), expected(&rows, first));

        prop_assert_eq!(Batch::decode(batch.to_bytes()), Some(batch.clone()));
        for cut in 0..batch.byte_len() {
            prop_assert_eq!(Batch::decode(batch.to_bytes().slice(..cut)), None);
        }
        let mut rotten = batch.to_bytes().to_vec();
        let at = flip.index(rotten.len());
        rotten[at] ^= 1u8 << bit;
        if let Some(batch) = Batch::decode(rotten.into()) {
            let entries = entries(&batch, first);
            prop_assert_eq!(entries.len() as u64, batch.len());
            prop_assert!(entries.iter().all(|(key, _)| CellKey::decode(key).is_some()));
        }
    }
}

#[test]
fn what_the_byte_table_forbids_is_refused() {
    let decode = |entries: u8, bytes: &[u8]| Batch::decode([&[2, entries], bytes].concat().into()).is_some();
    let put = [1, 1, b'r', 1, 1, b'q', 14, 1, b'v'];
    assert!(decode(1, &put));
    let then = |more: &[u8]| decode(2, &[&put[..], more].concat());
    assert!(then(&[1 | SAME_ROW | SAME_COLUMN | SAME_TIME, 0]));
    assert!(then(&[2 | SAME_ROW | SAME_TIME]) && then(&[3 | SAME_ROW | SAME_TIME, 9]));
    assert!(!then(&[2 | SAME_ROW | SAME_TIME, 0]), "bytes are left over");
    assert!(
        !then(&[2 | SAME_ROW | SAME_COLUMN | SAME_TIME]),
        "a row marker has no column"
    );
    assert!(
        !then(&[3 | SAME_ROW | SAME_COLUMN | SAME_TIME]),
        "a family marker has no column"
    );
    assert!(!then(&[3 | SAME_ROW | SAME_TIME, 0]), "no family 0");
    assert!(!then(&[0x81 | SAME_ROW | SAME_COLUMN | SAME_TIME, 0]), "an unknown bit");
    assert!(
        !then(&[9 | SAME_ROW | SAME_TIME]) && !then(&[SAME_ROW | SAME_TIME]),
        "an unknown kind"
    );
    assert!(
        !then(&[7 | SAME_ROW | SAME_COLUMN | SAME_TIME, 1, 0]),
        "an operand of one byte"
    );
    assert!(!decode(1, &[1 | SAME_ROW, 1, 1, b'q', 14, 1, b'v']), "no row before");
    assert!(
        !decode(1, &[1 | SAME_TIME, 1, b'r', 1, 1, b'q', 1, b'v']),
        "no timestamp before"
    );
    assert!(!decode(1, &[1 | SAME_COLUMN, 1, b'r', 14, 1, b'v']), "no column before");
    let mut long = vec![1];
    varint::put_bytes(&mut long, &[b'r'; limits::ROW_KEY_BYTES_MAX + 1]);
    long.extend_from_slice(&put[3..]);
    assert!(!decode(1, &long), "a row beyond the limit");
}

#[test]
fn memory_for_a_long_key_is_reserved_once() {
    let rows = RowMutation {
        row: Bytes::from(vec![b'r'; limits::BIGTABLE_ROW_KEY_BYTES_MAX]),
        mutations: vec![Mutation::DeleteRow { up_to: Timestamp::MAX }; 1000],
    };
    let mut builder = BatchBuilder::default();
    builder.push_rows(&vec![rows].into());
    let (len, reservation) = (builder.bytes.len(), builder.bytes.capacity());
    assert!(
        reservation <= len + 1000 * ENTRY_OVERHEAD,
        "{reservation} bytes reserved for {len}"
    );
}

#[test]
fn large_values_stay_where_they_are() {
    let put = |qualifier: &'static str, value: &Bytes| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp: Timestamp(7),
        value: value.clone(),
    };
    let row = |row: &'static str, mutations| RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations,
    };
    let large: Vec<Bytes> = (0..3)
        .map(|n| Bytes::from(vec![n; APART_BYTES_MIN + usize::from(n)]))
        .collect();
    let (small, none) = (large[0].slice(1..), Bytes::new());
    let delete = || Mutation::DeleteRow { up_to: Timestamp::MAX };
    let check = |rows: Vec<RowMutation>, shared: &[&Bytes]| {
        let mut sorted = rows.clone();
        sorted.sort_by(|a, b| a.row.cmp(&b.row));
        let mut builder = BatchBuilder::default();
        let writes = rows.into();
        let bytes = WriteSize::of(&writes).batch();
        builder.push_rows(&writes);
        let reservation = builder.bytes.capacity();
        assert!(reservation <= bytes, "{reservation} bytes reserved of {bytes}");
        let batch = builder.finish();
        let found: Vec<_> = batch
            .other_pieces()
            .iter()
            .step_by(2)
            .map(|partial_row| partial_row.as_ptr())
            .collect();
        assert_eq!(found, shared.iter().map(|value| value.as_ptr()).collect::<Vec<_>>());
        let own = batch
            .other_pieces()
            .iter()
            .skip(1)
            .step_by(2)
            .map(Bytes::len)
            .sum::<usize>();
        assert!(batch.first_piece().len() + own <= bytes, "nothing large is copied");
        assert_eq!(batch.shared_first_piece(), batch.first_piece());
        assert_eq!(entries(&batch, SeqNo(77)), expected(&sorted, SeqNo(77)));
        assert_eq!(batch.byte_len(), batch.to_bytes().len());
        let decoded = Batch::decode(batch.to_bytes()).expect("what was encoded decodes");
        assert_eq!(entries(&decoded, SeqNo(77)), expected(&sorted, SeqNo(77)));
        assert!(decoded.other_pieces().is_empty());
    };
    let [a, b, c] = [&large[0], &large[1], &large[2]];
    check(vec![row("r", vec![put("q", a)])], &[a]);
    check(vec![row("r", vec![put("q", &none), put("r", a)])], &[a]);
    check(vec![row("r", vec![put("q", a), put("r", b), put("s", c)])], &[a, b, c]);
    check(
        vec![row("r", vec![put("q", a), put("r", &small), put("s", c), delete()])],
        &[a, c],
    );
    check(
        vec![row("r", vec![delete(), put("q", a), put("q", &none), put("q", a)])],
        &[a, a],
    );
    // In the order of the rows.
    let rows = vec![
        row("s", vec![put("q", a)]),
        row("r", vec![put("q", b), put("r", &none)]),
    ];
    check(rows, &[b, a]);
    check(vec![row("r", vec![put("q", &small)])], &[]);
}

/// The key of a row is in a batch once, and in a memtable with every mutation.
#[test]
fn the_size_of_a_write_counts_what_memtables_repeat() {
    let row = |len: usize, mutations: Vec<Mutation>| RowMutation {
        row: vec![b'r'; len].into(),
        mutations,
    };
    let put = |len: usize| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: vec![0; len].into(),
    };
    let delete = || Mutation::DeleteRow { up_to: Timestamp::MAX };
    let sizes = |rows: Vec<RowMutation>| {
        let mutations = rows[0].mutations.iter().map(|m| m.map(|bytes| &bytes[..]));
        let of_row = WriteSize::of_row(&rows[0].row, mutations);
        let size = WriteSize::of(&rows.into());
        assert_eq!(size, of_row);
        let sizes = [
            size.batch(),
            size.without_apart(1),
            size.in_memtables(1),
            size.in_memtables(3),
        ];
        sizes.map(|bytes| bytes - HEADER_BYTES_MAX)
    };
    let entry = ENTRY_OVERHEAD;
    assert_eq!(sizes(vec![row(10, vec![put(5)])]), [10 + entry + 6; 4]);
    let (once, thrice) = (1_000 + 3 * (entry + 6), 3_000 + 3 * (entry + 6));
    assert_eq!(
        sizes(vec![row(1_000, vec![put(5), put(5), put(5)])]),
        [once, thrice, thrice, thrice]
    );
    let own = 10 + entry + 1;
    let all = own + APART_BYTES_MIN;
    assert_eq!(sizes(vec![row(10, vec![put(APART_BYTES_MIN)])]), [own, own, all, all]);
    let tombstone = 10 + entry;
    assert_eq!(
        sizes(vec![row(10, vec![delete()])]),
        [tombstone, tombstone, tombstone, 3 * tombstone]
    );
}
