//! Rules on columns, without a tablet.

use super::*;
use std::collections::BTreeMap;
use stele_types::{Family, GroupId, TableId, TableName, ValueType};

/// Far more than the rules of these tests write.
const BYTES_MAX: usize = 1 << 20;

fn schema() -> TableSchema {
    let family = Family {
        name: "f".into(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        granularity: 1000,
        families: BTreeMap::from([(FamilyId(1), family)]),
        next_family: FamilyId(2),
        groups: Vec::new(),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}

fn rule(qualifier: &'static str, operation: RmwOperation) -> RmwRule {
    RmwRule::new(FamilyId(1), Bytes::from_static(qualifier.as_bytes()), operation)
}

fn append(text: &'static str) -> RmwOperation {
    RmwOperation::Append(Bytes::from_static(text.as_bytes()))
}

/// A cell that the row has.
fn cell(qualifier: &'static str, at: i64, value: &'static str) -> Cell {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    Cell::put(FamilyId(1), bytes(qualifier), Timestamp(at), bytes(value))
}

/// The cells that rules write to a row of these cells at a time.
fn written(cells: &[Cell], rules: &[RmwRule], now: i64, bytes_max: usize) -> ServiceResult<Vec<Cell>> {
    let steps: Vec<Step> = rules.iter().cloned().map(Step::Modify).collect();
    modify(&schema(), cells, &steps, Timestamp(now), bytes_max).map(Modified::into_cells)
}

#[test]
fn later_rules_see_earlier_ones_and_each_column_is_written_once() {
    let rules = [
        rule("a", append("x")),
        rule("a", append("y")),
        rule("n", RmwOperation::Increment(i64::MAX)),
        rule("n", RmwOperation::Increment(1)),
    ];
    let written = written(&[], &rules, 5_000, BYTES_MAX).unwrap();
    let values: Vec<&[u8]> = written.iter().map(|c| &c.value[..]).collect();
    assert_eq!(values, [&b"xy"[..], &i64::MIN.to_be_bytes()[..]]);
}

#[test]
fn a_written_cell_is_never_older_than_the_one_before() {
    let written = written(&[cell("a", 9_000, "old")], &[rule("a", append("er"))], 5_000, BYTES_MAX).unwrap();
    assert_eq!(
        (written[0].timestamp, &written[0].value[..]),
        (Timestamp(9_000), &b"older"[..])
    );
}

#[test]
fn an_increment_of_something_else_than_eight_bytes_is_refused() {
    let seven = [cell("a", 1, "seven b")];
    let refused = written(&seven, &[rule("a", RmwOperation::Increment(1))], 2, BYTES_MAX);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidArgument);
}

#[test]
fn an_empty_value_is_there() {
    let increment = || rule("a", RmwOperation::Increment(1));
    let refused = written(&[cell("a", 1, "")], &[increment()], 2, BYTES_MAX);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidArgument);
    let rules = [rule("a", append("")), increment()];
    let refused = written(&[], &rules, 2, BYTES_MAX);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidArgument);
}

#[test]
fn families_that_the_schema_lacks_are_not_found() {
    let unknown = RmwRule::new(FamilyId(2), Bytes::new(), append("x"));
    let refused = written(&[], &[rule("a", append("x")), unknown], 1, BYTES_MAX);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn a_rule_chooses_its_operand_by_time_and_its_own_timestamp() {
    let cells = [
        cell("a", 9_000, "new"),
        cell("a", 6_000, "mid"),
        cell("a", 3_000, "old"),
    ];
    let of = |times, timestamp: Option<i64>| {
        let rule = RmwRule {
            times,
            timestamp: timestamp.map(Timestamp),
            ..rule("a", append("er"))
        };
        let mut written = written(&cells, &[rule], 7_000, BYTES_MAX).unwrap();
        let cell = written.pop().unwrap();
        assert!(written.is_empty());
        (cell.timestamp.0, String::from_utf8(cell.value.to_vec()).unwrap())
    };
    let cell = |at: i64, value: &str| (at, value.to_owned());
    assert_eq!(of(None, None), cell(9_000, "newer"));
    // The first timestamp is within the range and the last one is not. The new cell is the newest in any case.
    assert_eq!(of(Some((3_000, 6_000)), None), cell(9_000, "older"));
    assert_eq!(of(Some((3_000, 6_001)), None), cell(9_000, "mider"));
    assert_eq!(of(Some((6_000, i64::MAX)), None), cell(9_000, "newer"));
    assert_eq!(of(Some((i64::MIN, 3_001)), Some(5)), cell(5, "older"));
    assert_eq!(of(Some((3_001, 6_000)), None), cell(9_000, "er"));
    assert_eq!(of(Some((6_000, 3_000)), None), cell(9_000, "er"));
    assert_eq!(of(None, Some(8_000)), cell(8_000, "newer"));
}

#[test]
fn later_rules_go_on_from_the_cell_of_an_earlier_one() {
    let at = |timestamp| RmwRule {
        times: Some((0, 1)),
        timestamp,
        ..rule("a", append("x"))
    };
    let rules = [at(Some(Timestamp(8_000))), rule("b", append("b")), at(None)];
    let of = |rules: &[RmwRule]| {
        let written = written(&[cell("a", 6_000, "old")], rules, 7_000, BYTES_MAX).unwrap();
        let cells = written
            .iter()
            .map(|c| (c.timestamp.0, String::from_utf8_lossy(&c.value).into_owned()));
        cells.collect::<Vec<_>>()
    };
    // The second rule of the column would be at 7,000, were it not for the first.
    assert_eq!(of(&rules), [(8_000, "xx".to_owned()), (7_000, "b".to_owned())]);
    let [first, _, second] = &rules;
    assert_eq!(of(&[second.clone(), first.clone()]), [(8_000, "xx".to_owned())]);
}

#[test]
fn what_rules_write_is_bounded_before_it_is_made() {
    let of = |rules: &[RmwRule], max| written(&[cell("a", 1, "12345678")], rules, 2, max);
    // Eight bytes that are there, twice three, and a counter in addition.
    let rules = [
        rule("a", append("xyz")),
        rule("n", RmwOperation::Increment(1)),
        rule("a", append("xyz")),
    ];
    let refused = of(&rules, 21).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
    let written = of(&rules, 22).unwrap();
    let values: Vec<&[u8]> = written.iter().map(|c| &c.value[..]).collect();
    assert_eq!(values, [&b"12345678xyzxyz"[..], &1i64.to_be_bytes()]);
    // The API's own limit comes first.
    let large = Bytes::from(vec![0; 60 << 20]);
    let rules = [(); 2].map(|()| rule("a", RmwOperation::Append(large.clone())));
    let refused = of(&rules, 22).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument);
}

#[test]
fn a_given_time_of_a_new_version_is_for_a_column_without_a_cell() {
    let new_version = |qualifier| RmwRule {
        timestamp: Some(Timestamp(7)),
        is_new_version: true,
        ..rule(qualifier, append("x"))
    };
    let row = [cell("b", 9, "old"), cell("c", 5_000, "old")];
    let rules = [
        new_version("a"),
        new_version("b"),
        new_version("c"),
        new_version("d"),
        new_version("d"),
    ];
    let cells = written(&row, &rules, 1_000, BYTES_MAX).expect("they apply");
    let times: Vec<i64> = cells.iter().map(|cell| cell.timestamp.0).collect();
    assert_eq!(times, [7, 1_000, 6_000, 1_000]);
}

/// A range of times may leave out the newest cells, and a new version follows the cell that it changes.
#[test]
fn a_new_version_is_later_than_its_operand_only() {
    let cells = [
        cell("a", 90_000, "far"),
        cell("a", 9_000, "new"),
        cell("a", 3_000, "old"),
    ];
    let of = |times, timestamp: Option<i64>| {
        let rule = RmwRule {
            times: Some(times),
            timestamp: timestamp.map(Timestamp),
            is_new_version: true,
            ..rule("a", append("er"))
        };
        let written = written(&cells, &[rule], 7_000, BYTES_MAX).expect("it applies");
        let cell = written.first().expect("one column is written");
        (cell.timestamp.0, String::from_utf8_lossy(&cell.value).into_owned())
    };
    let cell = |at: i64, value: &str| (at, value.to_owned());
    assert_eq!(of((0, 6_000), None), cell(7_000, "older"));
    assert_eq!(of((0, 6_000), Some(5)), cell(7_000, "older"));
    assert_eq!(of((0, 10_000), None), cell(10_000, "newer"));
    assert_eq!(of((0, 100_000), None), cell(91_000, "farer"));
    // Without a cell there, it is at the server's time or its own, also behind others.
    assert_eq!(of((100_000, 200_000), None), cell(7_000, "er"));
    assert_eq!(of((100_000, 200_000), Some(5)), cell(5, "er"));
}
