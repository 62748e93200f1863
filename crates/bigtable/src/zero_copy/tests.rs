use super::*;
use crate::fuzzing;
use crate::pb::v2;
use crate::pb::v2::mutation::{
    AddToCell, DeleteFromColumn, DeleteFromFamily, DeleteFromRow, Mutation as WireKind, SetCell,
};
use crate::testing;
use crate::wire::{MutateRowRequest, MutateRowsEntry, MutateRowsRequest, Mutation as WireMutation};
use proptest::prelude::*;
use prost::Message as _;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => Just("f".to_owned()), 4 => Just("g".to_owned()), 1 => Just("sum".to_owned()), 1 => Just("none".to_owned()), 1 => Just(String::new())]
}

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn micros() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(-1i64), 3 => (0i64..5).prop_map(|n| n * 1_000), 1 => Just(0), 1 => Just(1_234), 1 => any::<i64>()]
}

fn kind() -> impl Strategy<Value = Option<WireKind>> {
    let set =
        (name(), bytes(4), micros(), bytes(6)).prop_map(|(family_name, column_qualifier, timestamp_micros, value)| {
            WireKind::SetCell(SetCell {
                family_name,
                column_qualifier,
                timestamp_micros,
                value,
            })
        });
    let range = prop::option::of((micros(), micros()).prop_map(|(start, end)| v2::TimestampRange {
        start_timestamp_micros: start,
        end_timestamp_micros: end,
    }));
    let column = (name(), bytes(4), range).prop_map(|(family_name, column_qualifier, time_range)| {
        WireKind::DeleteFromColumn(DeleteFromColumn {
            family_name,
            column_qualifier,
            time_range,
        })
    });
    let family = name().prop_map(|family_name| WireKind::DeleteFromFamily(DeleteFromFamily { family_name }));
    prop_oneof![
        12 => set.prop_map(Some),
        3 => column.prop_map(Some),
        2 => family.prop_map(Some),
        2 => Just(Some(WireKind::DeleteFromRow(DeleteFromRow {}))),
        1 => Just(Some(WireKind::AddToCell(AddToCell::default()))),
        1 => Just(None),
    ]
}

fn mutations() -> impl Strategy<Value = Vec<WireMutation>> {
    let one = (kind(), prop_oneof![9 => 0..3, 1 => -1..9]).prop_map(|(mutation, timestamp_origin)| WireMutation {
        timestamp_origin,
        mutation,
    });
    prop::collection::vec(one, 0..4)
}

/// Requests, mostly good.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let entry = (bytes(5), mutations()).prop_map(|(row_key, mutations)| MutateRowsEntry {
        row_key,
        mutations,
        idempotency: None,
    });
    let many = (
        prop::collection::vec(entry, 0..4),
        prop_oneof!["", "projects/p/instances/i/tables/t"],
        "[aé]{0,2}",
    )
        .prop_map(|(entries, table_name, app_profile_id)| {
            let request = MutateRowsRequest {
                table_name,
                app_profile_id,
                entries,
                ..MutateRowsRequest::default()
            };
            request.encode_to_vec()
        });
    let one = (bytes(5), mutations(), "[aé]{0,2}").prop_map(|(row_key, mutations, app_profile_id)| {
        let request = MutateRowRequest {
            table_name: "t".to_owned(),
            app_profile_id,
            row_key,
            mutations,
            ..MutateRowRequest::default()
        };
        request.encode_to_vec()
    });
    prop_oneof![many, one]
}

/// One change to some bytes: a byte set, removed or put in, a stretch doubled.
fn damage(mut bytes: Vec<u8>, (kind, at, byte): (u8, prop::sample::Index, u8)) -> Vec<u8> {
    if bytes.is_empty() {
        return bytes;
    }
    let at = at.index(bytes.len());
    match kind % 4 {
        0 => bytes[at] = byte,
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, byte),
        _ => {
            let again = bytes[at..].to_vec();
            bytes.extend(again);
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The comparison is in [`fuzzing`].
    #[test]
    fn the_general_way_makes_the_same_of_it(
        request in requests(),
        changes in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let bytes = changes.into_iter().fold(request, damage);
        fuzzing::mutate_rows(&bytes, &testing::schema());
        fuzzing::mutate_row(&bytes, &testing::schema());
    }
}

fn set(family: &str, timestamp_micros: i64) -> WireMutation {
    WireMutation {
        timestamp_origin: 0,
        mutation: Some(WireKind::SetCell(SetCell {
            family_name: family.to_owned(),
            column_qualifier: Bytes::from_static(b"q"),
            timestamp_micros,
            value: Bytes::from_static(b"v"),
        })),
    }
}

fn many(entries: Vec<(&'static str, Vec<WireMutation>)>) -> Bytes {
    let entry = |(row_key, mutations): (&'static str, _)| MutateRowsEntry {
        row_key: Bytes::from_static(row_key.as_bytes()),
        mutations,
        idempotency: None,
    };
    let request = MutateRowsRequest {
        table_name: "t".to_owned(),
        app_profile_id: "default".to_owned(),
        entries: entries.into_iter().map(entry).collect(),
        ..MutateRowsRequest::default()
    };
    request.encode_to_vec().into()
}

/// The rows of a request, as far as the zero-copy decoder reads it.
fn zero_copy_rows(bytes: &Bytes) -> Option<usize> {
    let schema = testing::schema();
    mutate_rows_head(bytes)?;
    mutate_rows(bytes, &Resolver::new(&schema, 0)).map(|writes| writes.len())
}

#[test]
fn good_requests_are_decoded_without_copies() {
    let delete = |kind| WireMutation {
        timestamp_origin: 2,
        mutation: Some(kind),
    };
    let time_range = Some(v2::TimestampRange {
        start_timestamp_micros: 1_000,
        end_timestamp_micros: 3_000,
    });
    let deletes = vec![
        delete(WireKind::DeleteFromRow(DeleteFromRow {})),
        delete(WireKind::DeleteFromFamily(DeleteFromFamily {
            family_name: "g".to_owned(),
        })),
        delete(WireKind::DeleteFromColumn(DeleteFromColumn {
            family_name: "f".to_owned(),
            column_qualifier: Bytes::new(),
            time_range,
        })),
    ];
    let request = many(vec![
        ("a", vec![set("f", -1), set("g", 5_000)]),
        ("b", deletes),
        ("a", vec![set("f", 0)]),
    ]);
    assert_eq!(zero_copy_rows(&request), Some(3));
    assert_eq!(fuzzing::mutate_rows(&request, &testing::schema()).len(), 3);
    let request = MutateRowRequest {
        table_name: "t".to_owned(),
        row_key: Bytes::from_static(b"r"),
        mutations: vec![set("f", -1)],
        ..MutateRowRequest::default()
    };
    let bytes = Bytes::from(request.encode_to_vec());
    let schema = testing::schema();
    assert_eq!(mutate_row_head(&bytes), Some(Head { table_name: "t" }));
    assert!(mutate_row(&bytes, &Resolver::new(&schema, 0)).is_some());
    assert!(fuzzing::mutate_row(&bytes, &schema).is_some());
}

#[test]
fn requests_to_refuse_are_left_to_prost() {
    let bad = [
        many(vec![]),
        many(vec![("a", vec![])]),
        many(vec![("a", vec![set("f", -1)]), ("", vec![set("f", -1)])]),
        many(vec![("a", vec![set("none", -1)])]),
        many(vec![("a", vec![set("sum", -1)])]),
        many(vec![("a", vec![set("f", 1)])]),
        many(vec![("a", vec![set("f", -1); 100_001])]),
        many(vec![("a", vec![WireMutation::default()])]),
    ];
    for request in bad {
        assert_eq!(
            zero_copy_rows(&request),
            None,
            "{:?}",
            request.slice(..request.len().min(100))
        );
    }
    let view = MutateRowsRequest {
        authorized_view_name: "v".to_owned(),
        ..MutateRowsRequest::decode(many(vec![("a", vec![set("f", -1)])])).unwrap()
    };
    assert_eq!(mutate_rows_head(&view.encode_to_vec()), None);
}
