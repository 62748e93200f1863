//! The data index: the first key and the place of each block below.
//!
//! | block | content, big-endian |
//! |---|---|
//! | root | entries: offset (8), bytes of the block (4), key (vlong length, bytes); their number is in the trailer. Behind them, with several levels, three numbers for the middle of the file |
//! | other | number of entries (4); for each and for the end, its place among the entries (4); entries: offset (8), bytes of the block (4), key |

use crate::error::{Decoded, Malformed};
use crate::input::Input;
use bytes::Bytes;

/// Levels of an index at most; HBase writes no more.
pub const LEVELS_MAX: u32 = 16;

/// An entry of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Where the block begins.
    pub offset: u64,
    /// Its bytes with the header.
    pub bytes: usize,
    /// A key that is at or below the first of the block, and above the last of the block before.
    pub key: Bytes,
}

/// Bytes of an entry of the root at least: offset, bytes of the block, length of the key.
const ROOT_ENTRY_BYTES_MIN: usize = 13;

/// Memory of the decoded entries of a root block at most: several times its bytes if their keys are short.
pub fn root_memory(content: &Bytes, count: u32) -> usize {
    root_entries_max(content, count) * size_of::<IndexEntry>()
}

/// `count` is not believed: the block ends where it ends.
fn root_entries_max(content: &Bytes, count: u32) -> usize {
    (count as usize).min(content.len() / ROOT_ENTRY_BYTES_MIN)
}

/// The entries of a root block, in no more memory than [`root_memory`].
pub fn root(content: &Bytes, count: u32) -> Decoded<Vec<IndexEntry>> {
    let mut input = Input::new(content);
    let mut entries = Vec::with_capacity(root_entries_max(content, count));
    for _ in 0..count {
        let (offset, bytes) = (input.u64()?, input.length()?);
        let key = input.byte_array()?;
        entries.push(IndexEntry {
            offset,
            bytes,
            key: content.slice_ref(key),
        });
    }
    Ok(entries)
}

/// The entries of a block of another level, as far as `most` of them: they may overlap, so its bytes are no limit.
pub fn inner(content: &Bytes, most: usize) -> Decoded<Vec<IndexEntry>> {
    let mut input = Input::new(content);
    let count = input.length()?;
    let Some(places_len) = count.checked_add(1).and_then(|places| places.checked_mul(4)) else {
        return Malformed::new("an index of too many entries");
    };
    let (places, _) = input.take(places_len)?.as_chunks::<4>();
    let places = places.iter().map(|place| u32::from_be_bytes(*place) as usize);
    let from = input.position();
    let mut entries = Vec::new();
    for (start, end) in places.clone().zip(places.skip(1)).take(most) {
        let Some(entry) = input.rest().get(start..end) else {
            return Malformed::new("an entry behind the end of its index");
        };
        let mut entry = Input::new(entry);
        let (offset, bytes) = (entry.u64()?, entry.length()?);
        let key = from + start + entry.position()..from + end;
        entries.push(IndexEntry {
            offset,
            bytes,
            key: content.slice(key),
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, key: &[u8]) -> Vec<u8> {
        [&offset.to_be_bytes()[..], &100u32.to_be_bytes(), key].concat()
    }

    #[test]
    fn entries_of_both_kinds_of_blocks() {
        let content = Bytes::from([entry(0, b"\x01a"), entry(100, b"\x02bc"), vec![9; 16]].concat());
        let of_root = root(&content, 2).unwrap();
        let seen: Vec<_> = of_root.iter().map(|e| (e.offset, e.bytes, &e.key[..])).collect();
        assert_eq!(seen, [(0, 100, &b"a"[..]), (100, 100, b"bc")]);
        assert!(root(&content, 4).is_err());
        assert_eq!(root_memory(&content, 2), 2 * size_of::<IndexEntry>());
        assert_eq!(root_memory(&content, u32::MAX), 3 * size_of::<IndexEntry>());
        let (a, b) = (entry(0, b"a"), entry(100, b"bc"));
        let places = [2, 0, a.len(), a.len() + b.len()]
            .map(|n| (n as u32).to_be_bytes())
            .concat();
        let content = Bytes::from([places, a, b].concat());
        assert_eq!(inner(&content, 9).unwrap(), of_root);
        assert_eq!(inner(&content, 1).unwrap(), of_root[..1]);
        for cut in 0..content.len() {
            assert!(inner(&content.slice(..cut), 9).is_err(), "{cut}");
        }
        let backward = Bytes::from([1u32, 9, 0].map(u32::to_be_bytes).concat());
        assert!(inner(&backward, 9).is_err());
    }
}
