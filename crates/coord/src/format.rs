//! The encoding of the embedded coordinator's files; `docs/formats/coord-log.md` has the tables.
//!
//! ```text
//! log      = magic:8 version:4 crc:4 generation:8 record*
//! record   = magic:4 body_len:4 head_crc:4 body_crc:4 body          crcs also cover the generation
//! body     = revision:8 count:varint (kind:1 key [value [session:varint]])*
//! snapshot = magic:8 version:4 crc:4 generation:8 revision:8 count:8 (key version:varint value)*
//! ```
//!
//! Little-endian. The decoders are total: any bytes give a value or a [`FormatError`], never a panic, and allocate no
//! more than a small multiple of their input.

mod inspect;
mod reader;
mod snapshot;

pub use inspect::inspect;
pub use snapshot::{Snapshot, SnapshotEntry, decode_snapshot, encode_snapshot};

use crate::limits::{KEY_BYTES_MAX, TXN_BYTES_MAX};
use crate::session_id::SessionId;
use crate::txn::Write;
use bytes::Bytes;
use reader::Reader;
use stele_types::varint;

/// First bytes of a log.
pub const LOG_MAGIC: [u8; 8] = *b"STLCLOG\n";
/// First bytes of a snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"STLCSNP\n";
/// The only version yet.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes before the first record.
pub const LOG_HEADER_BYTES: usize = 24;
/// Bytes before a record's body.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Most writes of a record; a transaction once had as many.
pub const RECORD_WRITES_MAX: u64 = 128;
/// Longest body. A transaction has at most 1 MiB of keys and values. Besides them it has 8 bytes of revision and 2 of
/// count. Each write adds at most 1 byte of kind, 10 of session and 2 × 10 of lengths: 3,978 bytes in all. A quarter
/// MiB is to spare.
pub const BODY_BYTES_MAX: usize = TXN_BYTES_MAX + (256 << 10);

const RECORD_MAGIC: [u8; 4] = *b"TXN\xc1";
const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_BOUND_PUT: u8 = 3;

/// An error of decoding: bytes differ from those that are ever written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: expected {expected}, found {found}")]
pub struct FormatError {
    /// The offset in the file.
    pub offset: u64,
    /// The expected content.
    pub expected: String,
    /// The found content.
    pub found: String,
}

impl FormatError {
    fn new(offset: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        FormatError {
            offset: offset as u64,
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// One transaction of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Byte in the file.
    pub offset: u64,
    /// Its revision.
    pub revision: u64,
    /// Its writes.
    pub writes: Vec<Write>,
}

/// The whole records of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The transactions, of consecutive revisions.
    pub records: Vec<LogRecord>,
    /// The offset of an unacknowledged end, if there is one.
    pub torn_at: Option<u64>,
}

/// The bytes before the first record.
pub fn encode_log_header(generation: u64) -> Bytes {
    let mut out = Vec::with_capacity(LOG_HEADER_BYTES);
    out.extend_from_slice(&LOG_MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc(&[&out, &generation.to_le_bytes()]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&generation.to_le_bytes());
    assert_eq!(out.len(), LOG_HEADER_BYTES, "the header of a log has a fixed size");
    Bytes::from(out)
}

/// One transaction.
pub fn encode_record(generation: u64, revision: u64, writes: &[Write]) -> Bytes {
    let mut body = Vec::new();
    body.extend_from_slice(&revision.to_le_bytes());
    varint::put_u64(&mut body, writes.len() as u64);
    for write in writes {
        encode_write(&mut body, write);
    }
    assert!(
        body.len() <= BODY_BYTES_MAX,
        "a transaction within its limits fits a record"
    );
    let generation = generation.to_le_bytes();
    let mut out = Vec::with_capacity(RECORD_HEADER_BYTES + body.len());
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let head_crc = crc(&[&generation, &out]);
    out.extend_from_slice(&head_crc.to_le_bytes());
    out.extend_from_slice(&crc(&[&generation, &body]).to_le_bytes());
    assert_eq!(
        out.len(),
        RECORD_HEADER_BYTES,
        "the header of a record has a fixed size"
    );
    out.extend_from_slice(&body);
    Bytes::from(out)
}

fn encode_write(body: &mut Vec<u8>, write: &Write) {
    let kind = match write {
        Write::Put { .. } => KIND_PUT,
        Write::Delete { .. } => KIND_DELETE,
        Write::PutBound { .. } => KIND_BOUND_PUT,
    };
    body.push(kind);
    varint::put_bytes(body, write.key().as_bytes());
    if let Write::Put { value, .. } | Write::PutBound { value, .. } = write {
        varint::put_bytes(body, value);
    }
    if let Write::PutBound { session, .. } = write {
        varint::put_u64(body, session.0);
    }
}

/// Decodes the log of a generation, telling a torn end from damage as the format page says.
pub fn decode_log(bytes: &Bytes, generation: u64) -> Result<Log, FormatError> {
    let mut log = Log {
        records: Vec::new(),
        torn_at: None,
    };
    match decode_log_header(bytes) {
        Ok(found) if found == generation => {}
        Ok(found) => {
            return Err(FormatError::new(
                16,
                format!("generation {generation}"),
                found.to_string(),
            ));
        }
        Err(damage) => {
            if damage.error.offset == VERSION_AT || !is_unsynced_end(bytes, 0, LOG_HEADER_BYTES, generation) {
                return Err(damage.error);
            }
            log.torn_at = Some(0);
            return Ok(log);
        }
    }
    let mut at = LOG_HEADER_BYTES;
    while at < bytes.len() {
        match decode_record(bytes, at, generation) {
            Ok((record, next)) => {
                check_follows(log.records.last(), &record)?;
                log.records.push(record);
                assert!(
                    next > at && next <= bytes.len(),
                    "a decoder moves forward, and not past the end"
                );
                at = next;
            }
            Err(damage) => {
                if !damage.may_be_torn || !is_unsynced_end(bytes, at, 0, generation) {
                    return Err(damage.error);
                }
                log.torn_at = Some(at as u64);
                return Ok(log);
            }
        }
    }
    Ok(log)
}

/// An error in a record, and whether an interrupted write explains it.
struct Damage {
    error: FormatError,
    may_be_torn: bool,
}

impl Damage {
    fn torn(error: FormatError) -> Self {
        Damage {
            error,
            may_be_torn: true,
        }
    }
}

/// Offset of the version in both headers: an error there is about a future format, not damage.
const VERSION_AT: u64 = 8;

/// Checks magic, checksum and version of a log; its generation.
fn decode_log_header(bytes: &[u8]) -> Result<u64, Damage> {
    let Some((head, _)) = bytes.split_first_chunk::<LOG_HEADER_BYTES>() else {
        let expected = format!("a header of {LOG_HEADER_BYTES} bytes");
        return Err(Damage::torn(FormatError::new(
            0,
            expected,
            format!("{} bytes", bytes.len()),
        )));
    };
    let mut reader = Reader::new(head, 0);
    let header = reader.file_header(&LOG_MAGIC, |head, rest| crc(&[head, rest]));
    header.map_err(Damage::torn)?;
    reader.u64("generation").map_err(Damage::torn)
}

/// Whether everything from `at` can be one unsynced write: no longer than a record (after `extra` bytes of file header),
/// and without an intact record in it.
fn is_unsynced_end(bytes: &Bytes, at: usize, extra: usize, generation: u64) -> bool {
    let rest = bytes.len().saturating_sub(at);
    let intact_later = || {
        let later = bytes.get(at + 1..).unwrap_or_default();
        later
            .windows(RECORD_MAGIC.len())
            .enumerate()
            .filter(|(_, window)| *window == RECORD_MAGIC)
            .any(|(i, _)| decode_record(bytes, at + 1 + i, generation).is_ok())
    };
    rest <= extra + RECORD_HEADER_BYTES + BODY_BYTES_MAX && !intact_later()
}

fn check_follows(last: Option<&LogRecord>, record: &LogRecord) -> Result<(), FormatError> {
    match last.map(|last| last.revision.checked_add(1)) {
        Some(expected) if expected != Some(record.revision) => {
            let expected = expected.map_or("no further revision".to_owned(), |r| format!("revision {r}"));
            let offset = record.offset as usize + RECORD_HEADER_BYTES;
            Err(FormatError::new(offset, expected, record.revision.to_string()))
        }
        _ => Ok(()),
    }
}

/// The record at `at` and the offset after it.
fn decode_record(bytes: &Bytes, at: usize, generation: u64) -> Result<(LogRecord, usize), Damage> {
    let rest = bytes.get(at..).unwrap_or_default();
    let generation = generation.to_le_bytes();
    let (body_len, body_crc) = decode_record_header(rest, at, &generation).map_err(Damage::torn)?;
    let body_at = at + RECORD_HEADER_BYTES;
    let Some(body) = rest.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body_len) else {
        let found = format!("{} bytes", rest.len() - RECORD_HEADER_BYTES);
        let error = FormatError::new(body_at, format!("a body of {body_len} bytes"), found);
        return Err(Damage::torn(error));
    };
    let actual = crc(&[&generation, body]);
    if actual != body_crc {
        let error = FormatError::new(
            body_at,
            format!("a body with CRC-32 {body_crc:08x}"),
            format!("CRC-32 {actual:08x}"),
        );
        // The header was written whole and tells where the record ends. An unsynced record has nothing after it.
        let may_be_torn = rest.len() == RECORD_HEADER_BYTES + body_len;
        return Err(Damage { error, may_be_torn });
    }
    let next = body_at + body_len;
    let body = bytes.slice(body_at..next);
    match decode_body(&body, body_at) {
        Ok((revision, writes)) => Ok((
            LogRecord {
                offset: at as u64,
                revision,
                writes,
            },
            next,
        )),
        // The checksum was right, so it was written like this.
        Err(error) => Err(Damage {
            error,
            may_be_torn: false,
        }),
    }
}

/// Body length and body checksum.
fn decode_record_header(rest: &[u8], at: usize, generation: &[u8; 8]) -> Result<(usize, u32), FormatError> {
    let Some((head, _)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        let expected = format!("a record header of {RECORD_HEADER_BYTES} bytes");
        return Err(FormatError::new(at, expected, format!("{} bytes", rest.len())));
    };
    let mut reader = Reader::new(head, at);
    reader.magic(&RECORD_MAGIC)?;
    let body_len = reader.u32("body length")?;
    let head_crc = reader.u32("header checksum")?;
    let body_crc = reader.u32("body checksum")?;
    let (covered, _) = head.split_at(8);
    let actual = crc(&[generation, covered]);
    if actual != head_crc {
        let expected = format!("a record header with CRC-32 {head_crc:08x}");
        return Err(FormatError::new(at, expected, format!("CRC-32 {actual:08x}")));
    }
    if body_len as usize > BODY_BYTES_MAX {
        let expected = format!("a body of at most {BODY_BYTES_MAX} bytes");
        return Err(FormatError::new(at + 4, expected, body_len.to_string()));
    }
    Ok((body_len as usize, body_crc))
}

fn decode_body(body: &Bytes, at: usize) -> Result<(u64, Vec<Write>), FormatError> {
    let mut reader = Reader::new(body, at);
    let revision = reader.u64("revision")?;
    let count = reader.varint("number of writes")?;
    if !(1..=RECORD_WRITES_MAX).contains(&count) {
        let expected = format!("1 to {RECORD_WRITES_MAX} writes");
        return Err(FormatError::new(at + 8, expected, count.to_string()));
    }
    let mut writes = Vec::with_capacity(count as usize);
    for _ in 0..count {
        writes.push(decode_write(&mut reader, body)?);
    }
    reader.end()?;
    Ok((revision, writes))
}

fn decode_write(reader: &mut Reader<'_>, body: &Bytes) -> Result<Write, FormatError> {
    let kind_at = reader.offset();
    let kind = reader.u8("kind of write")?;
    let key = reader.key(KEY_BYTES_MAX)?;
    match kind {
        KIND_PUT => Ok(Write::Put {
            key,
            value: body.slice_ref(reader.bytes("value")?),
        }),
        KIND_DELETE => Ok(Write::Delete { key }),
        KIND_BOUND_PUT => {
            let value = body.slice_ref(reader.bytes("value")?);
            Ok(Write::PutBound {
                key,
                value,
                session: SessionId(reader.varint("session")?),
            })
        }
        _ => Err(FormatError::new(kind_at, "kind of write 1, 2 or 3", kind.to_string())),
    }
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests;
