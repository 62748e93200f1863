use super::*;
use proptest::prelude::*;
use stele_types::RowMutation;

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

prop_compose! {
    fn any_mutation()(number in 1u8..8, family in any::<u32>(), times in any::<(i64, i64)>(), qualifier in bytes(4),
                      value in prop_oneof![bytes(9), Just(Bytes::from(vec![7; 40_000]))]) -> Mutation {
        mutation(Fields { number, family: FamilyId(family), times, qualifier, value }).unwrap()
    }
}

prop_compose! {
    fn any_rows()(rows in prop::collection::vec((bytes(5), prop::collection::vec(any_mutation(), 1..4)), 0..5))
        -> Vec<RowMutation> {
        rows.into_iter().map(|(row, mutations)| RowMutation { row, mutations }).collect()
    }
}

fn encoded(rows: &RowWrites) -> Bytes {
    let mut out = Segments::default();
    // Spans count from the beginning of the body, which has a byte before the rows.
    out.u8(0);
    encode(rows, &mut out);
    out.into_bytes()
}

fn decoded(body: Bytes) -> Decoded<Vec<RowMutation>> {
    let mut fields = Cursor::new("test", body);
    fields.u8()?;
    let rows = decode(&mut fields)?;
    Ok(rows.iter().map(|row| row.to_owned()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_round_trip(rows in any_rows()) {
        let body = encoded(&RowWrites::from(rows.clone()));
        prop_assert_eq!(decoded(body.clone()), Ok(rows.clone()));
        // Flat rows encode like owned ones: a request may pass several servers.
        let mut fields = Cursor::new("test", body.slice(1..));
        let flat = decode(&mut fields).unwrap();
        prop_assert_eq!(encoded(&flat), body);
        // A selection is sent without the rest.
        let last = rows.len().checked_sub(1);
        let chosen = RowWrites::from(rows.clone()).choose(last);
        prop_assert_eq!(decoded(encoded(&chosen)), Ok(rows.into_iter().skip(last.unwrap_or(0)).collect()));
    }

    #[test]
    fn damaged_rows_are_refused_or_decoded(rows in any_rows(), at in any::<prop::sample::Index>(), to in any::<u8>(),
                                           cut in any::<prop::sample::Index>()) {
        let mut body = encoded(&RowWrites::from(rows)).to_vec();
        let short = cut.index(body.len());
        prop_assert!(decoded(Bytes::copy_from_slice(&body[..short])).is_err());
        let at = at.index(body.len());
        body[at] = to;
        let _ = decoded(Bytes::from(body));
    }
}

#[test]
fn rows_without_mutations_and_unknown_kinds_are_refused() {
    let rows = vec![RowMutation {
        row: Bytes::from_static(b"r"),
        mutations: vec![Mutation::DeleteRow { up_to: Timestamp(1) }],
    }];
    let body = encoded(&RowWrites::from(rows)).to_vec();
    let change = |at: usize, to: u8| {
        let mut body = body.clone();
        body[at] = to;
        decoded(Bytes::from(body)).unwrap_err().to_string()
    };
    assert!(change(1 + 8 + 4, 0).contains("a row has no mutations"));
    assert!(change(1 + 8 + 4, 2).contains("another number of mutations"));
    assert!(change(1 + 8 + ROW_BYTES, 77).contains("unknown kind of mutation"));
    assert!(change(1 + 8 + ROW_BYTES + 1, 1).contains("reserved"));
    assert!(change(1 + 8 + ROW_BYTES + 14, 1).contains("too short"));
    assert!(change(7, 0xff).contains("more rows and mutations than bytes"));
}

#[test]
fn more_mutations_than_the_other_server_takes_are_refused_here() {
    let delete = Mutation::DeleteFamily {
        family: FamilyId(1),
        up_to: Timestamp(1),
    };
    let of = |mutations: usize| {
        RowWrites::from(vec![RowMutation {
            row: Bytes::from_static(b"r"),
            mutations: vec![delete.clone(); mutations],
        }])
    };
    assert_eq!(
        check(&of(MUTATIONS_MAX + 1)).unwrap_err().kind,
        ErrorKind::ResourceExhausted
    );
    let most = of(MUTATIONS_MAX);
    check(&most).unwrap();
    assert_eq!(decoded(encoded(&most)).unwrap()[0].mutations.len(), MUTATIONS_MAX);
}
