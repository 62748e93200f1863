//! The input side of an import: file, reader and parser thread.
//!
//! The parser thread hands batches over a short bounded channel, so it waits when the server does.

use super::bad::BadRecord;
use super::batch::{Batch, BatchBuilder};
use crate::checkpoint::InputIdentity;
use crate::compression::{Compression, decompress};
use crate::escape::escape;
use crate::formats::InputFormat;
use crate::formats::cells;
use crate::formats::delimited::{DelimitedReader, Dialect};
use crate::formats::jsonl;
use crate::mapping::Mapping;
use crate::records::RecordReader;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use tokio::sync::mpsc::Sender;

/// How the input is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    /// The format, resolved.
    pub format: InputFormat,
    /// Compression; `Auto` detects it from the first bytes.
    pub compression: Compression,
    /// Whether quotes are ordinary characters (CSV and TSV).
    pub no_quotes: bool,
    /// Whether fields are in the `base64:` spelling (CSV and TSV).
    pub base64: bool,
}

/// Bytes read from the input as it is, compressed or not.
pub type BytesRead = Arc<AtomicU64>;

/// The properties by which a file is recognised as the one of an earlier run.
pub fn identify(path: &Path) -> Result<InputIdentity> {
    let identify = || -> io::Result<InputIdentity> {
        let metadata = std::fs::metadata(path)?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(InputIdentity {
            path: escape(path.canonicalize()?.as_os_str().as_encoded_bytes()),
            bytes: metadata.len(),
            modified_micros: i64::try_from(modified.as_micros()).unwrap_or(0),
        })
    };
    identify().with_context(|| format!("cannot read {}", path.display()))
}

/// Opens the input; standard input without a path.
pub fn open(path: Option<&Path>, options: SourceOptions) -> Result<(Box<dyn RecordReader>, BytesRead)> {
    let bytes = BytesRead::default();
    let input: Box<dyn Read + Send> = match path {
        None => Box::new(Counting {
            input: io::stdin(),
            bytes: bytes.clone(),
        }),
        Some(path) => Box::new(Counting {
            input: File::open(path)?,
            bytes: bytes.clone(),
        }),
    };
    let input = decompress(input, options.compression)?;
    let dialect = |delimiter| Dialect {
        delimiter,
        quotes: !options.no_quotes,
        base64: options.base64,
    };
    let reader: Box<dyn RecordReader> = match options.format {
        InputFormat::Auto => bail!("the name of the input does not tell its format; give --format"),
        InputFormat::Csv => Box::new(DelimitedReader::new(input, dialect(b','))?),
        InputFormat::Tsv => Box::new(DelimitedReader::new(input, dialect(b'\t'))?),
        InputFormat::Jsonl => Box::new(jsonl::reader(input)),
        InputFormat::Cells => Box::new(cells::reader(input)),
    };
    Ok((reader, bytes))
}

struct Counting<R> {
    input: R,
    bytes: BytesRead,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Parses the whole input into batches, after skipping the records of an earlier run. Returns early, without error,
/// when the receiver is closed.
pub fn produce(
    mut reader: Box<dyn RecordReader>,
    mapping: &Mapping,
    skip: u64,
    rows_max: usize,
    batches: &Sender<Batch>,
) -> io::Result<()> {
    for skipped in 0..skip {
        if reader.read()?.is_none() {
            let message = format!("it has {skipped} records, but the checkpoint counts {skip}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    let mut builder = BatchBuilder::new(skip, rows_max);
    let mut emit = |batch| batches.blocking_send(batch).is_ok();
    while let Some(parsed) = reader.read()? {
        let line = parsed.line;
        let goes_on = match parsed.record.and_then(|record| mapping.map(record)) {
            Ok(row) => builder.add_row(line, row, &mut emit),
            Err(reason) => {
                let raw = reader.raw().to_vec();
                builder.add_bad(BadRecord { line, reason, raw }).is_none_or(&mut emit)
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
    if let Some(batch) = builder.finish() {
        emit(batch);
    }
    Ok(())
}
