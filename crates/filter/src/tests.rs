//! Tests every kind of filter by example, and the errors of compilation.

mod families;

use crate::list_memory::LABEL_BYTES;
use crate::testing::{cell, middle, row, schema, show};
use crate::{CompiledFilter, Filter, FilterError};
use bytes::Bytes;
use std::ops::Bound;
use stele_types::{Cell, ErrorKind, FamilyId, TableSchema};

use Filter::*;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn range(family: &str, start: Bound<&'static str>, end: Bound<&'static str>) -> Filter {
    ColumnRange {
        family: family.to_owned(),
        start: start.map(bytes),
        end: end.map(bytes),
    }
}

fn condition(predicate: Filter, on_true: Option<Filter>, on_false: Option<Filter>) -> Filter {
    Condition {
        predicate: Box::new(predicate),
        on_true: on_true.map(Box::new),
        on_false: on_false.map(Box::new),
    }
}

/// The filter's result for [`row`], whose cells are `a:x@3 a:x@2 a:x@1 a:y@2 b:x@5 b:x@4 b:z@1`, each with the value
/// `v` and its timestamp.
#[track_caller]
fn check(filter: Filter, expected: &str) {
    let compiled = filter.compile(&schema()).unwrap();
    let answer = compiled.apply(b"row", row(), &mut middle).unwrap();
    assert_eq!(show(&answer), expected, "{filter:?}");
    let reduced = compiled.pushdown().reduce(row());
    let answer = compiled.apply(b"row", reduced, &mut middle).unwrap();
    assert_eq!(
        show(&answer),
        expected,
        "after the reduction by {:?}",
        compiled.pushdown()
    );
}

#[track_caller]
fn refuse(filter: Filter, expected: &str) {
    let error = filter.compile(&schema()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(expected), "{error}");
    // Also where no row gets, and in the branch not taken.
    let hidden = Chain(vec![BlockAll, Interleave(vec![PassAll, filter.clone()])]);
    assert_eq!(hidden.compile(&schema()).unwrap_err(), error);
    assert!(condition(BlockAll, Some(filter), None).compile(&schema()).is_err());
}

const ALL: &str = "a:x@3=v3 a:x@2=v2 a:x@1=v1 a:y@2=v2 b:x@5=v5 b:x@4=v4 b:z@1=v1";

#[test]
fn all_or_nothing() {
    check(PassAll, ALL);
    check(BlockAll, "");
    check(Sink, ALL);
    check(RowKeyRegex(bytes("r.w")), ALL);
    check(RowKeyRegex(bytes("ro")), "");
    check(RowSample(0.51), ALL);
    check(RowSample(0.5), "");
}

#[test]
fn tests_of_cells() {
    check(FamilyRegex(bytes("a")), "a:x@3=v3 a:x@2=v2 a:x@1=v1 a:y@2=v2");
    check(FamilyRegex(bytes("b|c")), "b:x@5=v5 b:x@4=v4 b:z@1=v1");
    check(FamilyRegex(bytes("nope")), "");
    check(QualifierRegex(bytes("[yz]")), "a:y@2=v2 b:z@1=v1");
    check(QualifierRegex(bytes("y")), "a:y@2=v2");
    check(QualifierRegex(bytes("")), "");
    check(ValueRegex(bytes("v[45]")), "b:x@5=v5 b:x@4=v4");
    check(ValueRegex(bytes("")), "");
    check(
        range("a", Bound::Included("x"), Bound::Excluded("y")),
        "a:x@3=v3 a:x@2=v2 a:x@1=v1",
    );
    check(range("a", Bound::Excluded("x"), Bound::Unbounded), "a:y@2=v2");
    check(range("b", Bound::Unbounded, Bound::Included("x")), "b:x@5=v5 b:x@4=v4");
    check(range("a", Bound::Excluded("x"), Bound::Excluded("x")), "");
    check(range("nope", Bound::Unbounded, Bound::Unbounded), "");
    check(TimestampRange { start: 2, end: Some(4) }, "a:x@3=v3 a:x@2=v2 a:y@2=v2");
    check(TimestampRange { start: 4, end: None }, "b:x@5=v5 b:x@4=v4");
    check(TimestampRange { start: 4, end: Some(4) }, "");
    let (start, end) = (Bound::Excluded(bytes("v3")), Bound::Included(bytes("v4")));
    check(ValueRange { start, end }, "b:x@4=v4");
    // v is 0x76; 1, 3 and 5 have bit 0 set.
    let odd = "a:x@3=v3 a:x@1=v1 b:x@5=v5 b:z@1=v1";
    check(ValueBitmask(Bytes::from_static(b"\x76\x01")), odd);
    check(ValueBitmask(Bytes::from_static(b"\x76")), "");
    check(ValueBitmask(Bytes::from_static(b"\x76\x01\x00")), "");
    check(ValueBitmask(Bytes::from_static(b"\x00\x00")), ALL);
}

#[test]
fn limits_of_cells() {
    check(CellsPerColumn(1), "a:x@3=v3 a:y@2=v2 b:x@5=v5 b:z@1=v1");
    check(
        CellsPerColumn(2),
        "a:x@3=v3 a:x@2=v2 a:y@2=v2 b:x@5=v5 b:x@4=v4 b:z@1=v1",
    );
    check(CellsPerColumn(i32::MAX), ALL);
    check(CellsPerRow(1), "a:x@3=v3");
    check(CellsPerRow(5), "a:x@3=v3 a:x@2=v2 a:x@1=v1 a:y@2=v2 b:x@5=v5");
    check(CellsPerRowOffset(0), ALL);
    check(CellsPerRowOffset(5), "b:x@4=v4 b:z@1=v1");
    check(CellsPerRowOffset(7), "");
    check(CellsPerRowOffset(i32::MAX), "");
    check(Chain(vec![CellsPerRowOffset(1), CellsPerRow(2)]), "a:x@2=v2 a:x@1=v1");
    check(Chain(vec![CellsPerRow(2), CellsPerRowOffset(1)]), "a:x@2=v2");
    // Limits count only the cells that filters before them let through.
    let b = || FamilyRegex(bytes("b"));
    check(Chain(vec![CellsPerRow(5), b()]), "b:x@5=v5");
    check(Chain(vec![b(), CellsPerRow(2)]), "b:x@5=v5 b:x@4=v4");
    let old = || TimestampRange { start: 0, end: Some(3) };
    check(Chain(vec![CellsPerColumn(1), old()]), "a:y@2=v2 b:z@1=v1");
    check(Chain(vec![old(), CellsPerColumn(1)]), "a:x@2=v2 a:y@2=v2 b:z@1=v1");
    let two = || ValueRegex(bytes("v2"));
    check(Chain(vec![CellsPerColumn(1), two()]), "a:y@2=v2");
    check(Chain(vec![two(), CellsPerColumn(1)]), "a:x@2=v2 a:y@2=v2");
    let four = "a:x@3=v3 a:y@2=v2 b:x@5=v5 b:z@1=v1";
    check(Chain(vec![CellsPerColumn(2), CellsPerColumn(1), CellsPerRow(4)]), four);
    let oldest = Interleave(vec![Chain(vec![old(), CellsPerRow(1)]), BlockAll]);
    check(Chain(vec![CellsPerColumn(1), oldest]), "a:y@2=v2");
    // Side by side, a limit counts cells that another member rejects.
    let latest_twice = Interleave(vec![Chain(vec![old(), CellsPerColumn(1)]), CellsPerColumn(1)]);
    check(
        latest_twice,
        "a:x@3=v3 a:x@2=v2 a:y@2=v2 a:y@2=v2 b:x@5=v5 b:z@1=v1 b:z@1=v1",
    );
    let first_twice = Interleave(vec![Chain(vec![b(), CellsPerRow(1)]), CellsPerRow(1)]);
    check(first_twice, "a:x@3=v3 b:x@5=v5");
}

#[test]
fn interleave_pools_sorts_and_keeps_copies() {
    let y = || QualifierRegex(bytes("y"));
    let label = |l: &str| ApplyLabel(l.to_owned());
    check(Interleave(vec![y(), y()]), "a:y@2=v2 a:y@2=v2");
    check(Interleave(vec![QualifierRegex(bytes("z")), y()]), "a:y@2=v2 b:z@1=v1");
    check(Interleave(vec![BlockAll, BlockAll]), "");
    // Copies count for limits after the interleave.
    let twice = || Interleave(vec![PassAll, PassAll]);
    check(Chain(vec![twice(), CellsPerRow(3)]), "a:x@3=v3 a:x@3=v3 a:x@2=v2");
    check(Chain(vec![twice(), y(), CellsPerColumn(1)]), "a:y@2=v2");
    let rest = "b:x@5=v5 b:x@4=v4 b:x@4=v4 b:z@1=v1 b:z@1=v1";
    check(Chain(vec![twice(), CellsPerRowOffset(9)]), rest);
    let labelled = Interleave(vec![
        Chain(vec![y(), label("one")]),
        Chain(vec![label("two"), y(), StripValue]),
    ]);
    check(labelled, "a:y@2=v2[one] a:y@2=[two]");
}

#[test]
fn condition_filters_its_input() {
    let z = || QualifierRegex(bytes("z"));
    let y = || QualifierRegex(bytes("y"));
    check(condition(z(), Some(y()), Some(z())), "a:y@2=v2");
    check(condition(QualifierRegex(bytes("w")), Some(y()), Some(z())), "b:z@1=v1");
    check(condition(z(), None, Some(z())), "");
    check(condition(BlockAll, Some(y()), None), "");
    check(Chain(vec![y(), condition(z(), Some(PassAll), None)]), "");
    // A cell with an empty value is a cell.
    check(condition(Chain(vec![y(), StripValue]), Some(y()), None), "a:y@2=v2");
    // Labels of the predicate go with its output.
    let predicate = Chain(vec![y(), ApplyLabel("p".to_owned())]);
    check(condition(predicate, Some(y()), None), "a:y@2=v2");
    check(condition(RowKeyRegex(bytes("x.*")), None, Some(y())), "a:y@2=v2");
}

#[test]
fn sink_goes_past_enclosing_filters() {
    let y = || QualifierRegex(bytes("y"));
    let z = || QualifierRegex(bytes("z"));
    let label = |l: &str| ApplyLabel(l.to_owned());
    check(Chain(vec![y(), Sink]), "a:y@2=v2");
    check(Chain(vec![y(), Sink, BlockAll]), "a:y@2=v2");
    let with_sink = |sunk: Filter| Interleave(vec![PassAll, Chain(vec![sunk, Sink])]);
    check(Chain(vec![with_sink(y()), z()]), "a:y@2=v2 b:z@1=v1");
    check(Chain(vec![with_sink(z()), z()]), "b:z@1=v1 b:z@1=v1");
    check(Chain(vec![with_sink(y()), BlockAll]), "a:y@2=v2");
    check(Chain(vec![with_sink(y()), RowKeyRegex(bytes("no"))]), "a:y@2=v2");
    check(Chain(vec![with_sink(y()), StripValue, z()]), "a:y@2=v2 b:z@1=");
    // The label before the sink stays. The label after it is on cells that the sink did not take.
    let sunk = Interleave(vec![PassAll, Chain(vec![y(), label("s"), Sink])]);
    check(Chain(vec![sunk, label("t"), CellsPerRow(1)]), "a:x@3=v3[t] a:y@2=v2[s]");
    // Through several levels.
    let deep = Chain(vec![with_sink(y()), CellsPerRow(1)]);
    check(Chain(vec![Interleave(vec![deep, z()]), BlockAll]), "a:y@2=v2");
}

#[test]
fn transformers() {
    let y = || QualifierRegex(bytes("y"));
    let label = || ApplyLabel("a-1".to_owned());
    check(Chain(vec![y(), StripValue]), "a:y@2=");
    check(Chain(vec![y(), label(), StripValue]), "a:y@2=[a-1]");
    check(Chain(vec![y(), StripValue, label()]), "a:y@2=[a-1]");
    check(Chain(vec![y(), StripValue, ValueRegex(bytes(""))]), "a:y@2=");
    check(Chain(vec![y(), StripValue, ValueRegex(bytes("v2"))]), "");
}

#[test]
fn refusals() {
    refuse(Chain(vec![]), "Chain must contain at least two RowFilters");
    refuse(Chain(vec![PassAll]), "Chain must contain at least two RowFilters");
    refuse(
        Interleave(vec![PassAll]),
        "Interleave must contain at least two RowFilters",
    );
    let reason = "a sink filter cannot be used in a condition";
    refuse(condition(Sink, None, None), reason);
    refuse(condition(PassAll, Some(Chain(vec![PassAll, Sink])), None), reason);
    refuse(condition(PassAll, None, Some(Interleave(vec![Sink, Sink]))), reason);
    for probability in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        refuse(RowSample(probability), "row_sample_filter");
    }
    refuse(
        RowKeyRegex(bytes("")),
        "'row_key_regex_filter' : argument must not be empty",
    );
    refuse(RowKeyRegex(bytes("(")), "'row_key_regex_filter' : missing closing )");
    refuse(FamilyRegex(bytes("")), "'family_name_regex_filter'");
    refuse(FamilyRegex(bytes("a:b")), "must not contain ':'");
    refuse(FamilyRegex(bytes("a**")), "bad repetition operator");
    refuse(QualifierRegex(bytes("[")), "'column_qualifier_regex_filter'");
    refuse(ValueRegex(bytes("\\8")), "'value_regex_filter'");
    refuse(CellsPerRowOffset(-1), "'cells_per_row_offset_filter'");
    refuse(CellsPerRow(0), "'cells_per_row_limit_filter' : argument must be > 0");
    refuse(
        CellsPerColumn(0),
        "'cells_per_column_limit_filter' : argument must be > 0",
    );
    refuse(
        CellsPerColumn(-1),
        "'cells_per_column_limit_filter' : argument must be > 0",
    );
    refuse(TimestampRange { start: 2, end: Some(1) }, "'timestamp_range_filter'");
    refuse(
        range("a", Bound::Included("b"), Bound::Included("a")),
        "'column_range_filter'",
    );
    refuse(
        range("nope", Bound::Included("b"), Bound::Included("a")),
        "'column_range_filter'",
    );
    let (start, end) = (Bound::Excluded(bytes("b")), Bound::Excluded(bytes("a")));
    refuse(ValueRange { start, end }, "'value_range_filter'");
    for label in ["", "Not Allowed!", "a_b", "é", "sixteen-letters-"] {
        refuse(ApplyLabel(label.to_owned()), "apply_label_transformer");
    }
}

#[test]
fn one_label_in_a_chain() {
    let label = |l: &str| ApplyLabel(l.to_owned());
    let reason = "at most one apply_label_transformer";
    let refuse = |filter: Filter| {
        assert!(filter.compile(&schema()).unwrap_err().to_string().contains(reason));
    };
    let accept = |filter: Filter| assert!(filter.compile(&schema()).is_ok(), "{filter:?}");
    refuse(Chain(vec![label("a"), label("a")]));
    refuse(Chain(vec![label("a"), Interleave(vec![PassAll, label("b")])]));
    refuse(Chain(vec![Interleave(vec![label("a"), PassAll]), PassAll, label("b")]));
    refuse(Chain(vec![label("a"), condition(PassAll, None, Some(label("b")))]));
    refuse(Chain(vec![label("a"), condition(label("b"), None, None)]));
    refuse(Chain(vec![
        label("a"),
        Interleave(vec![PassAll, Chain(vec![label("b"), Sink])]),
    ]));
    accept(Interleave(vec![label("a"), label("b")]));
    accept(condition(label("a"), Some(label("b")), Some(label("c"))));
    let sunk = Interleave(vec![PassAll, Chain(vec![label("a"), Sink])]);
    accept(Chain(vec![sunk, label("b")]));
    accept(ApplyLabel("fifteen-letters".to_owned()));
}

#[test]
fn size_and_depth() {
    let nested = |depth: usize| {
        (0..depth).fold(PassAll, |inner, n| match n % 3 {
            0 => Chain(vec![PassAll, inner]),
            1 => Interleave(vec![inner, BlockAll]),
            _ => condition(PassAll, Some(inner), None),
        })
    };
    assert!(nested(24).compile(&schema()).is_ok());
    let error = nested(25).compile(&schema()).unwrap_err();
    assert_eq!(error.to_string(), "filters are nested more than 24 deep");
    let error = nested(10_000).compile(&schema()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);

    assert!(Chain(vec![PassAll; 131_071]).compile(&schema()).is_ok());
    assert!(Chain(vec![PassAll; 131_072]).compile(&schema()).is_err());
    let long = ValueBitmask(Bytes::from(vec![0; 262_143]));
    assert!(matches!(long.compile(&schema()), Err(FilterError::Structure(_))));
    let heavy = Interleave(vec![ValueRegex(bytes("[a-c]{1000}[a-c]{1000}[a-c]{1000}")); 100]);
    assert!(matches!(heavy.compile(&schema()), Err(FilterError::Structure(_))));
    // Small automata take more than their states; lists of strings take none.
    let small = |pattern, count| Interleave(vec![ValueRegex(bytes(pattern)); count]);
    assert!(small("[ab]", 500).compile(&schema()).is_ok());
    assert!(matches!(
        small("[ab]", 2_000).compile(&schema()),
        Err(FilterError::Structure(_))
    ));
    assert!(small("a|b", 2_000).compile(&schema()).is_ok());
    // A list in front of the heaviest filter that a client may send.
    let heaviest = Interleave(vec![ValueRegex(bytes("[a-c]{1000}[a-c]{1000}")); 58]);
    assert!(heaviest.compile(&schema()).is_ok());
    let names = Bytes::from(vec!["family-name"; 1_500].join("|"));
    let narrowed = Chain(vec![FamilyRegex(names), heaviest]);
    assert_eq!(narrowed.compile(&schema()).map(|_| ()), Ok(()));
    let shown = ValueRegex(Bytes::from(vec![b'('; 5_000]))
        .compile(&schema())
        .unwrap_err();
    assert!(shown.to_string().len() < 1_000);
}

#[test]
fn copies_are_bounded() {
    let twice = || Interleave(vec![PassAll, PassAll]);
    let doubling = Chain(vec![twice(); 30]).compile(&schema()).unwrap();
    let error = doubling.apply(b"row", row(), &mut middle).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    // The same growth past a sink, and by values instead of numbers.
    let sinks = Chain(vec![Interleave(vec![PassAll, PassAll, Sink]); 30]);
    let error = sinks
        .compile(&schema())
        .unwrap()
        .apply(b"row", row(), &mut middle)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    let mut large = cell(1, "x", 1);
    large.value = Bytes::from(vec![0; 100 << 20]);
    let thrice = Interleave(vec![PassAll; 3]).compile(&schema()).unwrap();
    let error = thrice.apply(b"row", vec![large], &mut middle).unwrap_err();
    assert!(matches!(error, FilterError::TooManyCells { .. }), "{error}");
}

#[test]
fn a_sample_is_decided_once() {
    let sample = Chain(vec![FamilyRegex(bytes("a")), RowSample(0.5), RowKeyRegex(bytes("r.*"))]);
    let compiled = sample.compile(&schema()).unwrap();
    let mut draws = 0;
    let mut rng = || {
        draws += 1;
        0.4
    };
    assert!(compiled.admits_row(b"row", &mut rng));
    assert_eq!(compiled.evaluate(b"row", row(), usize::MAX, &mut rng).unwrap().len(), 4);
    assert!(!compiled.admits_row(b"x", &mut || 0.4));
    assert!(!compiled.admits_row(b"row", &mut || 0.5));
    assert_eq!(draws, 1);
    // After a sink the decision must wait for evaluation.
    let late = Chain(vec![Interleave(vec![Sink, PassAll]), RowSample(0.5)]);
    let late = late.compile(&schema()).unwrap();
    assert!(late.admits_row(b"row", &mut || unreachable!()));
    assert_eq!(late.evaluate(b"row", row(), usize::MAX, &mut || 0.6).unwrap().len(), 7);
}

#[test]
fn pushdown_of_common_filters() {
    let of = |filter: Filter| filter.compile(&schema()).unwrap().pushdown().clone();
    let (a, b) = (FamilyId(1), FamilyId(2));

    let key_only = of(Chain(vec![CellsPerRow(1), StripValue]));
    assert_eq!((key_only.cells, key_only.keys_only), (Some(1), true));
    assert_eq!(key_only.families(), None);

    let latest = of(Chain(vec![FamilyRegex(bytes("a|b")), CellsPerColumn(1)]));
    assert_eq!((latest.versions, latest.families()), (Some(1), Some([a, b].into())));

    let column = of(Chain(vec![
        FamilyRegex(bytes("a")),
        QualifierRegex(bytes("x")),
        TimestampRange { start: 1, end: Some(3) },
        CellsPerColumn(1),
        CellsPerRowOffset(2),
        CellsPerRow(3),
    ]));
    let exact = column.columns.qualifiers(a).and_then(|range| range.as_exact());
    assert_eq!(exact, Some(&bytes("x")));
    assert_eq!(column.columns.qualifiers(b), None);
    assert_eq!((column.versions, column.cells), (Some(1), Some(5)));
    assert_eq!(column.timestamps.start.0, 1);

    // A test of values comes between, and the limit of versions stays after it.
    let value = of(Chain(vec![
        ValueRegex(bytes("v")),
        CellsPerColumn(1),
        FamilyRegex(bytes("a")),
    ]));
    assert_eq!((value.versions, value.families()), (None, Some([a].into())));
    assert!(!value.keys_only);

    let union = of(Interleave(vec![
        Chain(vec![FamilyRegex(bytes("a")), CellsPerColumn(1)]),
        range("b", Bound::Included("x"), Bound::Excluded("y")),
    ]));
    assert_eq!((union.versions, union.families()), (None, Some([a, b].into())));
    assert!(!union.columns.contains(b, b"y"));

    let rows = of(Chain(vec![RowKeyRegex(bytes("user\\.[0-9]+")), CellsPerRow(1)]));
    assert_eq!(&rows.row_prefix[..], b"user.");
    let either = Interleave(vec![RowKeyRegex(bytes("us.*")), RowKeyRegex(bytes("uk.*"))]);
    assert_eq!(&of(either).row_prefix[..], b"u");

    assert!(of(FamilyRegex(bytes("nope"))).no_cells);
    assert!(of(Chain(vec![PassAll, BlockAll])).no_cells);
    assert!(!of(Chain(vec![Sink, BlockAll])).no_cells);
    let contradiction = Chain(vec![RowKeyRegex(bytes("a.*")), RowKeyRegex(bytes("b.*"))]);
    assert!(of(contradiction).no_cells);
}

#[test]
fn bytes_of_copies_have_a_bound_before_evaluation() {
    let bytes = |filter: Filter| filter.compile(&schema()).unwrap().bytes_per_cell_max();
    let (cell, label) = (size_of::<Cell>(), LABEL_BYTES);
    assert_eq!(bytes(PassAll), 0);
    assert_eq!(bytes(CellsPerColumn(1)), 0);
    assert_eq!(bytes(ApplyLabel("l".to_owned())), label);
    let labels = |n: usize| Interleave((0..n).map(|i| ApplyLabel(format!("l{i}"))).collect());
    assert_eq!(bytes(labels(4)), 13 * (cell + label) + label);
    // Of a chain only the largest step counts, with the input of that step.
    let twice = || Interleave(vec![PassAll, PassAll]);
    assert_eq!(bytes(twice()), 7 * cell);
    assert_eq!(bytes(Chain(vec![twice(), twice(), PassAll])), (2 + 2 * 7) * cell);
}

/// Evaluates with ever more memory, and returns the least that is enough, to a sixteenth.
fn memory_needed(filter: &Filter, cells: &[Cell]) -> usize {
    let compiled = filter.compile(&schema()).unwrap();
    let mut memory = 0;
    loop {
        match compiled.evaluate(b"row", cells.to_vec(), memory, &mut middle) {
            Ok(_) => return memory,
            Err(FilterError::NeedsMemory { bytes }) => {
                assert!(bytes > memory, "{bytes} of {memory}");
                memory = (memory + memory / 16).max(bytes);
            }
            Err(error) => unreachable!("{error}"),
        }
    }
}

#[test]
fn memory_is_counted_for_actual_copies_only() {
    let either = || Interleave(vec![ValueRegex(bytes("v.*")), ValueRegex(bytes("w"))]);
    for cells in [
        vec![cell(1, "x", 1)],
        (0..1_000).map(|n| cell(1, "x", 1_000 - n)).collect(),
    ] {
        let input = cells.len() * size_of::<Cell>();
        let once = memory_needed(&either(), &cells);
        // Small lists have capacity for a few cells more.
        let spare = 4 * size_of::<Cell>();
        assert!((input..=4 * input + spare).contains(&once), "{once} of {input}");
        let chain = memory_needed(&Chain(vec![either(); 200]), &cells);
        assert!((once..=once + input + spare).contains(&chain), "{chain} of {once}");
        let nested = (0..18).fold(either(), |inner, _| {
            Interleave(vec![inner, BlockAll, ValueRegex(bytes("w"))])
        });
        assert!(memory_needed(&nested, &cells) <= once + input + spare);
        // Labels count, also where cells are labelled in place.
        let label = || ApplyLabel("l".to_owned());
        assert_eq!(memory_needed(&label(), &cells), cells.len() * LABEL_BYTES);
    }
    // One cell has as many copies as it has.
    let doubled = |n: usize| memory_needed(&Chain(vec![Interleave(vec![PassAll, PassAll]); n]), &[cell(1, "x", 1)]);
    for n in [4, 10, 14] {
        let least = size_of::<Cell>() << n;
        assert!((least..4 * least).contains(&doubled(n)), "{n}: {}", doubled(n));
    }
}

#[test]
fn memory_is_refused_before_it_is_taken() {
    let doubling = Chain(vec![Interleave(vec![PassAll, PassAll]); 19]);
    let sinks = Chain(vec![Interleave(vec![PassAll, PassAll, Sink]); 19]);
    for filter in [doubling, sinks] {
        let compiled = filter.compile(&schema()).unwrap();
        let error = compiled.evaluate(b"row", row(), 100_000, &mut middle).unwrap_err();
        // The list that would not fit is at most three times as long as the one before.
        let bytes = matches!(error, FilterError::NeedsMemory { bytes } if (100_001..400_000).contains(&bytes));
        assert!(bytes, "{error}");
    }
}

#[test]
fn bounds_of_memory_are_enough() {
    let filters = [
        Interleave(vec![PassAll; 2]),
        Interleave(vec![PassAll; 7]),
        Interleave(vec![StripValue, ApplyLabel("l".to_owned()), CellsPerColumn(1), Sink]),
        Chain(vec![Interleave(vec![PassAll, Sink, ApplyLabel("l".to_owned())]); 3]),
        Chain(vec![
            Interleave(vec![PassAll, StripValue]),
            CellsPerRow(1_000),
            Interleave(vec![PassAll, Sink]),
        ]),
        Interleave(vec![
            Interleave(vec![PassAll, Interleave(vec![PassAll, StripValue])]),
            PassAll,
        ]),
    ];
    // Lists have capacity for four cells or more, so bounds hold for rows that are not tiny.
    for cells in [10, 100, 1_000] {
        let cells: Vec<Cell> = (0..cells).map(|n| cell(1, "x", cells - n)).collect();
        for filter in filters.iter().filter(|filter| filter.compile(&schema()).is_ok()) {
            let bound = filter.compile(&schema()).unwrap().bytes_per_cell_max() * cells.len();
            let needed = memory_needed(filter, &cells);
            assert!(needed <= bound, "{filter:?}: {needed} of {bound}");
        }
    }
}

#[test]
fn values_are_tried_on_so_many_patterns() {
    let patterns = |filter: Filter| filter.compile(&schema()).unwrap().patterns_per_value();
    let value = || ValueRegex(bytes("[ab]"));
    assert_eq!((patterns(PassAll), patterns(QualifierRegex(bytes("[ab]")))), (0, 0));
    assert_eq!(patterns(Chain(vec![value(), StripValue, value()])), 2);
    let several = Interleave(vec![value(), value(), Chain(vec![FamilyRegex(bytes("a")), value()])]);
    assert_eq!(patterns(condition(value(), Some(several), Some(value()))), 4);
}
