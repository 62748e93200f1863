//! Blocks: header, content, checksums.
//!
//! | bytes | field of the header, big-endian |
//! |---|---|
//! | 8 | magic: the kind of the block |
//! | 4 | bytes behind the header, with the checksums |
//! | 4 | bytes of the content before compression |
//! | 8 | offset of the block of the same kind before; not used |
//! | 1 | kind of checksums |
//! | 4 | bytes of a chunk that has a checksum |
//! | 4 | bytes of header and content, without the checksums |

use crate::checksum::ChecksumKind;
use crate::compression::Codec;
use crate::error::{Decoded, Malformed};
use crate::input::Input;
use bytes::Bytes;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 33;

/// Bytes of a block at most, compressed or not. A cell is in one block as a whole, and values have at most 100 MiB.
pub const BLOCK_BYTES_MAX: usize = 128 << 20;

/// Kinds of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Data,
    EncodedData,
    LeafIndex,
    IntermediateIndex,
    RootIndex,
    FileInfo,
    /// Parts of bloom filters and meta blocks, which nothing is read of.
    Other,
}

const KINDS: [(&[u8; 8], BlockKind); 12] = [
    (b"DATABLK*", BlockKind::Data),
    (b"DATABLKE", BlockKind::EncodedData),
    (b"IDXLEAF2", BlockKind::LeafIndex),
    (b"IDXINTE2", BlockKind::IntermediateIndex),
    (b"IDXROOT2", BlockKind::RootIndex),
    (b"FILEINF2", BlockKind::FileInfo),
    (b"BLMFBLK2", BlockKind::Other),
    (b"METABLKc", BlockKind::Other),
    (b"BLMFMET2", BlockKind::Other),
    (b"DFBLMET2", BlockKind::Other),
    (b"TRABLK\"$", BlockKind::Other),
    (b"IDXBLK)+", BlockKind::Other),
];

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: BlockKind,
    /// Bytes behind the header.
    pub stored_bytes: usize,
    /// Bytes of the content before compression.
    pub content_bytes: usize,
    checksums: ChecksumKind,
    chunk_bytes: usize,
    /// Bytes of header and content.
    data_bytes: usize,
}

impl Header {
    pub fn decode(bytes: &[u8]) -> Decoded<Header> {
        let mut input = Input::new(bytes);
        let magic = input.take(8)?;
        let known = KINDS.iter().find(|(known, _)| &known[..] == magic);
        let Some((_, kind)) = known else {
            return Malformed::new(format!("a block that begins with \"{}\"", magic.escape_ascii()));
        };
        let (stored_bytes, content_bytes) = (input.length()?, input.length()?);
        input.u64()?;
        let checksums = ChecksumKind::from_code(input.u8()?)?;
        let (chunk_bytes, data_bytes) = (input.length()?, input.length()?);
        if stored_bytes > BLOCK_BYTES_MAX || content_bytes > BLOCK_BYTES_MAX {
            return Malformed::new(format!(
                "a block of {stored_bytes} bytes, {content_bytes} before compression"
            ));
        }
        if !(HEADER_BYTES..=HEADER_BYTES + stored_bytes).contains(&data_bytes) {
            return Malformed::new("a block whose content is longer than all of it");
        }
        Ok(Header {
            kind: *kind,
            stored_bytes,
            content_bytes,
            checksums,
            chunk_bytes,
            data_bytes,
        })
    }

    /// Bytes of the block in the file.
    pub fn block_bytes(&self) -> usize {
        HEADER_BYTES + self.stored_bytes
    }

    /// The content of a block with this header, after its checksums were verified.
    pub fn content(&self, block: &Bytes, codec: Codec) -> Decoded<Bytes> {
        if block.len() != self.block_bytes() {
            return Malformed::new("a block of another length than its header says");
        }
        let (data, checksums) = block.split_at_checked(self.data_bytes).unwrap_or((block, &[]));
        self.checksums.verify(data, self.chunk_bytes, checksums)?;
        if codec == Codec::None {
            return match data.len() == HEADER_BYTES + self.content_bytes {
                true => Ok(block.slice(HEADER_BYTES..self.data_bytes)),
                false => Malformed::new("content of another length than the header says"),
            };
        }
        let compressed = data.get(HEADER_BYTES..).unwrap_or_default();
        Ok(codec.decompress(compressed, self.content_bytes)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(magic: &[u8; 8], content: &[u8], content_bytes: u32) -> Vec<u8> {
        let data_bytes = (HEADER_BYTES + content.len()) as u32;
        let mut block = magic.to_vec();
        block.extend((content.len() as u32 + 4).to_be_bytes());
        block.extend(content_bytes.to_be_bytes());
        block.extend(u64::MAX.to_be_bytes());
        block.push(1);
        block.extend(16384u32.to_be_bytes());
        block.extend(data_bytes.to_be_bytes());
        block.extend(content);
        let checksum = crc32fast::hash(&block);
        block.extend(checksum.to_be_bytes());
        block
    }

    #[test]
    fn a_block_is_verified_and_taken_apart() {
        let bytes = Bytes::from(block(b"DATABLK*", b"content", 7));
        let header = Header::decode(&bytes).unwrap();
        assert_eq!((header.kind, header.block_bytes()), (BlockKind::Data, bytes.len()));
        assert_eq!(header.content(&bytes, Codec::None), Ok(Bytes::from_static(b"content")));
        for at in [9, 20, 26, 33, 39, 41] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            let header = Header::decode(&damaged);
            let content = header.and_then(|header| header.content(&damaged.into(), Codec::None));
            assert!(content.is_err(), "{at}");
        }
    }

    #[test]
    fn lengths_must_agree() {
        let other = Bytes::from(block(b"DATABLKE", b"content", 8));
        let header = Header::decode(&other).unwrap();
        assert!(header.content(&other, Codec::None).is_err());
        assert!(header.content(&other.slice(1..), Codec::None).is_err());
        assert!(Header::decode(&block(b"DATABLKX", b"", 0)).is_err());
        let mut large = block(b"IDXROOT2", b"", 0);
        large[12..16].copy_from_slice(&(BLOCK_BYTES_MAX as u32 + 1).to_be_bytes());
        assert!(Header::decode(&large).is_err());
    }
}
