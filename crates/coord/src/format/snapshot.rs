//! Snapshots: every key at the beginning of a generation.

use super::reader::Reader;
use super::{FORMAT_VERSION, FormatError, SNAPSHOT_MAGIC, crc};
use crate::limits::KEY_BYTES_MAX;
use bytes::Bytes;
use stele_types::varint;

/// A decoded snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its generation.
    pub generation: u64,
    /// The revision as of which it is.
    pub revision: u64,
    /// In ascending order of keys.
    pub entries: Vec<SnapshotEntry>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The key.
    pub key: String,
    /// The revision that wrote it.
    pub version: u64,
    /// Its value.
    pub value: Bytes,
}

/// Bytes before the first entry.
const HEADER_BYTES: usize = 40;

/// Fewest bytes of an entry: a key of one byte, a version, an empty value, two lengths.
const ENTRY_BYTES_MIN: usize = 4;

/// Encodes entries given in ascending order of keys.
pub fn encode_snapshot<'a>(
    generation: u64,
    revision: u64,
    entries: impl Iterator<Item = (&'a str, u64, &'a [u8])>,
) -> Bytes {
    let mut out = Vec::new();
    out.extend_from_slice(&SNAPSHOT_MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    // Checksum and count are known at the end.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&generation.to_le_bytes());
    out.extend_from_slice(&revision.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    let mut count = 0u64;
    for (key, version, value) in entries {
        varint::put_bytes(&mut out, key.as_bytes());
        varint::put_u64(&mut out, version);
        varint::put_bytes(&mut out, value);
        count += 1;
    }
    assert!(out.len() >= HEADER_BYTES, "the header of a snapshot has a fixed size");
    out[32..40].copy_from_slice(&count.to_le_bytes());
    let checksum = crc(&[&out[..12], &out[16..]]);
    out[12..16].copy_from_slice(&checksum.to_le_bytes());
    Bytes::from(out)
}

/// Decodes a snapshot. It was put whole, so it is whole or damaged.
pub fn decode_snapshot(bytes: &Bytes) -> Result<Snapshot, FormatError> {
    let mut reader = Reader::new(bytes, 0);
    reader.file_header(&SNAPSHOT_MAGIC, |head, rest| crc(&[head, rest]))?;
    let generation = reader.u64("generation")?;
    let revision = reader.u64("revision")?;
    let count_at = reader.offset();
    let count = reader.u64("number of entries")?;
    if count > (bytes.len() / ENTRY_BYTES_MIN) as u64 {
        let expected = format!("a number of entries that fit into {} bytes", bytes.len());
        return Err(FormatError::new(count_at, expected, count.to_string()));
    }
    let mut entries: Vec<SnapshotEntry> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let at = reader.offset();
        let key = reader.key(KEY_BYTES_MAX)?;
        if let Some(last) = entries.last().filter(|last| last.key >= key) {
            return Err(FormatError::new(
                at,
                format!("a key after {:?}", last.key),
                format!("{key:?}"),
            ));
        }
        let version_at = reader.offset();
        let version = reader.varint("version")?;
        if version > revision {
            let expected = format!("a version of at most {revision}");
            return Err(FormatError::new(version_at, expected, version.to_string()));
        }
        let value = bytes.slice_ref(reader.bytes("value")?);
        entries.push(SnapshotEntry { key, version, value });
    }
    reader.end()?;
    Ok(Snapshot {
        generation,
        revision,
        entries,
    })
}
