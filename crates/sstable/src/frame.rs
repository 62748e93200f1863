//! A frame is the form of a block in the file: payload, compression kind, checksum.
//!
//! ```text
//! payload (n) | compression (1) | CRC-32 (4, LE) over file id (8, LE), offset (8, LE), payload, compression
//! ```
//!
//! File id and offset are part of the checksum and not of the block: a block that the device returned from another
//! place does not pass.

use crate::compress::Packed;
use crate::dictionary::Dictionary;
use crate::error::DecodeError;
use crate::limits;
use bytes::Bytes;
use stele_types::FileId;
use stele_types::schema::Compression;

/// Compression kind and checksum.
pub const TAIL_BYTES: usize = 5;

/// The compression kind of a block that is compressed by Zstandard with the file's dictionary.
pub const ZSTD_WITH_DICTIONARY: u8 = 4;

/// Bytes of an encoded handle.
pub const HANDLE_BYTES: usize = 12;

/// Position of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    /// First byte of the payload in the file.
    pub offset: u64,
    /// Bytes of the payload.
    pub len: u32,
}

impl Handle {
    /// Appends offset and length, little-endian.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
    }

    /// Reads a handle from the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<Handle> {
        Some(Handle {
            offset: u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
            len: u32::from_le_bytes(bytes.get(8..HANDLE_BYTES)?.try_into().ok()?),
        })
    }

    /// Bytes in the file, with the tail.
    pub fn framed_len(self) -> usize {
        self.len as usize + TAIL_BYTES
    }

    /// The framed block, if all of it lies within bytes of the file from `offset` on.
    pub(crate) fn within(self, offset: u64, bytes: &Bytes) -> Option<Bytes> {
        let start = usize::try_from(self.offset.checked_sub(offset)?).ok()?;
        let end = start.checked_add(self.framed_len())?;
        (end <= bytes.len()).then(|| bytes.slice(start..end))
    }

    /// First byte after the block; `None` past 64 bits.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.framed_len() as u64)
    }
}

/// Completes a payload to a framed block at `offset` of file `file`.
pub fn seal(file: FileId, offset: u64, payload: Vec<u8>, kind: Compression) -> Bytes {
    let mut framed = payload;
    framed.extend_from_slice(&[0; TAIL_BYTES]);
    seal_in_place(file, offset, &mut framed, kind as u8);
    Bytes::from(framed)
}

/// The same where the end of `framed` is reserved for the tail, for any number of a compression kind.
pub(crate) fn seal_in_place(file: FileId, offset: u64, framed: &mut [u8], kind: u8) {
    assert!(framed.len() >= TAIL_BYTES, "a framed block has space for its tail");
    assert!(
        framed.len() - TAIL_BYTES <= limits::BLOCK_BYTES_MAX,
        "a sealed block is within the format's limit"
    );
    if let Some((covered, crc)) = framed.split_last_chunk_mut()
        && let Some(last) = covered.last_mut()
    {
        *last = kind;
        *crc = checksum(file, offset, covered).to_le_bytes();
    }
}

/// A framed block that is intact, with the checksum that it has at the same place of another file.
pub(crate) fn renumber(file: FileId, offset: u64, framed: &[u8]) -> Bytes {
    let mut sealed = framed.to_vec();
    let kind_at = sealed.len().checked_sub(TAIL_BYTES);
    let kind = kind_at.and_then(|at| sealed.get(at).copied()).unwrap_or_default();
    seal_in_place(file, offset, &mut sealed, kind);
    Bytes::from(sealed)
}

/// Checks a framed block that was read from `offset` of `file`. Returns its content: a slice of `framed` when it was
/// not compressed.
pub fn open(file: FileId, offset: u64, framed: &Bytes) -> Result<Bytes, DecodeError> {
    open_with(file, offset, framed, None)
}

/// The same for a file that may have a dictionary.
pub fn open_with(
    file: FileId,
    offset: u64,
    framed: &Bytes,
    dictionary: Option<&Dictionary>,
) -> Result<Bytes, DecodeError> {
    Ok(match open_slice(file, offset, framed, dictionary)? {
        Opened::Stored(content) => framed.slice_ref(content),
        Opened::Packed(packed) => Bytes::from(packed.expand()?),
    })
}

/// The content of a framed block whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub enum Opened<'a> {
    /// The content itself: a slice of the framed block.
    Stored(&'a [u8]),
    /// A payload to be decompressed.
    Packed(Packed<'a>),
}

impl Opened<'_> {
    /// Bytes of the content.
    pub fn content_len(&self) -> usize {
        match self {
            Opened::Stored(content) => content.len(),
            Opened::Packed(packed) => packed.content_len(),
        }
    }

    /// Fills `out`, whose length must be the content's.
    pub fn write_to(self, out: &mut [u8]) -> Result<(), DecodeError> {
        assert_eq!(out.len(), self.content_len(), "the buffer is as long as the content");
        match self {
            Opened::Stored(content) => {
                out.copy_from_slice(content);
                Ok(())
            }
            Opened::Packed(packed) => packed.expand_into(out),
        }
    }

    /// The content in memory of its own.
    pub fn into_bytes(self) -> Result<Bytes, DecodeError> {
        match self {
            Opened::Stored(content) => Ok(Bytes::copy_from_slice(content)),
            Opened::Packed(packed) => Ok(Bytes::from(packed.expand()?)),
        }
    }
}

/// The same for borrowed memory.
pub fn open_slice<'a>(
    file: FileId,
    offset: u64,
    framed: &'a [u8],
    dictionary: Option<&'a Dictionary>,
) -> Result<Opened<'a>, DecodeError> {
    let kind_at = framed
        .len()
        .checked_sub(TAIL_BYTES)
        .ok_or_else(|| DecodeError::new(0, "shorter than a block's tail"))?;
    if kind_at > limits::BLOCK_BYTES_MAX {
        return Err(DecodeError::new(
            0,
            format!("payload of {kind_at} bytes exceeds the limit"),
        ));
    }
    let (covered, crc) = framed.split_at(kind_at + 1);
    let found = crc.try_into().map(u32::from_le_bytes).unwrap_or_default();
    let expected = checksum(file, offset, covered);
    if found != expected {
        let detail = format!("checksum {found:08x}, computed {expected:08x}");
        return Err(DecodeError::new(kind_at + 1, detail));
    }
    let kind = covered.last().copied().unwrap_or_default();
    let payload = framed.get(..kind_at).unwrap_or(&[]);
    if kind == ZSTD_WITH_DICTIONARY {
        let missing = || DecodeError::new(kind_at, "compressed with a dictionary, which the file does not have");
        let dictionary = dictionary.ok_or_else(missing)?;
        return Ok(Opened::Packed(Packed::with_dictionary(dictionary, payload)?));
    }
    match Compression::from_byte(kind) {
        Some(Compression::None) => Ok(Opened::Stored(payload)),
        Some(kind) => Ok(Opened::Packed(Packed::new(kind, payload)?)),
        None => Err(DecodeError::new(kind_at, format!("unknown compression {kind}"))),
    }
}

fn checksum(file: FileId, offset: u64, covered: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&file.0.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place);
    hasher.update(covered);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_passes_only_in_its_place() {
        let framed = seal(FileId(7), 4096, b"content".to_vec(), Compression::None);
        assert_eq!(open(FileId(7), 4096, &framed).as_deref(), Ok(b"content".as_slice()));
        assert!(open(FileId(8), 4096, &framed).is_err());
        assert!(open(FileId(7), 0, &framed).is_err());
        for len in 0..framed.len() {
            assert!(open(FileId(7), 4096, &framed.slice(..len)).is_err());
        }
    }

    #[test]
    fn an_unknown_compression_is_named() {
        let mut bytes = b"content\x09".to_vec();
        let crc = checksum(FileId(7), 0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let error = open(FileId(7), 0, &Bytes::from(bytes)).expect_err("kind 9 does not exist");
        assert_eq!(error.detail, "unknown compression 9");
    }
}
