//! Tests of `cell`.

use super::*;
use proptest::prelude::*;

/// The bytes of one cell as HBase's own client sent them.
const SEEN: [u8; 33] = [
    0, 0, 0, 29, 0, 0, 0, 19, 0, 0, 0, 2, 0, 1, b'a', 5, b'i', b'n', b'f', b'o', b'0', b'0', 0x7f, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 4, b'v', b'1',
];

fn seen() -> CellRef<'static> {
    CellRef {
        row: b"a",
        family: b"info0",
        qualifier: b"0",
        timestamp: LATEST,
        kind: CellType::Put,
        value: b"v1",
    }
}

#[test]
fn a_cell_is_what_was_seen_on_the_wire() {
    let mut out = BytesMut::new();
    seen().encode(&mut out).unwrap();
    assert_eq!(&out[..], &SEEN[..]);
    assert_eq!(seen().encoded_len(), SEEN.len());
    let mut reader = CellReader::new(Bytes::from_static(&SEEN));
    let cell = reader.read().unwrap();
    assert_eq!(
        (&cell.row[..], &cell.qualifier[..], &cell.value[..]),
        (&b"a"[..], &b"0"[..], &b"v1"[..])
    );
    assert_eq!(cell.timestamp, LATEST);
    assert!(reader.next().is_none());
}

#[test]
fn every_shortened_cell_is_refused() {
    for len in 1..SEEN.len() {
        let mut reader = CellReader::new(Bytes::copy_from_slice(&SEEN[..len]));
        assert!(reader.read().is_err(), "{len}");
        assert!(reader.next().is_none());
    }
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    for (at, value) in [
        (3, 30),
        (3, 28),
        (7, 20),
        (7, 18),
        (11, 3),
        (11, 1),
        (13, 30),
        (15, 40),
        (30, 5),
    ] {
        let mut bytes = SEEN.to_vec();
        bytes[at] = value;
        bytes.push(0);
        let first = CellReader::new(bytes.into()).next();
        assert!(first.is_some_and(|c| c.is_err()), "byte {at} = {value}");
    }
}

#[test]
fn parts_that_do_not_fit_their_lengths_are_not_written() {
    let long = vec![0; ROW_BYTES_MAX + 1];
    let mut out = BytesMut::new();
    assert!(CellRef { row: &long, ..seen() }.encode(&mut out).is_err());
    assert!(
        CellRef {
            family: &long[..128],
            ..seen()
        }
        .encode(&mut out)
        .is_err()
    );
    assert!(out.is_empty());
}

#[test]
fn tags_are_read_where_they_may_be() {
    let tags = [0, 2, 8, 1];
    let mut tagged = SEEN.to_vec();
    tagged[3] += 6;
    tagged.extend([0, 4]);
    tagged.extend(tags);
    let block: Bytes = [&SEEN[..], &tagged].concat().into();
    let mut reader = CellReader::new(block.clone());
    assert_eq!(reader.read_with_tags().unwrap().1, Bytes::new());
    let (cell, found) = reader.read_with_tags().unwrap();
    assert_eq!(
        (&cell.value[..], &found[..], reader.remaining()),
        (&b"v1"[..], &tags[..], 0)
    );
    let mut plain = CellReader::new(block);
    assert!(plain.read().is_ok() && plain.read().is_err());
    // Lengths of tags that contradict the cell's.
    for len in [3, 5] {
        let mut bad = tagged.clone();
        bad[34] = len;
        assert!(CellReader::new(bad.into()).read_with_tags().is_err(), "{len}");
    }
}

/// Its length tells where the next cell begins.
#[test]
fn a_cell_that_cannot_be_read_is_passed_over() {
    let of_unknown_type = SEEN.map(|byte| if byte == 4 { 77 } else { byte });
    let mut of_wrong_lengths = SEEN;
    of_wrong_lengths[11] = 9;
    for bad in [of_unknown_type, of_wrong_lengths] {
        let mut reader = CellReader::new([&bad[..], &SEEN].concat().into());
        assert_eq!(reader.cells_left(), 2);
        assert!(reader.read_with_tags().is_err());
        assert_eq!(&reader.read().unwrap().value[..], b"v1");
        assert!(reader.pass_over().is_err(), "the block has ended");
    }
    let mut reader = CellReader::new([&SEEN[..], &SEEN].concat().into());
    assert!(reader.pass_over().is_ok() && reader.read().is_ok() && reader.remaining() == 0);
    // A length that no cell has.
    let mut reader = CellReader::new([&[0, 0, 0, 19][..], &[0; 19], &SEEN].concat().into());
    assert_eq!(reader.cells_left(), 0);
    assert!(reader.pass_over().is_err() && reader.remaining() == 0);
}

fn any_kind() -> impl Strategy<Value = CellType> {
    prop::sample::select(vec![
        CellType::Put,
        CellType::Delete,
        CellType::DeleteFamilyVersion,
        CellType::DeleteColumn,
        CellType::DeleteFamily,
    ])
}

fn any_cell() -> impl Strategy<Value = Cell> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from);
    (bytes(300), bytes(127), bytes(300), any::<i64>(), any_kind(), bytes(300)).prop_map(
        |(row, family, qualifier, timestamp, kind, value)| Cell {
            row,
            family,
            qualifier,
            timestamp,
            kind,
            value,
        },
    )
}

proptest! {
    #[test]
    fn cells_survive_the_round_trip(cells in prop::collection::vec(any_cell(), 0..8)) {
        let mut out = BytesMut::new();
        for c in &cells {
            let cell = CellRef {
                row: &c.row,
                family: &c.family,
                qualifier: &c.qualifier,
                timestamp: c.timestamp,
                kind: c.kind,
                value: &c.value,
            };
            cell.encode(&mut out).unwrap();
        }
        let read: Vec<Cell> = CellReader::new(out.freeze()).map(|c| c.unwrap()).collect();
        prop_assert_eq!(read, cells);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let mut plain = CellReader::new(bytes);
        let mut tagged = plain.clone();
        let cells = plain.cells_left();
        // Cells that are counted are those that are taken out of the block, and each try takes one.
        for _ in 0..cells {
            let _ = plain.read();
            let _ = tagged.read_with_tags();
            prop_assert_eq!(plain.remaining(), tagged.remaining());
        }
        prop_assert!(plain.read().is_err() && tagged.read_with_tags().is_err());
        prop_assert_eq!((plain.remaining(), tagged.remaining()), (0, 0));
    }
}
