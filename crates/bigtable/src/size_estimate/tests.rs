//! These tests check that estimates equal the counts of decoded requests. They also check that each part has a limit.

use super::decoded::{Decoded, check_bound};
use super::*;
use crate::filters;
use crate::limits::FILTER_BYTES_MAX;
use crate::testing;
use crate::times::TableTime;
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use tonic::Code;

/// The counts are those of the message.
fn check_exact<M: Decoded>(message: &M) {
    let estimate = SizeEstimate::of::<M>(&message.encode_to_vec()).unwrap();
    for (part, count) in message.parts() {
        assert_eq!(estimate.count(part), count, "{part:?}");
    }
}

fn value(depth: u32) -> v2::Value {
    use v2::value::Kind;
    let kind = match depth {
        0 => Kind::IntValue(1),
        depth => Kind::ArrayValue(v2::ArrayValue {
            values: vec![value(depth - 1), value(0)],
        }),
    };
    v2::Value {
        r#type: None,
        kind: Some(kind),
    }
}

/// A binary tree of maps.
fn map_type(depth: u32) -> v2::Type {
    use v2::r#type::{Kind, Map};
    let within = || depth.checked_sub(1).map(|depth| Box::new(map_type(depth)));
    v2::Type {
        kind: Some(Kind::MapType(Box::new(Map {
            key_type: within(),
            value_type: within(),
        }))),
    }
}

/// An aggregate of aggregates.
fn aggregate_type(depth: u32) -> admin::Type {
    use admin::r#type::{Aggregate, Kind};
    let within = || depth.checked_sub(1).map(|depth| Box::new(aggregate_type(depth)));
    admin::Type {
        kind: Some(Kind::AggregateType(Box::new(Aggregate {
            input_type: within(),
            state_type: within(),
            aggregator: None,
        }))),
    }
}

fn mutation(depth: u32) -> wire::Mutation {
    wire::Mutation {
        timestamp_origin: 0,
        mutation: Some(v2::mutation::Mutation::AddToCell(v2::mutation::AddToCell {
            family_name: "f".into(),
            column_qualifier: Some(value(depth)),
            timestamp: None,
            input: Some(v2::Value {
                r#type: Some(map_type(depth)),
                ..value(0)
            }),
        })),
    }
}

proptest! {
    #[test]
    fn writes_are_counted(entries in prop::collection::vec((0usize..4, 0u32..4), 0..20)) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(mutations, depth)| wire::MutateRowsEntry {
                row_key: Bytes::from_static(b"r"),
                mutations: vec![mutation(depth); mutations],
                idempotency: None,
            })
            .collect();
        let mutations: Vec<_> = entries.iter().flat_map(|e| e.mutations.clone()).collect();
        check_exact(&wire::MutateRowRequest { mutations: mutations.clone(), ..Default::default() });
        check_exact(&wire::CheckAndMutateRowRequest {
            true_mutations: mutations.clone(),
            false_mutations: mutations,
            predicate_filter: Some(wire::RowFilter { filter: Some(wire::FilterKind::PassAllFilter(true)) }),
            ..Default::default()
        });
        check_exact(&wire::MutateRowsRequest { entries, ..Default::default() });
    }

    #[test]
    fn reads_and_rules_are_counted(keys in 0usize..9, ranges in 0usize..9, pattern in ".{0,40}") {
        check_exact(&wire::ReadRowsRequest {
            rows: Some(v2::RowSet {
                row_keys: vec![Bytes::from_static(b"k"); keys],
                row_ranges: vec![v2::RowRange::default(); ranges],
            }),
            filter: Some(wire::RowFilter { filter: Some(wire::FilterKind::FamilyNameRegexFilter(pattern)) }),
            ..Default::default()
        });
        check_exact(&v2::ReadModifyWriteRowRequest {
            rules: vec![v2::ReadModifyWriteRule::default(); keys],
            ..Default::default()
        });
    }

    #[test]
    fn schemas_are_counted(families in 0usize..6, rules in 0usize..5, depth in 0u32..5, splits in 0usize..6) {
        use admin::gc_rule::{Rule, Union};
        use admin::modify_column_families_request::{Modification, modification::Mod};
        let leaf = admin::GcRule { rule: Some(Rule::MaxNumVersions(1)) };
        let rule = (0..depth).fold(leaf.clone(), |inner, _| {
            let mut all = vec![leaf.clone(); rules];
            all.push(inner);
            admin::GcRule { rule: Some(Rule::Union(Union { rules: all })) }
        });
        let family = admin::ColumnFamily { gc_rule: Some(rule), value_type: Some(aggregate_type(depth)) };
        let column_families = (0..families).map(|i| (i.to_string(), family.clone())).collect();
        check_exact(&admin::CreateTableRequest {
            table: Some(admin::Table { column_families, ..Default::default() }),
            initial_splits: vec![Default::default(); splits],
            ..Default::default()
        });
        let modification = Modification {
            id: "f".into(),
            update_mask: Some(prost_types::FieldMask { paths: vec![String::new(); rules] }),
            r#mod: Some(Mod::Create(family)),
        };
        check_exact(&admin::ModifyColumnFamiliesRequest {
            modifications: vec![modification; families],
            ..Default::default()
        });
    }

    #[test]
    fn nothing_is_decoded_that_was_not_counted(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x0a), Just(0x12), Just(0x1a), Just(0x22), Just(2), Just(0)], 0..64),
    ) {
        check_bound::<wire::ReadRowsRequest>(&bytes);
        check_bound::<wire::MutateRowRequest>(&bytes);
        check_bound::<wire::MutateRowsRequest>(&bytes);
        check_bound::<wire::CheckAndMutateRowRequest>(&bytes);
        check_bound::<v2::ReadModifyWriteRowRequest>(&bytes);
        check_bound::<admin::CreateTableRequest>(&bytes);
        check_bound::<admin::ModifyColumnFamiliesRequest>(&bytes);
    }
}

/// A field of a list, this often, each with this content.
fn repeated(number: u8, content: &[u8], times: usize) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content]
        .concat()
        .repeat(times)
}

/// A message within a field of a message.
fn within(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = bytes::BytesMut::new();
    crate::protobuf::put_bytes_field(&mut out, number, content);
    out.to_vec()
}

fn refused<M: Estimated>(bytes: &[u8], words: &str) {
    let status = SizeEstimate::of::<M>(bytes).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains(words), "{status}");
}

#[test]
fn one_too_many_is_refused() {
    assert!(SizeEstimate::of::<wire::MutateRowsRequest>(&repeated(2, &[], 100_000)).is_ok());
    refused::<wire::MutateRowsRequest>(&repeated(2, &[], 100_001), "more than 100000 entries");
    let entry = within(2, &repeated(2, &[], 60_000));
    refused::<wire::MutateRowsRequest>(&[&entry[..], &entry].concat(), "more than 100000 mutations");
    refused::<wire::MutateRowRequest>(&repeated(3, &[], 100_001), "more than 100000 mutations");
    let branches = [repeated(4, &[], 60_000), repeated(5, &[], 60_000)].concat();
    refused::<wire::CheckAndMutateRowRequest>(&branches, "more than 100000 mutations");
    refused::<v2::ReadModifyWriteRowRequest>(&repeated(3, &[], 100_001), "more than 100000 rules");
    refused::<wire::ReadRowsRequest>(&within(2, &repeated(1, &[], 100_001)), "more than 100000 row keys");
    refused::<wire::ReadRowsRequest>(&within(2, &repeated(2, &[], 100_001)), "more than 100000 row ranges");
    refused::<wire::ReadRowsRequest>(
        &within(3, &within(1, &repeated(1, &[], 10_300))),
        "more than 20480 bytes",
    );
    refused::<admin::CreateTableRequest>(&repeated(4, &[], 100_001), "more than 100000 initial splits");
    refused::<admin::CreateTableRequest>(&within(3, &repeated(3, &[], 20_001)), "more than 20000 column families");
    refused::<admin::ModifyColumnFamiliesRequest>(&repeated(2, &[], 20_001), "more than 20000 modifications");
    let rules = within(2, &within(2, &within(1, &within(4, &repeated(1, &[], 200_001)))));
    refused::<admin::ModifyColumnFamiliesRequest>(&rules, "more than 200000 garbage-collection rules");
    let mask = within(2, &within(6, &repeated(1, &[], 10_001)));
    refused::<admin::ModifyColumnFamiliesRequest>(&mask, "more than 10000 entries");
    let array = within(3, &within(5, &within(4, &within(4, &repeated(1, &[], 1_001)))));
    refused::<wire::MutateRowRequest>(&array, "more than 1000 elements");
}

#[test]
fn trees_of_types_are_refused() {
    // 2^17 - 2 types within the first, and twice as many.
    let tree = |depth| map_type(depth).encode_to_vec();
    let of_value = |depth| within(3, &within(5, &within(4, &within(7, &tree(depth)))));
    let estimate = SizeEstimate::of::<wire::MutateRowRequest>(&of_value(16)).unwrap();
    assert_eq!(estimate.count(Element::TypePart), (1 << 17) - 2);
    let decoded = (1 << 17) * (size_of::<v2::Type>() + size_of::<v2::r#type::Map>());
    assert!(estimate.cost() >= decoded, "{} for {decoded}", estimate.cost());
    refused::<wire::MutateRowRequest>(&of_value(17), "more than 200000 types");
    let family = within(3, &tree(17));
    refused::<admin::CreateTableRequest>(&within(3, &within(3, &within(2, &family))), "more than 200000 types");
    refused::<admin::ModifyColumnFamiliesRequest>(&within(2, &within(2, &family)), "more than 200000 types");
}

#[test]
fn bytes_that_cannot_be_followed_are_refused() {
    let code = |bytes: &[u8]| SizeEstimate::of::<wire::MutateRowsRequest>(bytes).map_err(|s| s.code());
    // A group, a field that ends behind its message, a tag that does not end.
    for bad in [&[0x13, 0x14][..], &[0x12, 2, 0x12, 1], &[0x80]] {
        assert_eq!(code(bad), Err(Code::Internal), "{bad:?}");
    }
    let deep = (0..200).fold(Vec::new(), |inner, _| within(4, &within(1, &inner)));
    let deep = within(3, &within(5, &within(4, &deep)));
    let status = SizeEstimate::of::<wire::MutateRowRequest>(&deep).unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(wire::MutateRowRequest::decode(&deep[..]).is_err());
}

#[test]
fn filters_within_their_bytes_cost_no_more_than_estimated() {
    // The most nodes a filter can have.
    let bytes = within(2, &repeated(1, &[], FILTER_BYTES_MAX / 2 - 4));
    let decoded = wire::RowFilter::decode(&bytes[..]).unwrap();
    let Some(wire::FilterKind::Interleave(members)) = &decoded.filter else {
        unreachable!("an interleave was made")
    };
    let node = size_of::<wire::RowFilter>() + size_of::<stele_filter::Filter>();
    assert!(2 * members.filters.len() * node <= bytes.len() * Element::FilterByte.cost());
    assert!(filters::filter(Some(decoded), TableTime::of(&testing::schema())).is_ok());
}
