//! Filters that are refused, and their limits.

use super::*;

fn refused(filter: &messages::Filter) -> String {
    decoded(filter, &shape()).unwrap_err().to_string()
}

fn pattern(pattern: &str) -> messages::Filter {
    let message = messages::RegexStringComparator {
        pattern: pattern.to_owned(),
        pattern_flags: 32,
        charset: "UTF-8".to_owned(),
        engine: None,
    };
    let comparator = messages::Comparator {
        name: format!("{PACKAGE}RegexStringComparator").into(),
        serialized_comparator: Some(message.encode_to_vec().into()),
    };
    let compare_filter = messages::CompareFilter {
        compare_op: CompareType::Equal as i32,
        comparator: Some(comparator),
    };
    filter("ValueFilter", &messages::ComparingFilter { compare_filter })
}

#[test]
fn unknown_classes_are_refused() {
    let unknown = filter("NoFilter", &());
    assert!(refused(&unknown).contains("NoFilter"));
    let elsewhere = messages::Filter {
        name: "java.lang.Runtime".into(),
        serialized_filter: None,
    };
    assert!(refused(&elsewhere).contains("java.lang.Runtime"));
    assert!(refused(&wrapping("SkipFilter", unknown)).contains("NoFilter"));
}

#[test]
fn depth_is_bounded() {
    let nested = |levels| (1..levels).fold(first_key(), |inner, _| wrapping("SkipFilter", inner));
    assert!(decoded(&nested(64), &shape()).is_ok());
    assert!(refused(&nested(65)).contains("64 levels"));
    assert!(refused(&nested(5000)).contains("64 levels"));
}

#[test]
fn the_number_of_filters_is_bounded() {
    let many = |count| one(&vec![first_key(); count]);
    assert!(decoded(&many(16_383), &shape()).is_ok());
    assert!(refused(&many(16_384)).contains("16384 filters"));
    let patterns = |count| one(&vec![pattern("a"); count]);
    assert!(decoded(&patterns(32), &shape()).is_ok());
    assert!(refused(&patterns(33)).contains("32 patterns"));
}

#[test]
fn patterns_that_need_backtracking_are_refused() {
    for (text, cause) in [
        ("a(?=b)", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back references"),
        ("a*+", "possessive"),
        ("(?>a)", "atomic"),
        ("$a", "at the end"),
        ("(a", "not closed"),
        ("a)", "not open"),
        ("*", "nothing to repeat"),
        ("[a", "not closed"),
        (&"[".repeat(100), "too deeply"),
        ("a{1000}{1000}", "nothing to repeat"),
        ("(?:a{1000}){1000}", "size"),
    ] {
        assert!(
            refused(&pattern(text)).contains(cause),
            "{text}: {}",
            refused(&pattern(text))
        );
    }
}

#[test]
fn arguments_are_checked() {
    let no_comparator = messages::ComparingFilter {
        compare_filter: messages::CompareFilter {
            compare_op: CompareType::Equal as i32,
            comparator: None,
        },
    };
    refused(&filter("RowFilter", &no_comparator));
    refused(&page(-1));
    refused(&filter("MultiRowRangeFilter", &()));
    refused(&filter("FuzzyRowFilter", &()));
    refused(&filter("InclusiveStopFilter", &()));
    refused(&filter(
        "ColumnCountGetFilter",
        &messages::ColumnCountGetFilter { limit: -1 },
    ));
    let not_a_message = messages::Filter {
        name: format!("{PACKAGE}PageFilter").into(),
        serialized_filter: Some("\u{ff}".into()),
    };
    refused(&not_a_message);
}

#[test]
fn filters_that_judge_whole_rows_say_so() {
    let whole = |filter: &messages::Filter| decoded(filter, &shape()).unwrap().has_filter_row();
    assert!(whole(&page(1)));
    assert!(whole(&all(&[first_key(), wrapping("SkipFilter", first_key())])));
    assert!(!whole(&one(&[first_key(), prefix("a")])));
}

/// The bytes that a filter charged, of which there are `most`, and its cost.
fn charged(filter: &messages::Filter, most: usize) -> (usize, Result<crate::filters::Cost, FilterError>) {
    let random: super::super::Random = std::sync::Arc::new(|| 0);
    let mut sum = 0;
    let mut charge = |bytes: usize| {
        sum += bytes;
        sum <= most
    };
    let decoded = ScanFilter::decode_within(filter, &shape(), &random, &mut charge);
    (sum, decoded.map(|filter| filter.cost()))
}

/// A filter whose message has empty elements in this field.
fn empty_elements(class: &str, number: u8, count: usize) -> messages::Filter {
    let elements = [number << 3 | 2, 0].repeat(count);
    messages::Filter {
        name: format!("{PACKAGE}{class}").into(),
        serialized_filter: Some(
            [&elements[..], if class == "FilterList" { &[0x08, 1] } else { &[] }]
                .concat()
                .into(),
        ),
    }
}

#[test]
fn elements_of_lists_are_counted_before_they_are_decoded() {
    let many = empty_elements("FilterList", 2, 20_000);
    assert!(refused(&many).contains("16384 filters"));
    // The filters of lists around it count, too.
    let inner = empty_elements("FilterList", 2, 9_000);
    let (_, outcome) = charged(&all(&[all(&vec![first_key(); 9_000]), inner]), usize::MAX);
    assert_eq!(outcome.unwrap_err(), FilterError::TooLarge("at most 16384 filters"));
    let (_, outcome) = charged(&empty_elements("FilterList", 2, 16_000), 1 << 20);
    assert_eq!(outcome.unwrap_err(), FilterError::NoMemory);
}

#[test]
fn elements_of_arguments_are_charged_before_they_are_decoded() {
    for (class, element_bytes) in [
        (
            "MultiRowRangeFilter",
            size_of::<messages::RowRange>() + size_of::<crate::filters::RowBounds>(),
        ),
        ("FuzzyRowFilter", 2 * size_of::<messages::BytesBytesPair>()),
        ("MultipleColumnPrefixFilter", 2 * size_of::<Bytes>()),
        ("FirstKeyValueMatchingQualifiersFilter", 2 * size_of::<Bytes>()),
    ] {
        let (bytes, _) = charged(&empty_elements(class, 1, 10_000), usize::MAX);
        assert!(bytes >= 2 * 10_000 * element_bytes, "{class}: {bytes}");
        let (_, outcome) = charged(&empty_elements(class, 1, 10_000), bytes - 1);
        assert_eq!(outcome.unwrap_err(), FilterError::NoMemory, "{class}");
    }
    let times = filter(
        "TimestampsFilter",
        &messages::TimestampsFilter {
            timestamps: vec![0; 10_000],
            can_hint: None,
        },
    );
    let (bytes, outcome) = charged(&times, usize::MAX);
    assert!(outcome.is_ok() && bytes >= 2 * 10_000 * size_of::<i64>(), "{bytes}");
}

#[test]
fn memory_is_charged_before_it_is_used() {
    let (small, cost) = charged(&pattern("a.*b"), usize::MAX);
    let cost = cost.unwrap();
    assert_eq!((cost.nodes, cost.patterns), (1, 1));
    assert!((256 << 10..300 << 10).contains(&small), "{small}");
    let (large, _) = charged(&pattern("(a{1,100}){1,100}"), usize::MAX);
    assert!(large > 2 << 20, "{large}");
    let (_, refused) = charged(&pattern("a.*b"), small - 1);
    assert_eq!(refused.unwrap_err(), FilterError::NoMemory);
    let many = all(&vec![prefix("a"); 1_000]);
    let (bytes, _) = charged(&many, usize::MAX);
    assert!(bytes > 256_000, "{bytes}");
    assert_eq!(charged(&many, bytes / 2).1.unwrap_err(), FilterError::NoMemory);
}
