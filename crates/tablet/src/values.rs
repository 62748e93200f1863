//! Value files: large values, kept out of the way of merges. Byte table: `docs/formats/value-file.md`; why and how:
//! `docs/adr/0011-value-files.md`.
//!
//! Terms: a *record* is one value in a value file; a *reference* is the entry of kind `Reference` that an sstable holds instead
//! of the value. A *link* is a manifest's statement that the entries of an sstable refer to a value file.
//!
//! * [`writer`] writes a file, [`file`] reads one, [`load`] fetches the values of cells that a read returns, [`collect`]
//!   decides when the live values of files that are mostly garbage, or small and many, are moved. [`copy`] copies a whole file.
//!   This module is the encoding: pure functions over bytes, which never panic and never allocate more than a stated limit.
//!
//! Invariants:
//! * A value file is complete and synced before a manifest names it, and every manifest that names an sstable names all
//!   value files its entries refer to. So a value file is needed as long as any manifest names it, and no longer.
//! * Merges pass references on unchanged. They read values only of files that are being collected or gathered.
//! * References never leave a tablet: a cell that is returned has its value.

pub mod collect;
pub mod copy;
pub mod file;
pub mod load;
pub mod writer;

use stele_sstable::DecodeError;
use stele_sstable::limits::BLOCK_BYTES_MAX;
use stele_types::FileId;
use stele_types::limits::VALUE_BYTES_MAX;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a record in addition to its payload: length, compression, checksum.
pub const RECORD_BYTES: usize = LENGTH_BYTES + TAIL_BYTES;
/// Bytes of an encoded reference.
pub const REFERENCE_BYTES: usize = 28;
/// Values from this size on go to value files, unless configured otherwise. Compactions that carry a value copy it about
/// four times in its life. A value apart costs one more read of the device, which 32 KiB repay when they are read once
/// for each time they are merged.
pub const SEPARATE_BYTES_MIN: usize = 32 << 10;

const MAGIC: [u8; 8] = *b"STELEVAL";
const VERSION: u32 = 1;
const LENGTH_BYTES: usize = 4;
/// Compression and checksum.
const TAIL_BYTES: usize = 5;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef {
    /// In which file.
    pub file: FileId,
    /// First byte of its record.
    pub offset: u64,
    /// Bytes of the record's payload.
    pub payload_len: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// Checksum of the record.
    pub crc: u32,
}

impl ValueRef {
    /// As an entry's value.
    pub fn encode(self) -> [u8; REFERENCE_BYTES] {
        debug_assert!(
            self.payload_len as usize <= BLOCK_BYTES_MAX && self.value_len as usize <= VALUE_BYTES_MAX,
            "a reference that is written can be read"
        );
        let mut out = [0; REFERENCE_BYTES];
        out[..8].copy_from_slice(&self.file.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.payload_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.value_len.to_le_bytes());
        out[24..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// From an entry's value; `None` when it is none.
    pub fn decode(bytes: &[u8]) -> Option<ValueRef> {
        let bytes: &[u8; REFERENCE_BYTES] = bytes.try_into().ok()?;
        let reference = ValueRef {
            file: FileId(u64_at(bytes, 0)?),
            offset: u64_at(bytes, 8)?,
            payload_len: u32_at(bytes, 16)?,
            value_len: u32_at(bytes, 20)?,
            crc: u32_at(bytes, 24)?,
        };
        let sound =
            reference.payload_len as usize <= BLOCK_BYTES_MAX && reference.value_len as usize <= VALUE_BYTES_MAX;
        sound.then_some(reference)
    }

    /// Bytes of the value that an entry's value refers to; 0 when it is no reference.
    pub fn value_len_of(bytes: &[u8]) -> usize {
        ValueRef::decode(bytes).map_or(0, |reference| reference.value_len as usize)
    }

    /// Bytes of the record.
    pub fn record_len(self) -> usize {
        self.payload_len as usize + RECORD_BYTES
    }
}

/// An error in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It differs from the written one.
    Corrupt(DecodeError),
    /// A later program wrote the file, in this version.
    TooNew(u32),
}

/// The header of a file.
pub fn encode_header(file: FileId) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..].copy_from_slice(&file.0.to_le_bytes());
    let crc = header_checksum(&out);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The file that a header names.
pub fn decode_header(bytes: &[u8]) -> Result<FileId, HeaderError> {
    let corrupt = |at, detail: &str| HeaderError::Corrupt(DecodeError::new(at, detail));
    let header: &[u8; HEADER_BYTES] = bytes
        .first_chunk()
        .ok_or_else(|| corrupt(0, "too short for a value file"))?;
    if !header.starts_with(&MAGIC) {
        return Err(corrupt(0, "not a value file: wrong magic"));
    }
    let version = u32_at(header, 8).unwrap_or_default();
    if version > VERSION {
        return Err(HeaderError::TooNew(version));
    }
    if u32_at(header, 12) != Some(header_checksum(header)) {
        return Err(corrupt(12, "the header's checksum does not match"));
    }
    if version == 0 {
        return Err(corrupt(8, "format version 0"));
    }
    Ok(FileId(u64_at(header, 16).unwrap_or_default()))
}

fn header_checksum(header: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..12]);
    hasher.update(&header[16..]);
    hasher.finalize()
}

/// The checksum of a record, given its payload in as many pieces as it comes in.
fn record_checksum(file: FileId, offset: u64, len: u32, payload: &[u8], compression: u8) -> u32 {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&file.0.to_le_bytes());
    place[8..16].copy_from_slice(&offset.to_le_bytes());
    place[16..].copy_from_slice(&len.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place);
    hasher.update(payload);
    hasher.update(&[compression]);
    hasher.finalize()
}

/// The bytes before and behind a payload that is written at `offset`, and the record's checksum.
pub fn frame(
    file: FileId,
    offset: u64,
    payload: &[u8],
    compression: u8,
) -> ([u8; LENGTH_BYTES], [u8; TAIL_BYTES], u32) {
    let len = payload.len() as u32;
    let crc = record_checksum(file, offset, len, payload, compression);
    let mut tail = [0; TAIL_BYTES];
    tail[0] = compression;
    tail[1..].copy_from_slice(&crc.to_le_bytes());
    (len.to_le_bytes(), tail, crc)
}

/// A record that has passed its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The value, or its compressed form.
    pub payload: &'a [u8],
    /// Which codec.
    pub compression: u8,
    /// The checksum.
    pub crc: u32,
}

/// Checks a whole record that was read from `offset` of `file`.
pub fn decode_record(file: FileId, offset: u64, record: &[u8]) -> Result<Record<'_>, DecodeError> {
    let (len, rest) = record
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| DecodeError::new(0, "shorter than a record's length"))?;
    let len = u32::from_le_bytes(*len);
    let (payload, tail) = rest
        .split_last_chunk::<TAIL_BYTES>()
        .ok_or_else(|| DecodeError::new(LENGTH_BYTES, "shorter than a record's tail"))?;
    if payload.len() != len as usize || payload.len() > BLOCK_BYTES_MAX {
        let detail = format!("a payload of {len} bytes, {} were expected", payload.len());
        return Err(DecodeError::new(0, detail));
    }
    let [compression, crc @ ..] = *tail;
    let found = u32::from_le_bytes(crc);
    let expected = record_checksum(file, offset, len, payload, compression);
    if found != expected {
        let detail = format!("checksum {found:08x}, computed {expected:08x}");
        return Err(DecodeError::new(LENGTH_BYTES + payload.len() + 1, detail));
    }
    Ok(Record {
        payload,
        compression,
        crc: found,
    })
}

/// Bytes of the record that begins with these, at least four; `None` when no record does.
pub fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = u32_at(bytes, 0)? as usize;
    (len <= BLOCK_BYTES_MAX).then_some(len + RECORD_BYTES)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
