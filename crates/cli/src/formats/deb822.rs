//! Stanzas of `Field: value` lines separated by blank lines (deb822, a close relative of RFC 822 headers).
//!
//! A line that begins with a space or tab continues the field above it: it is appended after a line break, without that
//! first character, and otherwise unchanged (the lone `.` that stands for an empty line stays). A field's first line is
//! stripped of surrounding blanks. Lines that begin with `#` are comments. Lines of only blanks separate stanzas.
//! Values are bytes. A malformed line or a field that occurs twice makes its whole stanza bad, and reading goes on at the
//! next one.

use super::lines::Lines;
use crate::escape::escape;
use crate::records::{Column, Parsed, RECORD_BYTES_MAX, Record, RecordReader, too_long};
use bytes::Bytes;
use std::collections::HashSet;
use std::io::{self, BufRead};

/// Reads records as [`Record::Columns`].
pub struct StanzaReader<R> {
    lines: Lines<R>,
    raw: Vec<u8>,
}

impl<R: BufRead> StanzaReader<R> {
    /// Starts before the first stanza.
    pub fn new(input: R) -> Self {
        StanzaReader {
            lines: Lines::new(input),
            raw: Vec::new(),
        }
    }
}

impl<R: BufRead + Send> RecordReader for StanzaReader<R> {
    fn read(&mut self) -> io::Result<Option<Parsed>> {
        self.raw.clear();
        let mut first = None;
        while self.lines.advance()? {
            let line = self.lines.line();
            match first {
                None if is_blank(line) || line.starts_with(b"#") => continue,
                None => first = Some(self.lines.number()),
                Some(_) if is_blank(line) => break,
                Some(start) if self.raw.len() + line.len() > RECORD_BYTES_MAX => {
                    return Err(too_long(start));
                }
                Some(_) => self.raw.push(b'\n'),
            }
            self.raw.extend_from_slice(line);
        }
        Ok(first.map(|line| Parsed {
            line,
            record: parse_stanza(&self.raw).map(Record::Columns),
        }))
    }

    fn raw(&self) -> &[u8] {
        &self.raw
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t'))
}

/// Parses the lines of one stanza.
pub fn parse_stanza(stanza: &[u8]) -> Result<Vec<Column>, String> {
    let mut fields: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for line in stanza.split(|byte| *byte == b'\n') {
        match line.first() {
            Some(b'#') => {}
            Some(b' ' | b'\t') => {
                let Some((_, value)) = fields.last_mut() else {
                    return Err("a continuation line without a field above it".to_owned());
                };
                value.push(b'\n');
                value.extend_from_slice(line.get(1..).unwrap_or_default());
            }
            _ => fields.push(parse_field(line)?),
        }
    }
    let mut names = HashSet::with_capacity(fields.len());
    for (name, _) in &fields {
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(format!("field `{}` occurs twice", escape(name)));
        }
    }
    let column = |(name, value): (&[u8], Vec<u8>)| Column {
        name: Bytes::copy_from_slice(name),
        value: value.into(),
    };
    Ok(fields.into_iter().map(column).collect())
}

fn parse_field(line: &[u8]) -> Result<(&[u8], Vec<u8>), String> {
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = match colon.and_then(|at| line.split_at_checked(at)) {
        Some((name, value)) if !name.is_empty() => (name, value.get(1..).unwrap_or_default()),
        _ => {
            let shown: String = escape(line).chars().take(40).collect();
            return Err(format!("expected `Field: value`, found `{shown}`"));
        }
    };
    if name.iter().any(u8::is_ascii_whitespace) {
        return Err(format!("blank in field name `{}`", escape(name)));
    }
    Ok((name, value.trim_ascii().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Fields = Vec<(String, String)>;

    fn read_all(input: &[u8]) -> Vec<(u64, Result<Fields, String>)> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut reader = StanzaReader::new(input);
        let mut all = Vec::new();
        while let Some(parsed) = reader.read().unwrap() {
            let columns = parsed.record.map(|record| match record {
                Record::Columns(columns) => columns
                    .iter()
                    .map(|column| (text(&column.name), text(&column.value)))
                    .collect(),
                Record::Row(_) => unreachable!("stanzas have columns"),
            });
            all.push((parsed.line, columns));
        }
        all
    }

    #[test]
    fn a_package_index() {
        let input = b"\n# comment\nPackage: 0ad\nVersion:  0.26.1-1 \nDescription: game\n Real time\n .\n  indented\n\
            Tag:\n role::program\n\n \nPackage: 7zip\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let first = vec![
            pair("Package", "0ad"),
            pair("Version", "0.26.1-1"),
            pair("Description", "game\nReal time\n.\n indented"),
            pair("Tag", "\nrole::program"),
        ];
        assert_eq!(
            read_all(input),
            [(3, Ok(first)), (13, Ok(vec![pair("Package", "7zip")]))]
        );
    }

    #[test]
    fn a_bad_stanza_does_not_spoil_the_next() {
        let all = read_all(b" x\nA: 1\n\nA: 1\na: 2\n\nnonsense\n\n: v\n\nA B: c\n\nA: 1\n");
        let whys: Vec<_> = all.iter().map(|(_, record)| record.clone().err()).collect();
        assert!(whys[0].as_ref().unwrap().contains("continuation"));
        assert!(whys[1].as_ref().unwrap().contains("`a` occurs twice"));
        assert!(whys[2].as_ref().unwrap().contains("`nonsense`"));
        assert!(whys[3].is_some() && whys[4].as_ref().unwrap().contains("blank"));
        assert_eq!((all[5].0, &whys[5]), (13, &None));
    }

    #[test]
    fn raw_is_the_stanza() {
        let mut reader = StanzaReader::new(&b"\nbad\n more\n\nA: 1"[..]);
        assert!(reader.read().unwrap().unwrap().record.is_err());
        assert_eq!(reader.raw(), b"bad\n more");
    }

    proptest! {
        /// Fields written in the usual way are read back.
        #[test]
        fn stanzas_round_trip(
            stanzas in proptest::collection::vec(
                proptest::collection::btree_map("[A-Z][a-z0-9-]{0,5}", "[!-~]{1,9}(\n[!-~][ -~]{0,9}){0,3}", 1..4),
                0..4,
            ),
        ) {
            // Names that differ only in case are the same field.
            let mut text = String::new();
            for stanza in &stanzas {
                for (name, value) in stanza {
                    text += &format!("{name}: {}\n", value.replace('\n', "\n "));
                }
                text.push('\n');
            }
            let read = read_all(text.as_bytes());
            let expected: Vec<Vec<_>> = stanzas.into_iter().map(|stanza| stanza.into_iter().collect()).collect();
            let read: Vec<_> = read.into_iter().map(|(_, record)| record.unwrap()).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn any_stanza_is_survived(stanza in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_stanza(&stanza);
        }
    }
}
