#![allow(clippy::panic, reason = "a filter that no test expects")]

use super::*;

fn place() -> Place {
    Place {
        table: "projects/p/instances/i/tables/t".into(),
        app_profile: String::new(),
    }
}

fn columns(families: &[&str], qualifiers: &[&'static str], versions: u32) -> Columns {
    Columns {
        families: families.iter().map(|f| Arc::from(*f)).collect(),
        qualifiers: qualifiers.iter().map(|q| Bytes::from_static(q.as_bytes())).collect(),
        versions,
    }
}

/// A filter in a short form.
fn text(filter: &RowFilter) -> String {
    let utf8 = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    match filter.filter.as_ref().unwrap() {
        Filter::Chain(chain) => chain.filters.iter().map(text).collect::<Vec<_>>().join(" > "),
        Filter::FamilyNameRegexFilter(regex) => format!("family {regex}"),
        Filter::ColumnQualifierRegexFilter(regex) => format!("qualifier {}", utf8(regex)),
        Filter::CellsPerColumnLimitFilter(n) => format!("newest {n}"),
        Filter::ColumnRangeFilter(range) => format!(
            "column {:?}",
            (&range.family_name, &range.start_qualifier, &range.end_qualifier)
        ),
        Filter::ValueRangeFilter(range) => format!("value {:?}", (&range.start_value, &range.end_value)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn filters_say_what_columns_say() {
    let table = [
        (columns(&[], &[], 0), "newest 1"),
        (columns(&["a", "b.c"], &[], 3), r"family (a|b\.c) > newest 3"),
        (
            columns(&["a"], &["x", "y-z|"], 1),
            r"family (a) > qualifier (x|y\-z\|) > newest 1",
        ),
        (
            columns(&["a"], &["x"], 1),
            r#"column ("a", Some(StartQualifierClosed(b"x")), Some(EndQualifierClosed(b"x"))) > newest 1"#,
        ),
        (
            columns(&["a"], &[""], 1),
            r#"column ("a", Some(StartQualifierClosed(b"")), Some(EndQualifierOpen(b"\0"))) > newest 1"#,
        ),
    ];
    for (columns, expected) in table {
        assert_eq!(text(&columns_filter(&columns)), expected);
    }
}

#[test]
fn bytes_of_regular_expressions_are_quoted() {
    assert_eq!(
        &alternatives([&b"a\0.\xff\n"[..]].into_iter())[..],
        b"(a\\x00\\.\xff\\\n)"
    );
}

#[test]
fn a_scan_goes_on_behind_the_last_row() {
    let scan = Scan {
        start: "b".into(),
        end: "y".into(),
        ..Scan::default()
    };
    let range = |after: &'static str, scan: &Scan| {
        let request = read_range(&place(), scan, &Bytes::from_static(after.as_bytes()), 7);
        assert_eq!(request.rows_limit, 7);
        let range = request.rows.unwrap().row_ranges.swap_remove(0);
        format!("{:?} {:?}", range.start_key.unwrap(), range.end_key)
    };
    assert_eq!(range("", &scan), r#"StartKeyClosed(b"b") Some(EndKeyOpen(b"y"))"#);
    assert_eq!(range("c", &scan), r#"StartKeyOpen(b"c") Some(EndKeyOpen(b"y"))"#);
    assert_eq!(range("", &Scan::default()), r#"StartKeyClosed(b"") None"#);
}

#[test]
fn a_condition_puts_its_mutations_on_the_right_side() {
    let put = || Put {
        key: "r".into(),
        cells: vec![("f".into(), "q".into(), "new".into())],
    };
    let sides = |expected: Option<&'static str>| {
        let expected = expected.map(|value| Bytes::from_static(value.as_bytes()));
        let request = check_and_put(&place(), "f", &"q".into(), expected.as_ref(), put());
        let text = text(&request.predicate_filter.unwrap());
        let value = text.split_once("newest 1").unwrap().1.to_owned();
        (request.true_mutations.len(), request.false_mutations.len(), value)
    };
    let range = |text: &str| format!(" > value {text}");
    assert_eq!(sides(None), (0, 1, String::new()));
    assert_eq!(
        sides(Some("x")),
        (
            1,
            0,
            range(r#"(Some(StartValueClosed(b"x")), Some(EndValueClosed(b"x")))"#)
        )
    );
    assert_eq!(
        sides(Some("")),
        (
            1,
            0,
            range(r#"(Some(StartValueClosed(b"")), Some(EndValueOpen(b"\0")))"#)
        )
    );
}

#[test]
fn deletes_name_columns_a_family_or_the_row() {
    let kinds = |family, qualifiers: &[Bytes]| {
        let request = delete(&place(), "r".into(), family, qualifiers);
        let kind = |mutation: Mutation| format!("{:?}", mutation.mutation.unwrap());
        let kind = |mutation| kind(mutation).split([' ', '(']).next().unwrap().to_owned();
        request.mutations.into_iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(None, &[]), ["DeleteFromRow"]);
    assert_eq!(kinds(Some("f"), &[]), ["DeleteFromFamily"]);
    assert_eq!(
        kinds(Some("f"), &["a".into(), "b".into()]),
        ["DeleteFromColumn", "DeleteFromColumn"]
    );
}
