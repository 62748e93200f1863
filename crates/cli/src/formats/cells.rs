//! The full-fidelity format: a row per line with every cell's family, qualifier, timestamp and value.
//!
//! ```json
//! {"row":"k","cells":[{"family":"f","qualifier":"q","timestamp":1700000000000000,"value":"v"}]}
//! ```
//!
//! `row`, `qualifier` and `value` are strings, or `{"b64": "..."}` when they are not UTF-8 or that is
//! shorter. Timestamps are microseconds.
//! Invariant: reading a written row gives the same row, regardless of its bytes. A lifetime of a single cell is not part
//! of it, because the API that exports read has none.

use super::jsonl::reason;
use super::lines::RecordLines;
use crate::escape;
use crate::records::{CellValue, Record, RowCells};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead};

/// Reads records as [`Record::Row`].
pub fn reader<R: BufRead + Send>(input: R) -> RecordLines<R> {
    RecordLines::new(input, |line| parse_row(line).map(Record::Row))
}

/// A byte string in one of its two JSON spellings.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or {\"b64\": \"...\"}")]
enum Text {
    Plain(String),
    Encoded { b64: String },
}

impl Text {
    fn bytes(self) -> Result<Bytes, String> {
        match self {
            Text::Plain(text) => Ok(text.into()),
            Text::Encoded { b64 } => escape::from_b64(&b64).map(Bytes::from),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadRow {
    row: Text,
    cells: Vec<ReadCell>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadCell {
    family: String,
    qualifier: Text,
    timestamp: i64,
    value: Text,
}

/// Parses one line.
pub fn parse_row(line: &[u8]) -> Result<RowCells, String> {
    let read: ReadRow = serde_json::from_slice(line).map_err(|error| reason(&error))?;
    let mut cells = Vec::with_capacity(read.cells.len());
    for cell in read.cells {
        if cell.timestamp < 0 {
            return Err(format!("timestamp {} is before 1970", cell.timestamp));
        }
        cells.push(CellValue {
            family: cell.family,
            qualifier: cell.qualifier.bytes()?,
            timestamp: cell.timestamp,
            value: cell.value.bytes()?,
        });
    }
    Ok(RowCells {
        key: read.row.bytes()?,
        cells,
    })
}

#[derive(Serialize)]
struct WriteRow<'a> {
    row: Value,
    cells: Vec<WriteCell<'a>>,
}

#[derive(Serialize)]
struct WriteCell<'a> {
    family: &'a str,
    qualifier: Value,
    timestamp: i64,
    value: Value,
}

/// Appends one row and a line break.
pub fn write_row(row: &RowCells, out: &mut Vec<u8>) -> io::Result<()> {
    let cells = row.cells.iter().map(|cell| WriteCell {
        family: &cell.family,
        qualifier: escape::to_json(&cell.qualifier),
        timestamp: cell.timestamp,
        value: escape::to_json(&cell.value),
    });
    let row = WriteRow {
        row: escape::to_json(&row.key),
        cells: cells.collect(),
    };
    serde_json::to_writer(&mut *out, &row)?;
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_line() {
        let row = RowCells {
            key: Bytes::from_static(b"k"),
            cells: vec![CellValue {
                family: "f".to_owned(),
                qualifier: Bytes::from_static(b"q"),
                timestamp: 1_700_000_000_000_000,
                value: Bytes::from_static(b"\xff"),
            }],
        };
        let mut line = Vec::new();
        write_row(&row, &mut line).unwrap();
        let expected = r#"{"row":"k","cells":[{"family":"f","qualifier":"q","timestamp":1700000000000000,"value":{"b64":"/w=="}}]}"#;
        assert_eq!(String::from_utf8(line).unwrap().trim_end(), expected);
    }

    #[test]
    fn bad_rows_say_why() {
        let why = |line: &str| parse_row(line.as_bytes()).unwrap_err();
        assert!(why(r#"{"row":"k"}"#).contains("cells"));
        assert!(why(r#"{"row":1,"cells":[]}"#).contains("expected a string"));
        let cell = r#"{"family":"f","qualifier":"q","timestamp":-1,"value":"v"}"#;
        assert!(why(&format!(r#"{{"row":"k","cells":[{cell}]}}"#)).contains("before 1970"));
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn rows_round_trip(
            key in bytes(),
            cells in proptest::collection::vec(("[a-z]{1,3}", bytes(), 0..i64::MAX, bytes()), 0..5),
        ) {
            let cells = cells.into_iter().map(|(family, qualifier, timestamp, value)| {
                CellValue { family, qualifier, timestamp, value }
            });
            let row = RowCells { key, cells: cells.collect() };
            let mut line = Vec::new();
            write_row(&row, &mut line).unwrap();
            prop_assert_eq!(parse_row(&line), Ok(row));
        }

        #[test]
        fn any_line_is_survived(line in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_row(&line);
        }
    }
}
