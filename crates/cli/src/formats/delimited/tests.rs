//! Tests of CSV and TSV: reading, writing and round trips.

use super::*;
use crate::records::CellValue;
use proptest::prelude::*;

const CSV: Dialect = Dialect {
    delimiter: b',',
    quotes: true,
    base64: false,
};

/// Line, fields and text of a record.
type Read = (u64, Result<Vec<Vec<u8>>, String>, Vec<u8>);

fn read_all(input: &[u8], dialect: Dialect) -> Vec<Read> {
    let mut reader = DelimitedReader::new(input, dialect).unwrap();
    let mut all = Vec::new();
    while let Some(parsed) = reader.read().unwrap() {
        let values = parsed.record.map(|record| match record {
            Record::Columns(columns) => columns.into_iter().map(|column| column.value.to_vec()).collect(),
            Record::Row(_) => unreachable!("delimited text has columns"),
        });
        all.push((parsed.line, values, reader.raw().to_vec()));
    }
    all
}

#[test]
fn bad_records_keep_their_place_and_text() {
    let all = read_all(b"a,b\r\n1,2\r\n\n3\n\"x\ny\",4\nlast,\xff,", CSV);
    let lines: Vec<u64> = all.iter().map(|(line, ..)| *line).collect();
    assert_eq!(lines, [2, 4, 5, 7]);
    assert_eq!(all[0].1, Ok(vec![b"1".to_vec(), b"2".to_vec()]));
    assert_eq!(all[1].1, Err("1 fields, but the header has 2".to_owned()));
    assert_eq!(all[1].2, b"3");
    assert_eq!(all[2].1, Ok(vec![b"x\ny".to_vec(), b"4".to_vec()]));
    assert_eq!(all[2].2, b"\"x\ny\",4");
    assert_eq!(all[3].2, b"last,\xff,");
}

#[test]
fn a_quote_that_is_never_closed_makes_a_bad_record() {
    let all = read_all(b"id,note\n0,x\n1,\"hello\n2,b\n3,c\n", CSV);
    assert_eq!(all.len(), 2);
    assert!(all[0].1.is_ok());
    assert_eq!(all[1].0, 3);
    assert_eq!(all[1].1, Err("it opens a quote that is never closed".to_owned()));
    assert_eq!(all[1].2, b"1,\"hello\n2,b\n3,c");
    for (record, is_closed) in [
        (&b"1,\"a\""[..], true),
        (b"1,\"a\"\"\"", true),
        (b"1,a\"", true),
        (b"\"1\"\"\",\"\"", true),
        (b"\"a\"b\",2\r\n", true),
        (b"1,\"a\"\"", false),
        (b"1,\"", false),
        (b"\"1\",\"2\n", false),
    ] {
        let input = [b"a,b\n", record].concat();
        assert_eq!(read_all(&input, CSV)[0].1.is_ok(), is_closed, "{record:?}");
    }
    let ordinary = Dialect { quotes: false, ..CSV };
    assert!(read_all(b"a,b\n1,\"x\n", ordinary)[0].1.is_ok());
}

/// Returns a given number of bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl io::Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.1);
        self.0.read(&mut into[..most])
    }
}

#[test]
fn a_byte_order_mark_may_arrive_in_pieces() {
    for bytes in 1..8 {
        let mut reader = DelimitedReader::new(Pieces(b"\xef\xbb\xbfa,b\n1,2\n", bytes), CSV).unwrap();
        assert_eq!(reader.header().unwrap(), [&b"a"[..], b"b"]);
        assert_eq!(reader.read().unwrap().unwrap().line, 2);
        assert_eq!(reader.raw(), b"1,2");
    }
    assert!(DelimitedReader::new(Pieces(b"\xef\xbb\xbf", 3), CSV).is_err());
}

#[test]
fn bytes_are_data() {
    assert_eq!(read_all(b"a\n\xfe\xff\n", CSV)[0].1, Ok(vec![b"\xfe\xff".to_vec()]));
}

#[test]
fn base64_only_when_asked() {
    let input = b"a\nbase64:/w==\n";
    assert_eq!(read_all(input, CSV)[0].1, Ok(vec![b"base64:/w==".to_vec()]));
    let decoding = Dialect { base64: true, ..CSV };
    assert_eq!(read_all(input, decoding)[0].1, Ok(vec![b"\xff".to_vec()]));
    assert!(read_all(b"a\nbase64:!\n", decoding)[0].1.is_err());
}

#[test]
fn quotes_can_be_ordinary() {
    let dialect = Dialect {
        delimiter: b'\t',
        quotes: false,
        base64: false,
    };
    let all = read_all(b"a\tb\n\"x\t5\"\n", dialect);
    assert_eq!(all[0].1, Ok(vec![b"\"x".to_vec(), b"5\"".to_vec()]));
}

#[test]
fn unusable_headers_are_refused() {
    let error = |input: &'static [u8]| DelimitedReader::new(input, CSV).err().unwrap().to_string();
    assert!(error(b"").contains("empty"));
    assert!(error(b"a,b,a\n").contains("`a` twice"));
    assert!(error(b"\xef\xbb\xbf\n\"a,b\n1,2\n").contains("never closed"));
}

#[test]
fn raw_text_survives_many_buffers() {
    // Longer than the parser's own buffer, so that a record spans refills and the tee discards in between.
    let mut input = b"a,b\n".to_vec();
    for at in 0..20_000 {
        input.extend_from_slice(format!("{at},{at},bad\n").as_bytes());
    }
    for (at, (line, record, raw)) in read_all(&input, CSV).into_iter().enumerate() {
        assert_eq!((line, raw), (at as u64 + 2, format!("{at},{at},bad").into_bytes()));
        assert!(record.is_err());
    }
}

fn row(key: &[u8], cells: &[(&str, &[u8], i64, &[u8])]) -> RowCells {
    let cells = cells.iter().map(|(family, qualifier, timestamp, value)| CellValue {
        family: (*family).to_owned(),
        qualifier: Bytes::copy_from_slice(qualifier),
        timestamp: *timestamp,
        value: Bytes::copy_from_slice(value),
    });
    RowCells {
        key: Bytes::copy_from_slice(key),
        cells: cells.collect(),
    }
}

#[test]
fn both_layouts() {
    let row = row(
        b"r,1",
        &[
            ("f", b"a", 2000, b"new"),
            ("f", b"a", 1000, b"old"),
            ("g", b"b", 1000, b"\xff"),
        ],
    );
    let mut out = Vec::new();
    let long = DelimitedWriter::new(b',', Layout::Long);
    long.header(&mut out).unwrap();
    long.row(&row, &mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "row,family,qualifier,timestamp,value\n\"r,1\",f,a,2000,new\n\"r,1\",f,a,1000,old\n\
         \"r,1\",g,b,1000,base64:/w==\n"
    );
    let columns = vec![("g".to_owned(), b"b"[..].into()), ("f".to_owned(), b"a"[..].into())];
    let wide = DelimitedWriter::new(b'\t', Layout::Wide(columns));
    let mut out = Vec::new();
    wide.header(&mut out).unwrap();
    wide.row(&row, &mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "row\tg:b\tf:a\nr,1\tbase64:/w==\tnew\n"
    );
}

proptest! {
    /// An import reads every wide export: any bytes in any field.
    #[test]
    fn written_rows_read_back(
        rows in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..9), proptest::collection::vec(any::<u8>(), 0..9)),
            0..9,
        ),
        tab in any::<bool>(),
    ) {
        let delimiter = if tab { b'\t' } else { b',' };
        let writer = DelimitedWriter::new(delimiter, Layout::Wide(vec![("f".to_owned(), b"q"[..].into())]));
        let mut out = Vec::new();
        writer.header(&mut out).unwrap();
        for (key, value) in &rows {
            writer.row(&row(key, &[("f", b"q", 0, value)]), &mut out).unwrap();
        }
        let read = read_all(&out, Dialect { delimiter, quotes: true, base64: true });
        let expected: Vec<_> = rows.into_iter().map(|(key, value)| vec![key, value]).collect();
        let read: Vec<_> = read.into_iter().map(|(_, record, _)| record.unwrap()).collect();
        prop_assert_eq!(read, expected);
    }

    /// The reader takes any bytes at all without panicking.
    #[test]
    fn any_input_is_survived(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(mut reader) = DelimitedReader::new(&input[..], CSV) {
            while let Ok(Some(_)) = reader.read() {
                let _ = reader.raw();
            }
        }
    }
}
