//! The file info: a map of names to values.
//!
//! Its block is `PBUF`, then a varint length and the protobuf message `FileInfoProto`.

use crate::error::{Decoded, Malformed};
use crate::input::Input;
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;

const MAGIC: &[u8] = b"PBUF";
const LAST_KEY: &str = "hfile.LASTKEY";
const MAX_TAGS_LEN: &str = "hfile.MAX_TAGS_LEN";
const TAGS_COMPRESSED: &str = "hfile.TAGS_COMPRESSED";
const CELL_VERSION: &str = "KEY_VALUE_VERSION";
/// The version of cells that have their number in the order of commits behind them.
const CELLS_WITH_SEQUENCES: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct InfoMessage {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(bytes = "bytes", required, tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    value: Bytes,
}

/// The decoded map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    entries: BTreeMap<Bytes, Bytes>,
}

impl FileInfo {
    /// Decodes the content of its block.
    pub fn decode(content: &[u8]) -> Decoded<FileInfo> {
        let Some(message) = content.strip_prefix(MAGIC) else {
            return Malformed::new("the file info is no protobuf message");
        };
        let message = InfoMessage::decode_length_delimited(message)
            .map_err(|error| Malformed(format!("the file info is not decodable: {error}").into()))?;
        let entries = message.entries.into_iter().map(|pair| (pair.name, pair.value));
        Ok(FileInfo {
            entries: entries.collect(),
        })
    }

    /// All entries by name.
    pub fn entries(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.entries.iter()
    }

    fn get(&self, name: &str) -> Option<&Bytes> {
        self.entries.get(name.as_bytes())
    }

    /// The last key of the file.
    pub fn last_key(&self) -> Option<&Bytes> {
        self.get(LAST_KEY)
    }

    /// Whether cells have tags, also empty ones.
    pub fn has_tags(&self) -> bool {
        self.get(MAX_TAGS_LEN).is_some()
    }

    /// Whether the tags of encoded blocks are compressed.
    pub fn has_compressed_tags(&self) -> bool {
        let compressed = self.get(TAGS_COMPRESSED).and_then(|value| value.first());
        compressed.is_some_and(|value| *value != 0)
    }

    /// Whether cells have a number in the order of commits behind them.
    pub fn has_sequences(&self) -> bool {
        let version = self.get(CELL_VERSION).map(|value| Input::new(value).u32());
        version == Some(Ok(CELLS_WITH_SEQUENCES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_says_how_cells_are_stored() {
        let pair = |name: &str, value: &[u8]| Pair {
            name: Bytes::copy_from_slice(name.as_bytes()),
            value: Bytes::copy_from_slice(value),
        };
        let message = InfoMessage {
            entries: vec![
                pair(LAST_KEY, b"key"),
                pair(MAX_TAGS_LEN, &[0; 4]),
                pair(CELL_VERSION, &[0, 0, 0, 1]),
            ],
        };
        let content = [MAGIC, &message.encode_length_delimited_to_vec()].concat();
        let info = FileInfo::decode(&content).unwrap();
        assert_eq!(info.last_key().unwrap(), "key");
        assert!(info.has_tags() && !info.has_compressed_tags() && info.has_sequences());
        assert!(FileInfo::decode(&content[1..]).is_err());
        assert!(FileInfo::decode(&content[..content.len() - 1]).is_err());
    }
}
