//! A chunk is a range of an object; this is its identity and file format. Byte table in `docs/formats/objects.md`.
//!
//! A file is exactly one chunk's or invalid: the checksum covers the content and its origin. Pure functions without
//! I/O.

use super::CHUNK_BYTES;
use bytes::Bytes;

const MAGIC: [u8; 8] = *b"STELCHK1";
/// Bytes of a chunk's file before the content: magic, checksum.
pub const HEADER_BYTES: usize = 12;

/// The identity of a chunk: a hash of path and tag, and its number. The checksum covers all three, so it tells apart
/// two of 2^64 objects with the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    object: u64,
    number: u64,
}

impl ChunkId {
    /// The `number`-th chunk of an object.
    pub fn of(path: &str, tag: &str, number: u64) -> ChunkId {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        // FNV-1a: the only requirement is that it is stable over versions.
        for byte in path.bytes().chain([0]).chain(tag.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        ChunkId { object: hash, number }
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("{:016x}-{:08x}.chunk", self.object, self.number)
    }

    /// The chunk of a file's name. Only names from [`ChunkId::file_name`] are valid: no capital digits, no signs.
    pub fn parse(name: &str) -> Option<ChunkId> {
        let (object, number) = name.strip_suffix(".chunk")?.split_once('-')?;
        let id = ChunkId {
            object: u64::from_str_radix(object, 16).ok()?,
            number: u64::from_str_radix(number, 16).ok()?,
        };
        (id.file_name() == name).then_some(id)
    }
}

/// Describes a file of the cache folder; `None` when it is none. It cannot check the content, because the checksum also
/// covers path and tag of the object.
pub fn inspect(name: &str, file: &[u8]) -> Option<String> {
    let id = ChunkId::parse(name)?;
    let (header, content) = file.split_at_checked(HEADER_BYTES)?;
    let (magic, checksum) = header.split_at_checked(MAGIC.len())?;
    let checksum = u32::from_le_bytes(checksum.try_into().ok()?);
    (magic == MAGIC).then(|| {
        format!(
            "chunk {} of object {:016x}: {} bytes, from byte {}\nchecksum {checksum:08x}, not checked: it covers path and tag of \
             the object, too\n",
            id.number,
            id.object,
            content.len(),
            id.number.saturating_mul(CHUNK_BYTES),
        )
    })
}

/// A range of an object.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub(super) id: ChunkId,
    pub(super) path: String,
    tag: String,
    /// Its first byte in the object.
    pub(super) start: u64,
    /// Bytes.
    pub(super) len: usize,
}

impl Chunk {
    /// The `number`-th chunk of an object of `file_len` bytes; it must begin within the object.
    pub fn of(path: &str, tag: &str, number: u64, file_len: u64) -> Chunk {
        let start = number * CHUNK_BYTES;
        assert!(start <= file_len, "a chunk begins within its object");
        Chunk {
            id: ChunkId::of(path, tag, number),
            path: path.to_owned(),
            tag: tag.to_owned(),
            start,
            len: (file_len - start).min(CHUNK_BYTES) as usize,
        }
    }

    /// Its file.
    pub fn encode(&self, content: &[u8]) -> Vec<u8> {
        let mut file = Vec::with_capacity(HEADER_BYTES + content.len());
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&self.checksum(content).to_le_bytes());
        file.extend_from_slice(content);
        file
    }

    /// The content of its file; `None` when the file is invalid.
    pub fn decode(&self, file: &Bytes) -> Option<Bytes> {
        let (header, content) = file.split_at_checked(HEADER_BYTES)?;
        let is_intact = header.get(..8)? == MAGIC
            && header.get(8..)? == self.checksum(content).to_le_bytes()
            && content.len() == self.len;
        is_intact.then(|| file.slice(HEADER_BYTES..))
    }

    fn checksum(&self, content: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for part in [
            self.path.as_bytes(),
            &[0],
            self.tag.as_bytes(),
            &self.start.to_le_bytes(),
            content,
        ] {
            hasher.update(part);
        }
        hasher.finalize()
    }
}
