//! Records that importers read and exporters write, independent of any file format.
//!
//! Terms: a *record* is one unit of the input: a CSV row or a JSON line. A *bad record* is one that cannot become a
//! row; it is set aside with its place and the reason, and the import goes on. A failure of the input itself (an I/O
//! error, a truncated gzip stream, a record longer than [`RECORD_BYTES_MAX`]) is not a bad record but ends the import.
//!
//! Invariant: a reader is deterministic: the n-th record of the same bytes is always the same one. Resuming depends on
//! it.

use bytes::Bytes;
use std::io;

/// The longest record a reader buffers. A row may have 256 MiB, and its JSON needs 4/3 of that for base64. A limit is
/// needed at all because one missing quote turns the rest of a CSV file into a single field.
pub const RECORD_BYTES_MAX: usize = 512 << 20;

/// One record, taken apart but not yet mapped to cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Named columns in the order of the input.
    Columns(Vec<Column>),
    /// A row with cells that carry their family, qualifier and timestamp.
    Row(RowCells),
}

/// One named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name of the CSV column or JSON member.
    pub name: Bytes,
    /// The value; JSON values that are not strings are their JSON text.
    pub value: Bytes,
}

/// A row of the full-fidelity format.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RowCells {
    /// Row key.
    pub key: Bytes,
    /// Cells in the order of the input.
    pub cells: Vec<CellValue>,
}

/// One version of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellValue {
    /// Column family.
    pub family: String,
    /// Column qualifier.
    pub qualifier: Bytes,
    /// Microseconds since 1970.
    pub timestamp: i64,
    /// The value.
    pub value: Bytes,
}

/// One step of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Line of the input at which the record begins, counted from 1.
    pub line: u64,
    /// The record, or why it is bad.
    pub record: Result<Record, String>,
}

/// A source of records.
pub trait RecordReader: Send {
    /// The next record; `None` at the end of the input.
    fn read(&mut self) -> io::Result<Option<Parsed>>;

    /// The bytes of the record last returned by [`read`](Self::read), without its final line break.
    fn raw(&self) -> &[u8];

    /// The column names, when the format states them before the first record.
    fn header(&self) -> Option<&[Bytes]> {
        None
    }
}

/// The error for a record over the limit.
pub(crate) fn too_long(line: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "the record at line {line} is longer than {} MiB; is a quote or line break missing?",
            RECORD_BYTES_MAX >> 20
        ),
    )
}
