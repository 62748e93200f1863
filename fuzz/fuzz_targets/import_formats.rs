//! Formats that `import` reads: any bytes give records or reasons.
//!
//! The result is independent of how the input arrives.
//!
//! Rows written in the full-fidelity format read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{self, BufReader, Read};
use stele_cli::escape;
use stele_cli::formats::cells::{self, parse_row, write_row};
use stele_cli::formats::delimited::{DelimitedReader, Dialect};
use stele_cli::formats::jsonl::{self, write_flat};
use stele_cli::mapping::{MapRule, Mapping, MappingOptions};
use stele_cli::records::{Parsed, RecordReader};
use stele_cli::timestamp::{self, Unit};

fuzz_target!(|bytes: &[u8]| {
    let Some((format, input)) = bytes.split_first() else {
        return;
    };
    pieces(input);
    let (whole, dribbled) = (records(*format, input, usize::MAX), records(*format, input, 3));
    assert_eq!(whole, dribbled, "records depend on how the input arrives");
    let mapping = Mapping::new(MappingOptions {
        key: vec!["id".to_owned()],
        default_family: Some("f".to_owned()),
        timestamp_column: (format & 0x80 != 0).then(|| ("ts".to_owned(), Unit::Rfc3339)),
        ..MappingOptions::default()
    })
    .expect("these options go together");
    for parsed in whole.unwrap_or_default() {
        let Ok(row) = parsed.0.record.and_then(|record| mapping.map(record)) else {
            continue;
        };
        let mut line = Vec::new();
        write_row(&row, &mut line).expect("memory takes everything");
        assert_eq!(parse_row(&line), Ok(row.clone()));
        write_flat(&row, &mut line).expect("memory takes everything");
    }
});

/// Returns at most this number of bytes at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.1);
        self.0.read(&mut into[..most])
    }
}

/// All records with their raw text; `None` when the input itself is refused.
fn records(format: u8, input: &[u8], most: usize) -> Option<Vec<(Parsed, Vec<u8>)>> {
    let input = BufReader::with_capacity(most.clamp(1, 8 << 10), Dribble(input, most));
    let dialect = Dialect {
        delimiter: if format & 8 == 0 { b',' } else { b'\t' },
        quotes: format & 16 == 0,
        base64: format & 32 == 0,
    };
    let mut reader: Box<dyn RecordReader + '_> = match format % 4 {
        0 | 1 => Box::new(DelimitedReader::new(input, dialect).ok()?),
        2 => Box::new(jsonl::reader(input)),
        _ => Box::new(cells::reader(input)),
    };
    let mut records = Vec::new();
    while let Some(parsed) = reader.read().ok()? {
        let raw = reader.raw().to_vec();
        records.push((parsed, raw));
    }
    Some(records)
}

fn pieces(input: &[u8]) {
    for unit in [Unit::Micros, Unit::Millis, Unit::Seconds, Unit::Rfc3339] {
        if let Ok(micros) = timestamp::parse(input, unit) {
            assert!(micros >= 0);
            let _ = timestamp::format(micros);
        }
    }
    assert_eq!(escape::unescape(&escape::escape(input)).as_deref(), Ok(input));
    let field = escape::to_field(input);
    assert_eq!(escape::from_field(&field).as_deref(), Ok(input));
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = escape::unescape(text);
        let _ = text.parse::<MapRule>();
    }
    let _ = escape::from_field(input);
}
