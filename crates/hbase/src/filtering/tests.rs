//! Work and memory of filters over the rows of a table.

use super::*;
use crate::filters::FamilyVersions;
use crate::test_service::Model;
use prost::Message;
use std::ops::Bound;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::{Part, Pool};
use stele_types::Timestamp;
use stele_wire::messages::{self, CompareType, ListOperator};

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

fn filter(class: &str, message: &impl Message) -> Filter {
    Filter {
        name: format!("{PACKAGE}{class}").into(),
        serialized_filter: Some(message.encode_to_vec().into()),
    }
}

fn comparing(class: &str, comparator: &str, message: &impl Message) -> Filter {
    let compare_filter = messages::CompareFilter {
        compare_op: CompareType::Equal as i32,
        comparator: Some(messages::Comparator {
            name: format!("{PACKAGE}{comparator}").into(),
            serialized_comparator: Some(message.encode_to_vec().into()),
        }),
    };
    filter(class, &messages::ComparingFilter { compare_filter })
}

fn substring(class: &str, substr: &str) -> Filter {
    let substr = substr.to_owned();
    comparing(class, "SubstringComparator", &messages::SubstringComparator { substr })
}

fn pattern(pattern: &str) -> Filter {
    let message = messages::RegexStringComparator {
        pattern: pattern.to_owned(),
        pattern_flags: 32,
        charset: "UTF-8".to_owned(),
        engine: None,
    };
    comparing("ValueFilter", "RegexStringComparator", &message)
}

fn one(filters: Vec<Filter>) -> Filter {
    let operator = ListOperator::MustPassOne as i32;
    filter("FilterList", &messages::FilterList { operator, filters })
}

fn fuzzy(keys: usize) -> Filter {
    let pair = |key: usize| messages::BytesBytesPair {
        first: format!("{key:08}").into(),
        second: vec![0xFF; 8].into(),
    };
    let message = messages::FuzzyRowFilter {
        fuzzy_keys_data: (0..keys).map(pair).collect(),
        is_mask_v2: Some(true),
    };
    let skip = messages::WrappingFilter {
        filter: filter("FuzzyRowFilter", &message),
    };
    filter("SkipFilter", &skip)
}

fn cells(count: usize, value: Bytes) -> Vec<Cell> {
    let cell = |n: usize| Cell::put(FamilyId(1), format!("q{n:06}").into(), Timestamp(5), value.clone());
    (0..count).map(cell).collect()
}

/// A filter with this much memory of responses.
fn decoded(filter: &Filter, bytes: usize) -> (RowFilter, Arc<TableSchema>) {
    let schema = Model::new(&[""]).schema.clone();
    let shape = ScanShape {
        families: vec![FamilyVersions {
            family: "info".into(),
            versions_max: 1,
        }],
        ..ScanShape::default()
    };
    let pool = Pool::default().limited(Part::Responses, bytes);
    let memory = pool.of(Part::Responses);
    let Ok(decoded) = RowFilter::decode_within(filter, &schema, &shape, &TokioRuntime::current(), &memory) else {
        unreachable!("the filter is valid, and small");
    };
    (decoded, schema)
}

/// The units of a filter for a row, or its refusal.
fn apply(filter: &Filter, cells: &mut Vec<Cell>) -> Outcome<usize> {
    let (mut filter, schema) = decoded(filter, 1 << 30);
    let spent = filter.spent();
    let units = filter.apply(&schema, b"00000007", cells)?;
    assert_eq!(filter.spent(), spent + units);
    Ok(units)
}

#[tokio::test]
async fn substrings_cost_by_the_bytes_of_values() {
    let value = Bytes::from(vec![b'X'; 4 << 20]);
    let units = |class, value: &Bytes| apply(&substring(class, "xy"), &mut cells(1, value.clone())).ok();
    assert_eq!(units("ValueFilter", &value), Some(1 + 4 * (4 << 20) / 64));
    assert_eq!(units("ValueFilter", &value.slice(..100)), Some(1 + 4));
    assert_eq!(units("QualifierFilter", &value), Some(1));
    let many = one(vec![substring("ValueFilter", "xy"); 100]);
    let refused = apply(&many, &mut cells(1, value.clone())).unwrap_err();
    assert!(refused.message.contains("too much work"), "{refused:?}");
    let mut kept = cells(1, value);
    apply(&substring("ValueFilter", "Xx"), &mut kept).unwrap();
    assert_eq!(kept.len(), 1);
}

#[tokio::test]
async fn patterns_of_very_many_states_cost_more() {
    let value = Bytes::from(vec![b'b'; 4 << 20]);
    let units = |text: &str| apply(&pattern(text), &mut cells(1, value.clone())).ok();
    assert_eq!(units("error.*(timeout|refused)"), Some(1 + (4 << 20) / 64));
    assert!(units("ERROR.{0,200}x").is_some());
    assert_eq!(units("a.{600}b"), None, "too much work");
}

#[tokio::test]
async fn fuzzy_keys_cost_once_for_each_row() {
    let units = |keys, count| apply(&fuzzy(keys), &mut cells(count, Bytes::new())).unwrap();
    let (few, many) = (units(10, 100), units(10_000, 100));
    assert!(many - few >= 9_990 && many < 100 * 10_000, "{few} {many}");
    assert_eq!(units(10_000, 101) - many, 2);
    let mut kept = cells(100, Bytes::new());
    apply(&fuzzy(10), &mut kept).unwrap();
    assert_eq!(kept.len(), 100);
}

#[tokio::test]
async fn long_arguments_cost_in_each_cell() {
    let long = messages::BinaryComparator {
        comparable: messages::ByteArrayComparable {
            value: Some(vec![b'x'; 100_000].into()),
        },
    };
    let filter = one(vec![comparing("ValueFilter", "BinaryComparator", &long); 10]);
    let units = |count, value: usize| apply(&filter, &mut cells(count, vec![b'x'; value].into()));
    assert!((15_000..16_000).contains(&units(1, 200_000).unwrap()));
    assert!(units(100, 1).unwrap() < 2_000);
    units(1_500, 200_000).unwrap_err();
}

#[tokio::test]
async fn the_first_of_many_qualifiers_is_found() {
    let message = messages::FirstKeyValueMatchingQualifiersFilter {
        qualifiers: (0..20_000).rev().map(|n| format!("q{n:06}").into()).collect(),
    };
    let mut kept = cells(20, Bytes::new());
    apply(&filter("FirstKeyValueMatchingQualifiersFilter", &message), &mut kept).unwrap();
    assert_eq!(kept.len(), 1);
}

/// Text that is not UTF-8 is copied for a pattern, with memory that is reserved as long as the row is judged.
#[tokio::test]
async fn a_pattern_copies_malformed_values_within_memory() {
    let text = Bytes::from(vec![b'a'; 2 << 20]);
    let mut malformed = text.to_vec();
    malformed[5] = 0xFF;
    let malformed = Bytes::from(malformed);
    let filter = pattern("a\u{FFFD}a");
    let judge = |bytes: usize, value: &Bytes| {
        let (mut filter, schema) = decoded(&filter, bytes);
        let before = filter.reserved();
        let mut cells = cells(1, value.clone());
        let judged = filter.apply(&schema, b"r", &mut cells).map(|_| cells.len());
        assert_eq!(filter.reserved(), before, "what was reserved is free again");
        judged
    };
    assert_eq!(judge(8 << 20, &malformed).ok(), Some(1));
    assert_eq!(judge(1 << 20, &text).ok(), Some(0), "no copy");
    let busy = judge((6 << 20) + 1_000, &malformed).unwrap_err();
    assert!(busy.is_overload(), "{busy:?}");
    let never = judge(1 << 20, &malformed).unwrap_err();
    assert!(!never.is_overload(), "{never:?}");
}

/// Cells that no answer depends on are not read. The recorded cases of `filters::tests` compare the answers.
#[tokio::test]
async fn parts_of_rows_that_no_answer_depends_on_are_left_out_below() {
    let first = || filter("FirstKeyOnlyFilter", &());
    let keys = || filter("KeyOnlyFilter", &messages::KeyOnlyFilter { len_as_val: false });
    let prefix = || {
        let prefix = Bytes::from_static(b"x");
        filter("ColumnPrefixFilter", &messages::ColumnPrefixFilter { prefix })
    };
    let all = |filters| {
        let operator = ListOperator::MustPassAll as i32;
        filter("FilterList", &messages::FilterList { operator, filters })
    };
    let of_family = comparing(
        "FamilyFilter",
        "BinaryComparator",
        &messages::BinaryComparator {
            comparable: messages::ByteArrayComparable {
                value: Some("table".into()),
            },
        },
    );
    let range = |family: &str, start: Bound<&'static [u8]>, end: Bound<&'static [u8]>| Narrowed::ColumnRange {
        family: family.to_owned(),
        start: start.map(Bytes::from_static),
        end: end.map(Bytes::from_static),
    };
    let table = || range("table", Bound::Unbounded, Bound::Unbounded);
    let x = range("info", Bound::Included(b"x"), Bound::Excluded(b"y"));
    let columns = |start: &[u8], end: &[u8]| {
        let message = messages::ColumnRangeFilter {
            min_column: Some(Bytes::copy_from_slice(start)),
            min_column_inclusive: Some(true),
            max_column: Some(Bytes::copy_from_slice(end)),
            max_column_inclusive: Some(false),
        };
        filter("ColumnRangeFilter", &message)
    };
    let rows = |count: u32| {
        let range = |n: u32| messages::RowRange {
            start_row: Some(format!("{n:08}a").into()),
            start_row_inclusive: Some(true),
            stop_row: Some(format!("{n:08}b").into()),
            stop_row_inclusive: Some(false),
        };
        let row_range_list = (0..count).map(range).collect();
        filter("MultiRowRangeFilter", &messages::MultiRowRangeFilter { row_range_list })
    };
    // By filter: with several families, with these in another order, and with one family.
    let cases = [
        (
            first(),
            vec![Narrowed::CellsPerRow(1)],
            vec![],
            vec![Narrowed::CellsPerRow(1)],
        ),
        (
            all(vec![first(), keys()]),
            vec![Narrowed::CellsPerRow(1), Narrowed::StripValue],
            vec![Narrowed::StripValue],
            vec![Narrowed::CellsPerRow(1), Narrowed::StripValue],
        ),
        (prefix(), vec![], vec![], vec![x]),
        (all(vec![first(), prefix()]), vec![], vec![], vec![]),
        // HBase answers such a scan with no rows, and the data model refuses such a range.
        (columns(b"x", b"apricot"), vec![], vec![], vec![]),
        (columns(&[b'x'; 40_000], &[b'y'; 40_000]), vec![], vec![], vec![]),
        (
            all(vec![first(), rows(2)]),
            vec![Narrowed::CellsPerRow(1)],
            vec![],
            vec![Narrowed::CellsPerRow(1)],
        ),
        // Every family must ask to skip the rows between the ranges.
        (all(vec![first(), rows(2_000)]), vec![], vec![], vec![]),
        (of_family, vec![table()], vec![table()], vec![]),
    ];
    for (filter, several, disordered, one) in cases {
        let (row_filter, schema) = decoded(&filter, 1 << 30);
        assert!(schema.families.len() > 1);
        assert_eq!(row_filter.narrowed(&schema, true), several, "{filter:?}");
        let strips = several.contains(&Narrowed::StripValue);
        let none = strips.then_some(Narrowed::StripValue);
        assert_eq!(row_filter.narrowed(&schema, false), Vec::from_iter(none), "{filter:?}");
        let mut other = TableSchema::clone(&schema);
        let names: Vec<String> = other.families.values().map(|family| family.name.clone()).collect();
        for (family, name) in other.families.values_mut().zip(names.into_iter().rev()) {
            family.name = name;
        }
        assert_eq!(row_filter.narrowed(&other, true), disordered, "{filter:?}");
        let mut single = TableSchema::clone(&schema);
        single.families.retain(|_, family| family.name == "info");
        assert_eq!(row_filter.narrowed(&single, true), one, "{filter:?}");
        for (schema, narrowed) in [(&*schema, several), (&single, one)] {
            assert!(
                narrowed.iter().all(|filter| filter.compile(schema).is_ok()),
                "{filter:?}"
            );
        }
    }
}
