//! The model itself, on examples small enough to see that they are right.

use super::*;
use stele_types::{AggregateKind, Family, GcRule, LocalityGroup, TableId, TableName};

fn model(rule: DeleteRule, gc_rule: Option<GcRule>) -> Model {
    let family = |value_type| Family {
        name: format!("{value_type:?}"),
        gc_rule: gc_rule.clone(),
        value_type,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    let families = [
        (FamilyId(1), family(ValueType::Bytes)),
        (FamilyId(2), family(ValueType::Aggregate(AggregateKind::Sum))),
    ];
    let group = LocalityGroup::new(GroupId(0), "default", stele_types::Compression::None);
    Model::new(TableSchema {
        delete_rule: rule,
        families: families.into(),
        next_family: FamilyId(3),
        groups: vec![group],
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    })
}

fn q() -> Bytes {
    Bytes::from_static(b"q")
}

fn put(timestamp: i64, value: &'static [u8]) -> Mutation {
    Mutation::Put {
        family: FamilyId(1),
        qualifier: q(),
        timestamp: Timestamp(timestamp),
        value: Bytes::from_static(value),
    }
}

fn delete(timestamp: i64) -> Mutation {
    Mutation::DeleteVersion {
        family: FamilyId(1),
        qualifier: q(),
        timestamp: Timestamp(timestamp),
    }
}

fn add(n: i64) -> Mutation {
    let operand = Bytes::copy_from_slice(&n.to_be_bytes());
    Mutation::Merge {
        family: FamilyId(2),
        qualifier: q(),
        timestamp: Timestamp(1),
        operand,
    }
}

fn write(model: &mut Model, mutations: Vec<Mutation>) {
    model.apply(&[RowMutation {
        row: Bytes::from_static(b"r"),
        mutations,
    }]);
}

/// `timestamp=value` of family 1, newest first.
fn check(model: &Model, expected: &str) {
    let cells: Vec<String> = model
        .cells(b"r", 0)
        .iter()
        .map(|(_, _, t, v)| format!("{t}={}", v.escape_ascii()))
        .collect();
    assert_eq!(cells.join(" "), expected);
}

fn accepts(model: &Model, cells: &[(i64, &'static [u8])]) -> bool {
    let cell = |(t, v): &(i64, &'static [u8])| Cell::put(FamilyId(1), q(), Timestamp(*t), Bytes::from_static(v));
    model
        .check_row(b"r", &cells.iter().map(cell).collect::<Vec<_>>(), 0)
        .is_ok()
}

#[test]
fn deletes_by_sequence_hide_only_the_past() {
    let mut m = model(DeleteRule::BySequence, None);
    write(&mut m, vec![put(1, b"a"), put(2, b"b"), delete(2)]);
    check(&m, "1=a");
    write(
        &mut m,
        vec![
            put(2, b"c"),
            Mutation::DeleteColumn {
                family: FamilyId(1),
                qualifier: q(),
                from: Timestamp(1),
                to: Timestamp(1),
            },
        ],
    );
    check(&m, "2=c");
    write(&mut m, vec![Mutation::DeleteRow { up_to: Timestamp(1) }, put(1, b"d")]);
    check(&m, "2=c 1=d");
}

#[test]
fn deletes_by_timestamp_hide_the_future_until_a_major_compaction() {
    let mut m = model(DeleteRule::ByTimestamp, None);
    write(
        &mut m,
        vec![Mutation::DeleteFamily {
            family: FamilyId(1),
            up_to: Timestamp(5),
        }],
    );
    let through = m.newest();
    write(&mut m, vec![put(3, b"a"), put(6, b"b")]);
    check(&m, "6=b");
    m.compact_major(&RowRange::all(), GroupId(0), through);
    check(&m, "6=b 3=a");
}

#[test]
fn operands_add_to_what_is_there() {
    let mut m = model(DeleteRule::BySequence, None);
    write(&mut m, vec![add(3), add(4)]);
    assert_eq!(m.cells(b"r", 0), [(2, b"q".to_vec(), 1, 7i64.to_be_bytes().to_vec())]);
}

#[test]
fn what_was_garbage_once_may_be_gone() {
    let mut m = model(DeleteRule::BySequence, Some(GcRule::MaxVersions(1)));
    write(&mut m, vec![put(1, b"old")]);
    assert!(!accepts(&m, &[]), "not garbage yet");
    write(&mut m, vec![put(1, b"a"), put(2, b"b")]);
    assert!(accepts(&m, &[(2, b"b")]));
    assert!(
        !accepts(&m, &[(2, b"b"), (1, b"a")]),
        "a reader never sees what has expired"
    );
    write(&mut m, vec![delete(2)]);
    assert!(accepts(&m, &[]) && accepts(&m, &[(1, b"a")]));
    assert!(!accepts(&m, &[(1, b"old")]), "an overwritten value never comes back");
    write(&mut m, vec![put(1, b"c")]);
    assert!(accepts(&m, &[(1, b"c")]) && !accepts(&m, &[]));
}
