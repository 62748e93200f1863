//! Rows and cells that a scan may leave out.

use super::*;
use std::ops::Bound;

fn ranges(filter: &messages::Filter) -> Option<String> {
    let bound = |bound: &Bound<Bytes>| match bound {
        Bound::Included(row) => format!("{}!", String::from_utf8_lossy(row)),
        Bound::Excluded(row) => String::from_utf8_lossy(row).into_owned(),
        Bound::Unbounded => String::new(),
    };
    let ranges = decoded(filter, &shape()).unwrap().row_ranges()?;
    let ranges = ranges
        .iter()
        .map(|range| format!("{}..{}", bound(&range.start), bound(&range.stop)));
    Some(ranges.collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn check(filter: &messages::Filter, expected: &str) {
    assert_eq!(ranges(filter).as_deref(), Some(expected));
}

fn row(op: CompareType, value: &'static str) -> messages::Filter {
    comparing("RowFilter", op, value)
}

#[test]
fn keys_narrow_the_rows() {
    check(&prefix("a"), "a!..b");
    check(&row(CompareType::Equal, "a"), "a!..a!");
    check(&row(CompareType::Less, "a"), "..a");
    check(&row(CompareType::Greater, "a"), "a..");
    check(
        &all(&[prefix("a"), page(1), row(CompareType::GreaterOrEqual, "ab")]),
        "ab!..b",
    );
    check(&all(&[prefix("a"), prefix("b")]), "");
    check(&one(&[prefix("c"), row(CompareType::Equal, "a")]), "a!..a! c!..d");
    check(&one(&[prefix("a"), row(CompareType::Less, "ab")]), "..b");
}

#[test]
fn filters_that_remember_rows_see_all() {
    for other in [
        wrapping("WhileMatchFilter", first_key()),
        filter("ColumnCountGetFilter", &messages::ColumnCountGetFilter { limit: 1 }),
    ] {
        assert_eq!(ranges(&all(&[prefix("a"), other])), None);
    }
    assert_eq!(ranges(&row(CompareType::NotEqual, "a")), None);
    assert_eq!(ranges(&one(&[prefix("a"), first_key()])), None);
    assert_eq!(ranges(&wrapping("SkipFilter", prefix("a"))), None);
}

#[test]
fn cells_are_narrowed_only_for_independent_filters() {
    let needs = |filter: &messages::Filter| decoded(filter, &shape()).unwrap().needs();
    let counting = needs(&all(&[prefix("a"), first_key(), key_only(false)]));
    assert!(counting.first_cell && !counting.values);
    assert!(needs(&first_key()).values);
    assert!(needs(&key_only(true)).values);
    let x = filter(
        "ColumnPrefixFilter",
        &messages::ColumnPrefixFilter { prefix: "x".into() },
    );
    assert_eq!(needs(&x).qualifiers.start, Bound::Included("x".into()));
    // The first cell of the row decides, in any column.
    let both = needs(&all(&[first_key(), x]));
    assert!(!both.first_cell);
    assert_eq!(both.qualifiers.start, Bound::Unbounded);
    let by_value = comparing("ValueFilter", CompareType::Equal, "1");
    assert!(needs(&all(&[by_value, key_only(false)])).values);
    let family = needs(&comparing("FamilyFilter", CompareType::Equal, "f")).family;
    assert_eq!(family, Some("f".into()));
}

#[test]
fn hints_tell_the_next_row() {
    let mut filter = decoded(&prefix("m"), &shape()).unwrap();
    filter.row(b"a", &mut vec![cell("f:x@1=1"), cell("g:x@1=1")]).unwrap();
    assert_eq!(filter.next_row(), Some("m".into()));
    // The other family has not asked for a later row yet.
    let mut filter = decoded(&prefix("m"), &shape()).unwrap();
    filter.row(b"a", &mut vec![cell("f:x@1=1")]).unwrap();
    assert_eq!(filter.next_row(), None);
}
