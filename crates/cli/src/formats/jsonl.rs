//! JSON Lines: one object per line, its members the columns.
//!
//! Reading: strings are taken as their text, `null` as an absent member, and an object of exactly the form `{"b64":
//! "..."}` as bytes. Every other value is its JSON text exactly as written: `1.10` stays `1.10` and a nested document
//! keeps its spelling. A member that occurs twice makes the record bad. Blank lines are skipped.
//!
//! Writing (`flat`): `{"row": key, "family:qualifier": newest value, ...}`.

use super::lines::RecordLines;
use crate::escape;
use crate::records::{Column, Record, RowCells};
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io::{self, BufRead};

/// Reads records as [`Record::Columns`].
pub fn reader<R: BufRead + Send>(input: R) -> RecordLines<R> {
    RecordLines::new(input, |line| parse_object(line).map(Record::Columns))
}

/// Parses one line into columns.
pub fn parse_object(line: &[u8]) -> Result<Vec<Column>, String> {
    let Members(members) = serde_json::from_slice(line).map_err(|error| reason(&error))?;
    let mut names = HashSet::with_capacity(members.len());
    let mut columns = Vec::with_capacity(members.len());
    for (name, raw) in &members {
        if !names.insert(name) {
            return Err(format!("member `{}` occurs twice", escape::escape(name.as_bytes())));
        }
        if let Some(value) = parse_value(raw.get())? {
            columns.push(Column {
                name: Bytes::copy_from_slice(name.as_bytes()),
                value,
            });
        }
    }
    Ok(columns)
}

fn parse_value(raw: &str) -> Result<Option<Bytes>, String> {
    match raw.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => {
            let text: String = serde_json::from_str(raw).map_err(|error| reason(&error))?;
            Ok(Some(text.into()))
        }
        Some(b'{') => match serde_json::from_str::<EncodedBytes>(raw) {
            Ok(encoded) => escape::from_b64(&encoded.b64).map(|bytes| Some(bytes.into())),
            Err(_) => Ok(Some(Bytes::copy_from_slice(raw.as_bytes()))),
        },
        _ => Ok(Some(Bytes::copy_from_slice(raw.as_bytes()))),
    }
}

/// The JSON spelling of bytes that are not UTF-8.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct EncodedBytes {
    b64: String,
}

/// The error of the parser without its "line 1", which would be taken for the line of the file.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text
        .rfind(" at line ")
        .map_or(text.as_str(), |at| text.get(..at).unwrap_or(&text));
    match error.column() {
        0 => format!("invalid JSON: {what}"),
        column => format!("invalid JSON: {what} at column {column}"),
    }
}

/// The members of an object in their order, values unparsed.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value::<Box<RawValue>>().map_err(A::Error::custom)?;
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

/// Appends the flat form of one row.
pub fn write_flat(row: &RowCells, out: &mut Vec<u8>) -> io::Result<()> {
    let mut object = serde_json::Map::new();
    object.insert("row".to_owned(), escape::to_json(&row.key));
    for cell in &row.cells {
        // A member name must be text; a qualifier that is not takes the escaped spelling.
        let qualifier = match std::str::from_utf8(&cell.qualifier) {
            Ok(text) => text.to_owned(),
            Err(_) => escape::escape(&cell.qualifier),
        };
        // Cells come newest first, so the first one of a column is written.
        object
            .entry(format!("{}:{qualifier}", cell.family))
            .or_insert_with(|| escape::to_json(&cell.value));
    }
    serde_json::to_writer(&mut *out, &object)?;
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RecordReader;
    use proptest::prelude::*;
    use serde_json::json;

    fn columns(line: &str) -> Result<Vec<(String, String)>, String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let columns = parse_object(line.as_bytes())?;
        Ok(columns
            .iter()
            .map(|column| (text(&column.name), text(&column.value)))
            .collect())
    }

    #[test]
    fn values_keep_their_spelling() {
        let line = r#"{"s":"a\né","n":1.10,"big":123456789012345678901234567890,"t":true,
                       "z":null,"o":{"x": [1, 2]},"e":""}"#;
        let expected = [
            ("s", "a\né"),
            ("n", "1.10"),
            ("big", "123456789012345678901234567890"),
            ("t", "true"),
            ("o", r#"{"x": [1, 2]}"#),
            ("e", ""),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(columns(line), Ok(expected.to_vec()));
    }

    #[test]
    fn bytes_only_in_the_exact_form() {
        let read = |line: &str| parse_object(line.as_bytes()).map(|mut all| all.remove(0).value);
        assert_eq!(read(r#"{"a":{"b64":"/w=="}}"#), Ok(Bytes::from_static(b"\xff")));
        assert_eq!(read(r#"{"a":{"b64":1}}"#), Ok(Bytes::from_static(br#"{"b64":1}"#)));
        assert!(read(r#"{"a":{"b64":"!"}}"#).is_err());
        let other = r#"{"b64":"/w==","c":1}"#;
        assert_eq!(read(&format!(r#"{{"a":{other}}}"#)), Ok(Bytes::from(other.to_owned())));
    }

    #[test]
    fn bad_lines_say_why() {
        let why = |line: &str| columns(line).unwrap_err();
        assert!(why("[1]").contains("expected an object"), "{}", why("[1]"));
        assert!(
            why(r#"{"a":1"#).starts_with("invalid JSON: EOF"),
            "{}",
            why(r#"{"a":1"#)
        );
        assert!(!why(r#"{"a" 1}"#).contains("line"), "{}", why(r#"{"a" 1}"#));
        assert_eq!(why(r#"{"a":1,"a":2}"#), "member `a` occurs twice");
        assert!(parse_object(b"{\"a\":\"\xff\"}").is_err());
        // Depth costs nothing, because nested values are not taken apart.
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(columns(&format!(r#"{{"a":{nested}}}"#)).is_ok_and(|all| all[0].1 == nested));
    }

    #[test]
    fn reader_skips_blank_lines() {
        let mut reader = reader(&b"\n{\"a\":1}\n  \n{\n"[..]);
        assert_eq!(reader.read().unwrap().unwrap().line, 2);
        let bad = reader.read().unwrap().unwrap();
        assert!(bad.line == 4 && bad.record.is_err());
        assert_eq!(reader.raw(), b"{");
        assert_eq!(reader.read().unwrap(), None);
    }

    proptest! {
        #[test]
        fn strings_round_trip(members in proptest::collection::btree_map(any::<String>(), any::<String>(), 0..8)) {
            let line = serde_json::to_string(&json!(members)).unwrap();
            let read = columns(&line).unwrap();
            prop_assert_eq!(read, members.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn any_line_is_survived(line in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_object(&line);
        }
    }
}
