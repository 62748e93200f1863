//! One scan for the meaning of each filter.

use super::*;

const ROWS: Rows<'static> = &[
    ("a", &["f:x@2=1", "f:x@1=2", "f:y@1=3", "g:x@2=4"]),
    ("ab", &["f:y@2=1"]),
    ("b", &["f:x@1=2", "g:z@1=5"]),
];

#[track_caller]
fn check(filter: &messages::Filter, expected: &str) {
    assert_eq!(scan(filter, ROWS), expected);
}

fn single(if_missing: bool, latest_only: bool, value: &'static str) -> messages::SingleColumnValueFilter {
    messages::SingleColumnValueFilter {
        column_family: Some("f".into()),
        column_qualifier: Some("x".into()),
        compare_op: CompareType::Equal as i32,
        comparator: binary(value),
        filter_if_missing: Some(if_missing),
        latest_version_only: Some(latest_only),
    }
}

#[test]
fn comparisons_read_the_stored_value_first() {
    check(
        &comparing("ValueFilter", CompareType::Less, "2"),
        "a{f:x@2=1} ab{f:y@2=1}",
    );
    check(
        &comparing("ValueFilter", CompareType::Greater, "3"),
        "a{g:x@2=4} b{g:z@1=5}",
    );
    check(
        &comparing("QualifierFilter", CompareType::GreaterOrEqual, "z"),
        "b{g:z@1=5}",
    );
    check(
        &comparing("FamilyFilter", CompareType::NotEqual, "f"),
        "a{g:x@2=4} b{g:z@1=5}",
    );
    check(&comparing("RowFilter", CompareType::Equal, "ab"), "ab{f:y@2=1}");
    check(&comparing("ValueFilter", CompareType::NoOp, "2"), "");
}

#[test]
fn row_filters_end_the_scan_when_they_can() {
    check(&prefix("ab"), "ab{f:y@2=1} .");
    let stop = messages::InclusiveStopFilter {
        stop_row_key: Some("a".into()),
    };
    check(
        &filter("InclusiveStopFilter", &stop),
        "a{f:x@2=1 f:x@1=2 f:y@1=3 g:x@2=4} .",
    );
    check(&page(1), "a{f:x@2=1 f:x@1=2 f:y@1=3 g:x@2=4} .");
    check(&all(&[first_key(), page(2)]), "a{f:x@2=1} ab{f:y@2=1} .");
    check(&filter("FilterAllFilter", &()), "");
}

#[test]
fn a_reversed_scan_enters_a_prefix_from_above() {
    let reversed = ScanShape {
        reversed: true,
        ..shape()
    };
    let mut rows = ROWS.to_vec();
    rows.reverse();
    assert_eq!(scan_as(&prefix("ab"), &reversed, &rows), "ab{f:y@2=1} .");
    let stop = messages::InclusiveStopFilter {
        stop_row_key: Some("ab".into()),
    };
    let stop = filter("InclusiveStopFilter", &stop);
    assert_eq!(scan_as(&stop, &reversed, &rows), "b{f:x@1=2 g:z@1=5} ab{f:y@2=1} .");
}

#[test]
fn ranges_of_rows_include_and_exclude_their_bounds() {
    let range = |start: &'static str, stop: &'static str, stop_row_inclusive| messages::RowRange {
        start_row: Some(start.into()),
        start_row_inclusive: Some(true),
        stop_row: Some(stop.into()),
        stop_row_inclusive: Some(stop_row_inclusive),
    };
    let ranges = |row_range_list| filter("MultiRowRangeFilter", &messages::MultiRowRangeFilter { row_range_list });
    check(&ranges(vec![range("aa", "b", false)]), "ab{f:y@2=1} .");
    check(
        &ranges(vec![range("aa", "b", true), range("0", "1", true)]),
        "ab{f:y@2=1} b{f:x@1=2 g:z@1=5}",
    );
}

#[test]
fn fuzzy_keys_match_with_free_bytes() {
    let fuzzy = |mask: &'static [u8], is_mask_v2| {
        let pair = messages::BytesBytesPair {
            first: "?b".into(),
            second: mask.into(),
        };
        let message = messages::FuzzyRowFilter {
            fuzzy_keys_data: vec![pair],
            is_mask_v2,
        };
        filter("FuzzyRowFilter", &message)
    };
    // Rows that are shorter than the key match with their beginning, unless a hint leads past them.
    for (mask, v2) in [
        (&[1, 0][..], None),
        (&[0, 0xFF], None),
        (&[2, 0xFF], Some(true)),
        (&[1, 0], Some(true)),
    ] {
        check(
            &fuzzy(mask, v2),
            "a{f:x@2=1 f:x@1=2 f:y@1=3 g:x@2=4} ab{f:y@2=1} b{f:x@1=2 g:z@1=5}",
        );
    }
    // No row from the first on begins with the key.
    check(&fuzzy(&[0, 0], Some(true)), ".");
}

#[test]
fn a_random_row_passes_by_chance() {
    let random = |chance| filter("RandomRowFilter", &messages::RandomRowFilter { chance });
    check(&all(&[random(0.4), first_key()]), "");
    check(&all(&[random(0.6), first_key()]), "a{f:x@2=1} ab{f:y@2=1} b{f:x@1=2}");
}

#[test]
fn columns_are_selected_by_qualifier() {
    let x = messages::ColumnPrefixFilter { prefix: "x".into() };
    check(
        &filter("ColumnPrefixFilter", &x),
        "a{f:x@2=1 f:x@1=2 g:x@2=4} b{f:x@1=2}",
    );
    let prefixes = messages::MultipleColumnPrefixFilter {
        sorted_prefixes: vec!["z".into(), "y".into()],
    };
    check(
        &filter("MultipleColumnPrefixFilter", &prefixes),
        "a{f:y@1=3} ab{f:y@2=1} b{g:z@1=5}",
    );
    let range = messages::ColumnRangeFilter {
        min_column: Some("x".into()),
        min_column_inclusive: Some(false),
        max_column: Some("z".into()),
        max_column_inclusive: Some(false),
    };
    check(&filter("ColumnRangeFilter", &range), "a{f:y@1=3} ab{f:y@2=1}");
}

#[test]
fn columns_are_selected_by_number() {
    let offset = messages::ColumnPaginationFilter {
        limit: 1,
        offset: Some(1),
        column_offset: None,
    };
    check(&filter("ColumnPaginationFilter", &offset), "a{f:y@1=3} b{g:z@1=5}");
    let column = messages::ColumnPaginationFilter {
        limit: 1,
        offset: None,
        column_offset: Some("y".into()),
    };
    check(
        &filter("ColumnPaginationFilter", &column),
        "a{f:y@1=3} ab{f:y@2=1} b{g:z@1=5}",
    );
    // Made for Gets: a scan ends in the first row that has too many columns.
    let count = messages::ColumnCountGetFilter { limit: 1 };
    check(&filter("ColumnCountGetFilter", &count), "a{f:x@2=1} .");
}

#[test]
fn only_keys_are_returned() {
    check(&first_key(), "a{f:x@2=1} ab{f:y@2=1} b{f:x@1=2}");
    check(&all(&[first_key(), key_only(false)]), "a{f:x@2=} ab{f:y@2=} b{f:x@1=}");
    check(
        &all(&[first_key(), key_only(true)]),
        "a{f:x@2=\0\0\0\u{1}} ab{f:y@2=\0\0\0\u{1}} b{f:x@1=\0\0\0\u{1}}",
    );
    let qualifiers = vec!["y".into()];
    let matching = messages::FirstKeyValueMatchingQualifiersFilter { qualifiers };
    check(
        &filter("FirstKeyValueMatchingQualifiersFilter", &matching),
        "a{f:x@2=1 f:x@1=2 f:y@1=3} ab{f:y@2=1} b{f:x@1=2 g:z@1=5}",
    );
}

#[test]
fn cells_are_selected_by_time() {
    for can_hint in [None, Some(true)] {
        let times = messages::TimestampsFilter {
            timestamps: vec![2, 7],
            can_hint,
        };
        check(&filter("TimestampsFilter", &times), "a{f:x@2=1 g:x@2=4} ab{f:y@2=1}");
    }
}

#[test]
fn a_row_is_judged_by_one_column() {
    let whole = "a{f:x@2=1 f:x@1=2 f:y@1=3 g:x@2=4}";
    let class = "SingleColumnValueFilter";
    check(&filter(class, &single(true, true, "1")), whole);
    check(
        &filter(class, &single(false, true, "1")),
        &format!("{whole} ab{{f:y@2=1}}"),
    );
    check(&filter(class, &single(true, true, "2")), "b{f:x@1=2 g:z@1=5}");
    let older = single(true, false, "2");
    check(&filter(class, &older), &format!("{whole} b{{f:x@1=2 g:z@1=5}}"));
    let exclude = messages::SingleColumnValueExcludeFilter {
        single_column_value_filter: older,
    };
    check(
        &filter("SingleColumnValueExcludeFilter", &exclude),
        "a{f:y@1=3 g:x@2=4} b{g:z@1=5}",
    );
}

#[test]
fn one_column_is_returned_if_its_value_passes() {
    let message = messages::ColumnValueFilter {
        family: "f".into(),
        qualifier: "x".into(),
        compare_op: CompareType::Equal as i32,
        comparator: binary("2"),
    };
    check(&filter("ColumnValueFilter", &message), "a{f:x@1=2} b{f:x@1=2}");
}

#[test]
fn cells_depend_on_the_timestamps_of_a_column() {
    let message = |drop_dependent_column| messages::DependentColumnFilter {
        compare_filter: messages::CompareFilter {
            compare_op: CompareType::NoOp as i32,
            comparator: None,
        },
        column_family: Some("f".into()),
        column_qualifier: Some("y".into()),
        drop_dependent_column,
    };
    let class = "DependentColumnFilter";
    check(&filter(class, &message(None)), "a{f:x@1=2 f:y@1=3} ab{f:y@2=1}");
    check(&filter(class, &message(Some(true))), "a{f:x@1=2}");
}

#[test]
fn wrappers_skip_rows_and_end_scans() {
    let not_3 = comparing("ValueFilter", CompareType::NotEqual, "3");
    check(&wrapping("SkipFilter", not_3.clone()), "ab{f:y@2=1} b{f:x@1=2 g:z@1=5}");
    check(&wrapping("WhileMatchFilter", not_3.clone()), "a{f:x@2=1 f:x@1=2} .");
    check(
        &wrapping("FilterWrapper", not_3),
        "a{f:x@2=1 f:x@1=2 g:x@2=4} ab{f:y@2=1} b{f:x@1=2 g:z@1=5}",
    );
}

#[test]
fn lists_need_all_or_one() {
    let x = comparing("QualifierFilter", CompareType::Equal, "x");
    let two = comparing("ValueFilter", CompareType::Equal, "2");
    check(&all(&[x.clone(), two.clone()]), "a{f:x@1=2} b{f:x@1=2}");
    check(&one(&[x, two]), "a{f:x@2=1 f:x@1=2 g:x@2=4} b{f:x@1=2}");
    let whole = "a{f:x@2=1 f:x@1=2 f:y@1=3 g:x@2=4} ab{f:y@2=1} b{f:x@1=2 g:z@1=5}";
    check(&all(&[]), whole);
    check(&one(&[]), whole);
}

#[test]
fn versions_are_limited_after_the_filter() {
    let rows: Rows<'_> = &[("a", &["f:x@4=1", "f:x@3=2", "f:x@2=2", "f:x@1=2"])];
    let two = comparing("ValueFilter", CompareType::Equal, "2");
    assert_eq!(scan(&two, rows), "a{f:x@3=2 f:x@2=2}");
}

#[test]
fn values_of_another_type_are_errors() {
    let comparable = messages::ByteArrayComparable {
        value: Some(7i64.to_be_bytes().to_vec().into()),
    };
    let comparator = messages::Comparator {
        name: format!("{PACKAGE}LongComparator").into(),
        serialized_comparator: Some(messages::ValueComparator { comparable }.encode_to_vec().into()),
    };
    let compare_filter = messages::CompareFilter {
        compare_op: CompareType::Equal as i32,
        comparator: Some(comparator),
    };
    let message = filter("ValueFilter", &messages::ComparingFilter { compare_filter });
    let mut filter = decoded(&message, &shape()).unwrap();
    let found = filter.row(b"a", &mut vec![cell("f:x@1=7")]);
    assert!(matches!(found, Err(FilterError::Value(_))), "{found:?}");
}

/// Rows come from the families that the filter needs, and there are none if the scan does not read them.
#[test]
fn families_that_are_read_on_demand_make_no_rows() {
    let single = filter("SingleColumnValueFilter", &single(true, true, "2"));
    for (outer, all_families) in [("SkipFilter", "a{g:x@2=4} b{g:z@1=5}"), ("WhileMatchFilter", ".")] {
        let outer = wrapping(outer, single.clone());
        let rows: Rows<'_> = &[("a", &["g:x@2=4"]), ("b", &["g:z@1=5"])];
        let mut of_g = shape();
        of_g.families.remove(0);
        assert_eq!(scan_as(&outer, &of_g, rows), all_families);
        of_g.load_on_demand = true;
        assert_eq!(scan_as(&outer, &of_g, rows), ".", "the scan ends");
        // A list needs the families of all its filters, and others need every family.
        let of_lists = [
            all(&[outer.clone(), key_only(false)]),
            one(&[outer.clone(), key_only(false)]),
        ];
        for list in of_lists {
            of_g.load_on_demand = false;
            let without = scan_as(&list, &of_g, rows);
            of_g.load_on_demand = true;
            assert_eq!(scan_as(&list, &of_g, rows), without);
        }
    }
    // The filter itself ends a scan of all families. On demand only the region ends, and a client goes on to the next one.
    let outer = wrapping("WhileMatchFilter", single);
    for load_on_demand in [false, true] {
        let mut of_g = shape();
        of_g.families.remove(0);
        of_g.load_on_demand = load_on_demand;
        let mut filter = decoded(&outer, &of_g).unwrap();
        filter.row(b"a", &mut vec![cell("g:x@2=4")]).unwrap();
        assert_eq!(filter.is_done(), !load_on_demand);
    }
}
