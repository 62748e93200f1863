use super::*;
use proptest::prelude::*;
use stele_types::{Cell, CellKind, FamilyId, Labels, Timestamp};

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

prop_compose! {
    fn cell()(family in any::<u32>(), kind in 1u8..9, qualifier in bytes(4), timestamp in any::<i64>(),
              value in prop_oneof![bytes(9), Just(Bytes::from(vec![7; 40_000]))],
              names in prop::collection::vec("[a-zé]{0,3}", 0..3)) -> Cell {
        let mut labels = Labels::none();
        names.into_iter().for_each(|name| labels.push(name));
        Cell {
            family: FamilyId(family),
            kind: CellKind::from_byte(kind).unwrap(),
            qualifier,
            timestamp: Timestamp(timestamp),
            value,
            labels,
        }
    }
}

prop_compose! {
    fn batch()(rows in prop::collection::vec((bytes(5), prop::collection::vec(cell(), 1..4)), 0..5),
               scanned in prop::option::of(bytes(5)), flags in 0u8..8, seen in any::<(u64, u64)>()) -> RowBatch {
        let mut batch = RowBatch::default();
        rows.into_iter().for_each(|(row, cells)| batch.push_row(row, cells));
        batch.scanned_through = scanned;
        (batch.continues, batch.unfinished, batch.unstable) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        batch.seen = ReadCounts { rows: seen.0, cells: seen.1 };
        batch
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_round_trip(batch in batch()) {
        prop_assert_eq!(decode(encode(&batch).into_bytes()), Ok(batch));
    }

    #[test]
    fn damaged_batches_are_refused_or_decoded(batch in batch(), at in any::<prop::sample::Index>(), to in any::<u8>(),
                                              cut in any::<prop::sample::Index>()) {
        let mut body = encode(&batch).into_bytes().to_vec();
        let short = cut.index(body.len());
        prop_assert!(decode(Bytes::copy_from_slice(&body[..short])).is_err());
        let at = at.index(body.len());
        body[at] = to;
        if let Ok(decoded) = decode(Bytes::from(body)) {
            prop_assert_eq!(decode(encode(&decoded).into_bytes()), Ok(decoded));
        }
    }
}

#[test]
fn values_are_slices_of_the_frame() {
    let mut batch = RowBatch::default();
    let value = Bytes::from(vec![1; 100]);
    batch.push_row(
        "row",
        [Cell::put(FamilyId(1), Bytes::from_static(b"q"), Timestamp(1), value)],
    );
    let body = encode(&batch).into_bytes();
    let range = body.as_ptr_range();
    let decoded = decode(body).unwrap();
    let (_, cells) = decoded.rows().next().unwrap();
    assert!(range.contains(&cells[0].value.as_ptr()), "a copy");
}

#[test]
fn large_values_are_not_copied_when_they_are_encoded() {
    let value = Bytes::from(vec![1; 1 << 20]);
    let batch = RowBatch::of_row(
        Bytes::from_static(b"row"),
        vec![Cell::put(FamilyId(1), Bytes::new(), Timestamp(1), value.clone())],
    );
    let body = encode(&batch);
    assert!(body.copied() < 1 << 10);
    assert!(body.into_parts().iter().any(|part| part.as_ptr() == value.as_ptr()));
}

#[test]
fn rows_without_cells_and_references_are_refused() {
    let batch = RowBatch::of_row(
        Bytes::from_static(b"r"),
        vec![Cell::put(FamilyId(1), Bytes::new(), Timestamp(1), Bytes::new())],
    );
    let body = encode(&batch).into_bytes().to_vec();
    let change = |at: usize, to: u8| {
        let mut body = body.clone();
        body[at] = to;
        decode(Bytes::from(body)).unwrap_err().to_string()
    };
    assert!(change(FIXED_BYTES + 4, 0).contains("a row has no cells"));
    assert!(change(FIXED_BYTES + 4, 2).contains("another number of cells"));
    assert!(change(FIXED_BYTES + ROW_BYTES + 4, CellKind::Reference as u8).contains("kind of cell"));
    assert!(change(20, 0xff).contains("more rows and cells than bytes"));
}
