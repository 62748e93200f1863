//! The footer is the last 64 bytes of a file. Layout in `docs/formats/sstable.md`.
//!
//! ```text
//! 0 file id (8) | 8 properties (12) | 20 filter (12) | 32 top index (12) | 44 zero (4)
//! 48 CRC-32 of 0..48 and 52..64 (4) | 52 version (4) | 56 "STELESST"
//! ```

use crate::error::DecodeError;
use crate::frame::Handle;
use stele_types::FileId;

/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;

/// The format version, of files written and read.
pub const VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"STELESST";
const CRC_AT: usize = 48;
const VERSION_AT: usize = 52;
const MAGIC_AT: usize = 56;

/// Positions of the parts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The id the file was written under.
    pub file: FileId,
    /// The properties block.
    pub properties: Handle,
    /// The bloom filter, if there is one.
    pub filter: Option<Handle>,
    /// The second index level.
    pub top_index: Handle,
}

/// The reason for rejecting a footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FooterError {
    /// Not a footer, or damaged.
    Corrupt(DecodeError),
    /// A version this program does not know.
    UnknownVersion(u32),
}

impl Footer {
    /// The 64 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.file.0.to_le_bytes());
        self.properties.encode(&mut out);
        self.filter.unwrap_or_default().encode(&mut out);
        self.top_index.encode(&mut out);
        out.extend_from_slice(&[0; 4]);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&out);
        let mut tail = VERSION.to_le_bytes().to_vec();
        tail.extend_from_slice(MAGIC);
        hasher.update(&tail);
        out.extend_from_slice(&hasher.finalize().to_le_bytes());
        out.extend_from_slice(&tail);
        assert_eq!(out.len(), FOOTER_BYTES);
        out
    }

    /// Decodes exactly [`FOOTER_BYTES`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Footer, FooterError> {
        let bytes: &[u8; FOOTER_BYTES] = bytes
            .try_into()
            .map_err(|_| corrupt(0, format!("{} bytes are not a footer", bytes.len())))?;
        if &bytes[MAGIC_AT..] != MAGIC {
            return Err(corrupt(MAGIC_AT, "no sstable magic at the end of the file"));
        }
        let version = u32_at(bytes, VERSION_AT);
        if version > VERSION {
            return Err(FooterError::UnknownVersion(version));
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..CRC_AT]);
        hasher.update(&bytes[VERSION_AT..]);
        let (found, expected) = (u32_at(bytes, CRC_AT), hasher.finalize());
        if found != expected {
            let detail = format!("footer checksum {found:08x}, computed {expected:08x}");
            return Err(corrupt(CRC_AT, detail));
        }
        // After the checksum, so that a flipped bit in the version is reported as damage.
        if version != 0 && version < VERSION {
            return Err(FooterError::UnknownVersion(version));
        }
        if version == 0 || bytes[44..CRC_AT] != [0; 4] {
            return Err(corrupt(
                44,
                "version or reserved bytes of the footer are not as specified",
            ));
        }
        let handle = |at: usize| Handle::decode(&bytes[at..]).unwrap_or_default();
        let filter = handle(20);
        if filter.len == 0 && filter.offset != 0 {
            let detail = format!("a filter of no bytes at offset {}", filter.offset);
            return Err(corrupt(20, detail));
        }
        Ok(Footer {
            file: FileId(u64::from(u32_at(bytes, 4)) << 32 | u64::from(u32_at(bytes, 0))),
            properties: handle(8),
            filter: (filter.len > 0).then_some(filter),
            top_index: handle(32),
        })
    }
}

fn u32_at(bytes: &[u8; FOOTER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn corrupt(at: usize, detail: impl Into<String>) -> FooterError {
    FooterError::Corrupt(DecodeError::new(at, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        Footer {
            file: FileId::new(3, 9),
            properties: Handle { offset: 1, len: 2 },
            filter: Some(Handle { offset: 3, len: 4 }),
            top_index: Handle {
                offset: u64::MAX,
                len: u32::MAX,
            },
        }
    }

    #[test]
    fn round_trips_with_and_without_filter() {
        assert_eq!(Footer::decode(&footer().encode()), Ok(footer()));
        let bare = Footer {
            filter: None,
            ..footer()
        };
        assert_eq!(Footer::decode(&bare.encode()), Ok(bare));
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_refused() {
        let bytes = footer().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Footer::decode(&bytes[..len]).is_err());
        }
    }

    /// A footer with one byte changed and a checksum that covers the change.
    fn changed(at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = footer().encode();
        bytes[at] = byte;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..CRC_AT]);
        hasher.update(&bytes[VERSION_AT..]);
        bytes[CRC_AT..VERSION_AT].copy_from_slice(&hasher.finalize().to_le_bytes());
        bytes
    }

    #[test]
    fn version_0_and_used_reserved_bytes_are_refused_despite_a_good_checksum() {
        for (at, byte) in [(44, 1), (VERSION_AT, 0)] {
            let decoded = Footer::decode(&changed(at, byte));
            assert!(matches!(decoded, Err(FooterError::Corrupt(_))));
        }
    }

    #[test]
    fn a_filter_of_no_bytes_is_refused_despite_a_good_checksum() {
        let empty = Footer {
            filter: Some(Handle { offset: 3, len: 0 }),
            ..footer()
        };
        assert!(matches!(Footer::decode(&empty.encode()), Err(FooterError::Corrupt(_))));
    }

    #[test]
    fn an_unknown_version_is_told_from_damage() {
        for version in [1, 3] {
            let decoded = Footer::decode(&changed(VERSION_AT, version));
            assert_eq!(decoded, Err(FooterError::UnknownVersion(u32::from(version))));
        }
        // A later version may cover other bytes with its checksum.
        let mut bytes = footer().encode();
        bytes[VERSION_AT] = 3;
        assert_eq!(Footer::decode(&bytes), Err(FooterError::UnknownVersion(3)));
        bytes[VERSION_AT] = 1;
        assert!(matches!(Footer::decode(&bytes), Err(FooterError::Corrupt(_))));
    }
}
