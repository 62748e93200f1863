#![allow(clippy::panic, reason = "a test that is written wrongly must fail")]

use super::*;

/// A chunk from `key family:qualifier timestamp value flags`; `-` leaves a part out. Flags: `c` commit, `r` reset, `+N`
/// more parts of N bytes in all.
fn chunk(text: &str) -> CellChunk {
    let parts: Vec<&str> = text.split(' ').collect();
    let [key, column, timestamp, value, flags] = parts[..] else {
        panic!("{text:?} has not five parts")
    };
    let given = |part: &'static str| (part != "-").then_some(part);
    let owned = |part: &str| -> &'static str { String::from(part).leak() };
    let (family, qualifier) = column.split_once(':').unwrap_or(("-", column));
    CellChunk {
        row_key: Bytes::from_static(given(owned(key)).unwrap_or_default().as_bytes()),
        family_name: given(owned(family)).map(str::to_owned),
        qualifier: given(owned(qualifier)).map(|q| q.as_bytes().to_vec()),
        timestamp_micros: timestamp.parse().unwrap_or(0),
        labels: Vec::new(),
        value: Bytes::from_static(given(owned(value)).unwrap_or_default().as_bytes()),
        value_size: flags.strip_prefix('+').map_or(0, |size| size.parse().unwrap()),
        row_status: match flags {
            "c" => Some(RowStatus::CommitRow(true)),
            "r" => Some(RowStatus::ResetRow(true)),
            _ => None,
        },
    }
}

/// The rows of these chunks, or the fault that was found.
fn rows(chunks: &[&str]) -> Result<Vec<String>, String> {
    let mut assembler = Assembler::default();
    let mut rows = Vec::new();
    for text in chunks {
        if assembler.push(chunk(text))? {
            let utf8 = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let row = assembler.row();
            let cells = row.cells.iter().map(|c| {
                let (family, qualifier) = (utf8(&c.family), utf8(&c.qualifier));
                format!(" {family}:{qualifier}@{}={}", c.timestamp, utf8(&c.value))
            });
            rows.push(utf8(&row.key) + &cells.collect::<String>());
        }
    }
    assembler.end().map(|()| rows)
}

#[test]
fn names_that_do_not_change_are_left_out() {
    let chunks = ["a f:q 9 1 -", "- - 8 2 -", "- -:r 7 3 -", "- g:q 6 4 c", "b f:q 5 5 c"];
    assert_eq!(
        rows(&chunks).unwrap(),
        ["a f:q@9=1 f:q@8=2 f:r@7=3 g:q@6=4", "b f:q@5=5"]
    );
}

#[test]
fn an_empty_qualifier_is_a_qualifier() {
    assert_eq!(rows(&["a f:q 9 1 -", "- f: 8 2 c"]).unwrap(), ["a f:q@9=1 f:@8=2"]);
}

#[test]
fn pieces_are_joined() {
    let chunks = [
        "a f:q 9 ab +6",
        "- - - cd +6",
        "- - - ef -",
        "- -:r 8 x c",
        "b f:q 9 gh +4",
        "- - - - +4",
        "- - - ij c",
    ];
    assert_eq!(rows(&chunks).unwrap(), ["a f:q@9=abcdef f:r@8=x", "b f:q@9=ghij"]);
}

#[test]
fn a_reset_row_begins_anew() {
    let chunks = ["a f:q 9 1 -", "- -:r 9 2 +9", "- - - - r", "a f:q 7 3 c"];
    assert_eq!(rows(&chunks).unwrap(), ["a f:q@7=3"]);
    // It may even be another row.
    assert_eq!(
        rows(&["b f:q 9 1 -", "- - - - r", "a f:q 7 3 c"]).unwrap(),
        ["a f:q@7=3"]
    );
}

#[test]
fn broken_rules_are_errors() {
    let cases: [(&str, &[&str]); 14] = [
        ("begins without", &["- f:q 9 1 c"]),
        ("begins without", &["a - 9 1 c"]),
        ("begins without", &["a f:q 9 1 c", "b -:q 9 1 c"]),
        ("comes after", &["b f:q 9 1 c", "a f:q 9 1 c"]),
        ("comes after", &["a f:q 9 1 c", "a f:q 9 1 c"]),
        ("before it is committed", &["a f:q 9 1 -", "b f:q 9 1 c"]),
        ("without a qualifier", &["a f:q 9 1 -", "- g:- 9 1 c"]),
        ("between the parts", &["a f:q 9 1 +4", "- - - 1 +4c"]),
        ("within a cell", &["a f:q 9 1 +4", "- -:r - 1 c"]),
        ("within a cell", &["a f:q 9 1 +4", "- - 8 1 c"]),
        ("ends within", &["a f:q 9 1 -"]),
        ("ends within", &["a f:q 9 1 +4"]),
        ("between rows", &["a f:q 9 1 c", "- - - - r"]),
        ("something else", &["a f:q 9 1 -", "- - - 1 r"]),
    ];
    for (expected, chunks) in cases {
        let found = match chunks.last().and_then(|last| last.strip_suffix("+4c")) {
            None => rows(chunks).unwrap_err(),
            // Both flags together, which the notation above does not need otherwise.
            Some(_) => {
                let mut assembler = Assembler::default();
                assembler.push(chunk(chunks[0])).unwrap();
                let mut last = chunk("- - - 1 +4");
                last.row_status = Some(RowStatus::CommitRow(true));
                assembler.push(last).unwrap_err()
            }
        };
        assert!(found.contains(expected), "{chunks:?}: {found}");
    }
}

#[test]
fn scanned_keys_count_as_done() {
    let mut assembler = Assembler::default();
    assert!(assembler.push(chunk("a f:q 9 1 c")).unwrap());
    assembler.scanned("c".into()).unwrap();
    assert_eq!(assembler.last_key(), "c");
    assert!(assembler.scanned("b".into()).is_err());
    assert!(assembler.push(chunk("b f:q 9 1 c")).is_err());
    assert!(!assembler.push(chunk("d f:q 9 1 -")).unwrap());
    assert!(assembler.scanned("e".into()).is_err());
    assembler.resume();
    assert_eq!(assembler.last_key(), "c");
    assert!(assembler.push(chunk("d f:q 9 1 c")).unwrap());
}
