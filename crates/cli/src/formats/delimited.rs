//! CSV and TSV with a header line.
//!
//! Quoting follows RFC 4180; the delimiter is the only difference between the two.
//!
//! Reading: fields are bytes, so invalid UTF-8 passes through. A record whose number of fields differs from the
//! header's is bad, and so is one with a quote that is never closed, which has the rest of the input. Blank lines are
//! skipped. With [`Dialect::quotes`] off, quotes are ordinary characters.
//!
//! Writing: quotes where needed, `\n` line ends. Bytes that are not UTF-8 take the `base64:` spelling, see
//! [`crate::escape`].

use crate::escape;
use crate::records::{Column, Parsed, RECORD_BYTES_MAX, Record, RecordReader, RowCells, too_long};
use bytes::Bytes;
use std::io::{self, Read, Write};

/// How fields are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// `,` or tab.
    pub delimiter: u8,
    /// Whether `"` quotes a field.
    pub quotes: bool,
    /// Whether fields are in the `base64:` spelling.
    pub base64: bool,
}

/// Reads records as [`Record::Columns`].
pub struct DelimitedReader<R: Read> {
    csv: csv::Reader<Tee<R>>,
    header: Vec<Bytes>,
    dialect: Dialect,
    /// Reused, so that a record costs no allocation until it is taken apart.
    record: csv::ByteRecord,
    raw: std::ops::Range<u64>,
}

impl<R: Read> DelimitedReader<R> {
    /// Reads the header. A missing header, an empty name or one that occurs twice is an error of the input.
    pub fn new(input: R, dialect: Dialect) -> io::Result<Self> {
        let mut csv = csv::ReaderBuilder::new()
            .delimiter(dialect.delimiter)
            .quoting(dialect.quotes)
            .has_headers(false)
            .flexible(true)
            .from_reader(Tee {
                input,
                buffer: Vec::new(),
                start: 0,
                at_end: false,
                record_line: 1,
            });
        let mut record = csv::ByteRecord::new();
        csv.read_byte_record(&mut record).map_err(io_error)?;
        let header: Vec<Bytes> = record.iter().map(Bytes::copy_from_slice).collect();
        if header.is_empty() {
            return Err(invalid("the input is empty; a header line with column names is needed"));
        }
        let tee = csv.get_ref();
        let raw = tee.slice(&(0..csv.position().byte()));
        let raw = raw.strip_prefix(BYTE_ORDER_MARK).unwrap_or(raw);
        if tee.at_end && dialect.quotes && ends_quoted(raw, dialect.delimiter) {
            return Err(invalid("the header opens a quote that is never closed"));
        }
        for (at, name) in header.iter().enumerate() {
            if header.iter().take(at).any(|earlier| earlier == name) {
                let name = escape::escape(name);
                return Err(invalid(&format!("the header names column `{name}` twice")));
            }
        }
        Ok(DelimitedReader {
            csv,
            header,
            dialect,
            record,
            raw: 0..0,
        })
    }

    fn columns(&self) -> Result<Record, String> {
        // Only the end of the input ends a record within a quote. Earlier records need not be looked through.
        let tee = self.csv.get_ref();
        if tee.at_end && self.dialect.quotes && ends_quoted(tee.slice(&self.raw), self.dialect.delimiter) {
            return Err("it opens a quote that is never closed".to_owned());
        }
        if self.record.len() != self.header.len() {
            let (found, expected) = (self.record.len(), self.header.len());
            return Err(format!("{found} fields, but the header has {expected}"));
        }
        // One copy for the record; its fields are slices of it.
        let fields = Bytes::copy_from_slice(self.record.as_slice());
        let mut columns = Vec::with_capacity(self.header.len());
        for (at, name) in self.header.iter().enumerate() {
            let mut value = self
                .record
                .range(at)
                .map(|range| fields.slice(range))
                .unwrap_or_default();
            if self.dialect.base64 && value.starts_with(escape::BASE64_PREFIX) {
                value = escape::from_field(&value)?.into_owned().into();
            }
            columns.push(Column {
                name: name.clone(),
                value,
            });
        }
        Ok(Record::Columns(columns))
    }
}

impl<R: Read + Send> RecordReader for DelimitedReader<R> {
    fn read(&mut self) -> io::Result<Option<Parsed>> {
        let position = self.csv.position().clone();
        let tee = self.csv.get_mut();
        tee.discard_before(position.byte());
        tee.record_line = position.line();
        if !self.csv.read_byte_record(&mut self.record).map_err(io_error)? {
            return Ok(None);
        }
        // The parser skips blank lines as part of the record that follows them; its own text begins after them.
        let raw = self.csv.get_ref().slice(&(position.byte()..self.csv.position().byte()));
        let blank = raw.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        let lines = raw.iter().take(blank).filter(|byte| **byte == b'\n').count();
        self.raw = position.byte() + blank as u64..self.csv.position().byte();
        Ok(Some(Parsed {
            line: position.line() + lines as u64,
            record: self.columns(),
        }))
    }

    fn raw(&self) -> &[u8] {
        let raw = self.csv.get_ref().slice(&self.raw);
        let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
        raw.strip_suffix(b"\r").unwrap_or(raw)
    }

    fn header(&self) -> Option<&[Bytes]> {
        Some(&self.header)
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The parser drops a byte order mark only when its first read brings the whole mark, and takes a first read of nothing
/// else for the end of the input. Pipes give as little as they like.
const FIRST_READ_BYTES_MIN: usize = 4;

/// Retains the parser's input since the last record began, so that a bad record can be shown unchanged.
struct Tee<R> {
    input: R,
    buffer: Vec<u8>,
    /// Offset in the input of the first byte of `buffer`.
    start: u64,
    /// Whether the input has no more.
    at_end: bool,
    /// Line at which the record being read begins, for the error about its length.
    record_line: u64,
}

impl<R> Tee<R> {
    fn discard_before(&mut self, offset: u64) {
        let unneeded = (offset - self.start.min(offset)).min(self.buffer.len() as u64) as usize;
        // Moving the rest costs its length, so wait until at least as much is dropped as is moved.
        if unneeded * 2 >= self.buffer.len() {
            self.buffer.drain(..unneeded);
            self.start += unneeded as u64;
        }
    }

    fn slice(&self, range: &std::ops::Range<u64>) -> &[u8] {
        let at = |offset: u64| offset.saturating_sub(self.start) as usize;
        self.buffer.get(at(range.start)..at(range.end)).unwrap_or_default()
    }
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.buffer.len() > RECORD_BYTES_MAX {
            return Err(too_long(self.record_line));
        }
        let first = self.start == 0 && self.buffer.is_empty();
        let wanted = if first { FIRST_READ_BYTES_MIN } else { 1 };
        let mut count = 0;
        while count < wanted.min(into.len()) {
            let rest = into.get_mut(count..).unwrap_or_default();
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at_end = count == 0 && !into.is_empty();
        self.buffer.extend_from_slice(into.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// Whether a record ends within a quote. The parser says nothing of it: it takes the rest of the input as the value.
fn ends_quoted(raw: &[u8], delimiter: u8) -> bool {
    #[derive(PartialEq)]
    enum At {
        Start,
        Plain,
        Quoted,
        /// Behind a quote within a quoted field, which ends it, or is the first of two that stand for one.
        Quote,
    }
    let mut at = At::Start;
    for byte in raw {
        at = match (at, byte) {
            (At::Quoted, b'"') => At::Quote,
            (At::Quoted, _) | (At::Start | At::Quote, b'"') => At::Quoted,
            (_, b'\r' | b'\n') => At::Start,
            (_, byte) if *byte == delimiter => At::Start,
            _ => At::Plain,
        };
    }
    at == At::Quoted
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn io_error(error: csv::Error) -> io::Error {
    // Reading byte records flexibly can only fail in the reader below.
    io::Error::from(error)
}

/// Columns of a delimited export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One line per cell: row, family, qualifier, timestamp, value.
    Long,
    /// One line per row: the key, then the newest value of each of these (family, qualifier).
    Wide(Vec<(String, Bytes)>),
}

/// Writes rows as delimited text.
#[derive(Clone, Debug)]
pub struct DelimitedWriter {
    delimiter: u8,
    layout: Layout,
}

impl DelimitedWriter {
    /// A writer; nothing is written yet.
    pub fn new(delimiter: u8, layout: Layout) -> Self {
        DelimitedWriter { delimiter, layout }
    }

    fn csv<W: Write>(&self, out: W) -> csv::Writer<W> {
        csv::WriterBuilder::new().delimiter(self.delimiter).from_writer(out)
    }

    /// Writes the header line.
    pub fn header(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut csv = self.csv(out);
        match &self.layout {
            Layout::Long => {
                csv.write_record(["row", "family", "qualifier", "timestamp", "value"])?;
            }
            Layout::Wide(columns) => {
                csv.write_field("row")?;
                for (family, qualifier) in columns {
                    let name = [family.as_bytes(), b":", qualifier.as_ref()].concat();
                    csv.write_field(escape::to_field(&name))?;
                }
                csv.write_record(None::<&[u8]>)?;
            }
        }
        csv.flush()
    }

    /// Appends one row. Cells come newest first within a column, as the server returns them.
    pub fn row(&self, row: &RowCells, out: &mut Vec<u8>) -> io::Result<()> {
        let mut csv = self.csv(out);
        match &self.layout {
            Layout::Long => {
                for cell in &row.cells {
                    csv.write_field(escape::to_field(&row.key))?;
                    csv.write_field(&cell.family)?;
                    csv.write_field(escape::to_field(&cell.qualifier))?;
                    csv.write_field(cell.timestamp.to_string())?;
                    csv.write_field(escape::to_field(&cell.value))?;
                    csv.write_record(None::<&[u8]>)?;
                }
            }
            Layout::Wide(columns) => {
                csv.write_field(escape::to_field(&row.key))?;
                for (family, qualifier) in columns {
                    let newest = row
                        .cells
                        .iter()
                        .find(|cell| cell.family == *family && cell.qualifier == *qualifier);
                    csv.write_field(newest.map_or(Default::default(), |cell| escape::to_field(&cell.value)))?;
                }
                csv.write_record(None::<&[u8]>)?;
            }
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests;
