//! The trailer: the fixed number of bytes at the end of the file.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `TRABLK"$` |
//! | varint, n | protobuf message: [`TrailerMessage`] |
//! | … | zeros |
//! | 4 | minor version (1), major version (3), big-endian |

use crate::TRAILER_MAGIC;
use crate::compression::Codec;
use crate::error::{Decoded, HFileError, Malformed, Result};
use prost::Message;
use std::ops::Range;

/// Bytes of the trailer in version 3.
const TRAILER_BYTES: usize = 4096;
/// In version 2.
const TRAILER_BYTES_V2: usize = 212;
/// The least minor version of version 2 whose trailer and file info are protobuf.
const MINOR_V2_MIN: u8 = 3;
const VERSION_BYTES: usize = 4;

/// `FileTrailerProto`.
#[derive(Clone, PartialEq, Message)]
pub struct TrailerMessage {
    #[prost(uint64, optional, tag = "1")]
    pub file_info_offset: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub load_on_open_data_offset: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub uncompressed_data_index_size: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub total_uncompressed_bytes: Option<u64>,
    #[prost(uint32, optional, tag = "5")]
    pub data_index_count: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub meta_index_count: Option<u32>,
    #[prost(uint64, optional, tag = "7")]
    pub entry_count: Option<u64>,
    #[prost(uint32, optional, tag = "8")]
    pub num_data_index_levels: Option<u32>,
    #[prost(uint64, optional, tag = "9")]
    pub first_data_block_offset: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub last_data_block_offset: Option<u64>,
    #[prost(string, optional, tag = "11")]
    pub comparator_class_name: Option<String>,
    #[prost(uint32, optional, tag = "12")]
    pub compression_codec: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub encryption_key: Option<bytes::Bytes>,
}

/// A trailer whose offsets are within the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub major: u32,
    pub minor: u8,
    /// Where it begins, which is where the blocks end.
    pub offset: u64,
    /// Where the blocks begin that are read at open: the root of the data index, that of the meta blocks, the file info.
    pub open_offset: u64,
    /// Cells.
    pub entries: u64,
    /// Where the first data block begins, and the last; `None` if there is no cell.
    pub data_blocks: Option<(u64, u64)>,
    /// Entries of the root of the data index.
    pub index_entries: u32,
    pub index_levels: u32,
    pub uncompressed_bytes: u64,
    pub codec: Codec,
    pub comparator: String,
}

/// Bytes at the end of a file of this length that have every trailer.
pub fn tail_of(len: u64) -> Range<u64> {
    len.saturating_sub(TRAILER_BYTES as u64)..len
}

/// Where the trailer of a file of this length begins, by the version in its last four bytes; `None` for no version that is read.
pub fn trailer_offset(len: u64, version: [u8; 4]) -> Option<u64> {
    let bytes = match (version[3], version[0]) {
        (3, _) => TRAILER_BYTES,
        (2, minor) if minor >= MINOR_V2_MIN => TRAILER_BYTES_V2,
        _ => return None,
    };
    if version[1..3] != [0, 0] {
        return None;
    }
    len.checked_sub(bytes as u64)
}

impl Trailer {
    /// Decodes the trailer of a file of this length from its tail ([`tail_of`]).
    pub fn decode(path: &str, tail: &[u8], len: u64) -> Result<Trailer> {
        let at = |detail: &'static str| Malformed(detail.into()).at(path, len.saturating_sub(tail.len() as u64));
        let Some((before, version)) = tail.split_last_chunk::<VERSION_BYTES>() else {
            return Err(at("shorter than a trailer"));
        };
        let Some(offset) = trailer_offset(len, *version) else {
            let (minor, major) = (version[0], u32::from_be_bytes([0, version[1], version[2], version[3]]));
            return Err(match major {
                2 => HFileError::Unsupported {
                    path: path.to_owned(),
                    detail: format!("version 2.{minor} of HFiles is not read; HBase 0.96 and later write newer ones"),
                },
                _ => at("no trailer of an HFile at the end"),
            });
        };
        let skipped = (offset + tail.len() as u64).saturating_sub(len) as usize;
        let trailer = before.get(skipped..).unwrap_or_default();
        let message = decode_message(trailer).map_err(|malformed| malformed.at(path, offset))?;
        if message.encryption_key.is_some() {
            return Err(HFileError::Unsupported {
                path: path.to_owned(),
                detail: "encrypted HFiles are not read".to_owned(),
            });
        }
        // 2 is no compression.
        let codec = Codec::from_number(message.compression_codec.unwrap_or(2));
        let codec = codec.map_err(|name| HFileError::Unsupported {
            path: path.to_owned(),
            detail: format!("blocks compressed with {name} are not read"),
        })?;
        let trailer = Trailer {
            major: u32::from(version[3]),
            minor: version[0],
            offset,
            open_offset: message.load_on_open_data_offset.unwrap_or(0),
            entries: message.entry_count.unwrap_or(0),
            data_blocks: data_blocks(&message),
            index_entries: message.data_index_count.unwrap_or(0),
            index_levels: message.num_data_index_levels.unwrap_or(0),
            uncompressed_bytes: message.total_uncompressed_bytes.unwrap_or(0),
            codec,
            comparator: message.comparator_class_name.unwrap_or_default(),
        };
        trailer.check().map_err(|malformed| malformed.at(path, offset))?;
        Ok(trailer)
    }

    fn check(&self) -> Decoded<()> {
        if self.open_offset >= self.offset {
            return Malformed::new("the index is said to begin behind all blocks");
        }
        match self.data_blocks {
            Some((first, last)) if first > last || last >= self.open_offset => {
                Malformed::new("data blocks are said to be behind the index")
            }
            None if self.entries > 0 => Malformed::new("cells without a data block"),
            _ => Ok(()),
        }
    }
}

fn data_blocks(message: &TrailerMessage) -> Option<(u64, u64)> {
    // HBase says -1 where there is none.
    let offset = |given: Option<u64>| given.filter(|offset| *offset != u64::MAX);
    let first = offset(message.first_data_block_offset)?;
    let last = offset(message.last_data_block_offset)?;
    (message.entry_count.unwrap_or(0) > 0).then_some((first, last))
}

fn decode_message(trailer: &[u8]) -> Decoded<TrailerMessage> {
    let Some(message) = trailer.strip_prefix(TRAILER_MAGIC) else {
        return Malformed::new("the trailer does not begin with its magic");
    };
    TrailerMessage::decode_length_delimited(message)
        .map_err(|error| Malformed(format!("the trailer is not decodable: {error}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_says_where_the_trailer_is() {
        assert_eq!(trailer_offset(5000, [3, 0, 0, 3]), Some(904));
        assert_eq!(trailer_offset(5000, [0, 0, 0, 3]), Some(904));
        assert_eq!(trailer_offset(5000, [3, 0, 0, 2]), Some(4788));
        for other in [[0, 0, 0, 2], [0, 0, 0, 4], [3, 0, 1, 3], [0; 4]] {
            assert_eq!(trailer_offset(5000, other), None);
        }
        assert_eq!(trailer_offset(4095, [3, 0, 0, 3]), None);
        assert_eq!((tail_of(5000), tail_of(10)), (904..5000, 0..10));
    }
}
