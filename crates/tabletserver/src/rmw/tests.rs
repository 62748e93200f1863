//! Rules on columns, without a tablet.

use super::*;
use stele_types::{DeleteRule, Family, GroupId, TableId, TableName, TimeUnit, ValueType};

/// Far more than the rules of these tests write.
const BYTES_MAX: usize = 1 << 20;

fn schema() -> TableSchema {
    let family = Family {
        name: "f".into(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        id: TableId(1),
        name: TableName::new("n", "t"),
        version: 1,
        time_unit: TimeUnit::Micros,
        granularity: 1000,
        delete_rule: DeleteRule::BySequence,
        durability: None,
        deletion_protection: false,
        families: BTreeMap::from([(FamilyId(1), family)]),
        next_family: FamilyId(2),
        groups: Vec::new(),
        tablet_bytes_max: 0,
        row_cache: true,
        front_end_data: Vec::new(),
    }
}

fn rule(qualifier: &'static str, operation: RmwOperation) -> RmwRule {
    RmwRule {
        family: FamilyId(1),
        qualifier: Bytes::from_static(qualifier.as_bytes()),
        operation,
    }
}

fn append(text: &'static str) -> RmwOperation {
    RmwOperation::Append(Bytes::from_static(text.as_bytes()))
}

#[test]
fn later_rules_see_earlier_ones_and_each_column_is_written_once() {
    let now = Timestamp(5_000);
    let rules = [
        rule("a", append("x")),
        rule("a", append("y")),
        rule("n", RmwOperation::Increment(i64::MAX)),
        rule("n", RmwOperation::Increment(1)),
    ];
    let written = apply_rules(&schema(), Columns::new(), &rules, now, BYTES_MAX).unwrap();
    let values: Vec<&[u8]> = written.iter().map(|c| &c.value[..]).collect();
    assert_eq!(values, [&b"xy"[..], &i64::MIN.to_be_bytes()[..]]);
}

#[test]
fn a_written_cell_is_never_older_than_the_one_before() {
    let column = (FamilyId(1), Bytes::from_static(b"a"));
    let columns = Columns::from([(column, (Timestamp(9_000), Bytes::from_static(b"old")))]);
    let written = apply_rules(
        &schema(),
        columns,
        &[rule("a", append("er"))],
        Timestamp(5_000),
        BYTES_MAX,
    )
    .unwrap();
    assert_eq!(
        (written[0].timestamp, &written[0].value[..]),
        (Timestamp(9_000), &b"older"[..])
    );
}

#[test]
fn an_increment_of_something_else_than_eight_bytes_is_refused() {
    let column = (FamilyId(1), Bytes::from_static(b"a"));
    let columns = Columns::from([(column, (Timestamp(1), Bytes::from_static(b"seven b")))]);
    let refused = apply_rules(
        &schema(),
        columns,
        &[rule("a", RmwOperation::Increment(1))],
        Timestamp(2),
        BYTES_MAX,
    );
    assert_eq!(refused.unwrap_err().kind, stele_types::ErrorKind::InvalidArgument);
}

#[test]
fn an_empty_value_is_there() {
    let increment = || rule("a", RmwOperation::Increment(1));
    let column = (FamilyId(1), Bytes::from_static(b"a"));
    let columns = Columns::from([(column, (Timestamp(1), Bytes::new()))]);
    let refused = apply_rules(&schema(), columns, &[increment()], Timestamp(2), BYTES_MAX);
    assert_eq!(refused.unwrap_err().kind, stele_types::ErrorKind::InvalidArgument);
    let rules = [rule("a", append("")), increment()];
    let refused = apply_rules(&schema(), Columns::new(), &rules, Timestamp(2), BYTES_MAX);
    assert_eq!(refused.unwrap_err().kind, stele_types::ErrorKind::InvalidArgument);
}

#[test]
fn what_rules_write_is_bounded_before_it_is_made() {
    let column = |name: &'static str| (FamilyId(1), Bytes::from_static(name.as_bytes()));
    let columns = || Columns::from([(column("a"), (Timestamp(1), Bytes::from_static(b"12345678")))]);
    let of = |rules: &[RmwRule], max| apply_rules(&schema(), columns(), rules, Timestamp(2), max);
    // Eight bytes that are there, twice three, and a counter in addition.
    let rules = [
        rule("a", append("xyz")),
        rule("n", RmwOperation::Increment(1)),
        rule("a", append("xyz")),
    ];
    let refused = of(&rules, 21).unwrap_err();
    assert_eq!(refused.kind, stele_types::ErrorKind::ResourceExhausted);
    let written = of(&rules, 22).unwrap();
    let values: Vec<&[u8]> = written.iter().map(|c| &c.value[..]).collect();
    assert_eq!(values, [&b"12345678xyzxyz"[..], &1i64.to_be_bytes()]);
    // The API's own limit comes first.
    let large = Bytes::from(vec![0; 60 << 20]);
    let rules = [(); 2].map(|()| rule("a", RmwOperation::Append(large.clone())));
    let refused = of(&rules, 22).unwrap_err();
    assert_eq!(refused.kind, stele_types::ErrorKind::InvalidArgument);
}
