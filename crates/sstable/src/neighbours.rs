//! Caches the blocks that a read of remote storage has brought along.
//!
//! Object stores and HDFS are read in large chunks, of which a point read needs one block. As long as the cache has space, the
//! neighbours of the block enter it, too. Otherwise random reads of a table that fits into the cache would fetch each
//! chunk once for nearly every block of it.
//!
//! A neighbour that is damaged is left to its reader. Files with cache priority are loaded as a whole ([`Sstable::warm`]).

use crate::block::Block;
use crate::frame::Handle;
use crate::index::IndexBlock;
use crate::reader::{BlockKind, CachedBlock, Sstable};
use bytes::Bytes;

/// Blocks of one chunk that enter the cache: those of a chunk of 512 KiB at the usual size and compression. To
/// decompress them takes as long as a request of a chunk costs in processor time.
const BLOCKS_MAX: usize = 128;
/// Their decompressed bytes.
const BYTES_MAX: usize = 1 << 20;

/// The bytes of a chunk, with their offset in the file.
struct Around {
    offset: u64,
    bytes: Bytes,
}

impl Around {
    /// A framed block that lies within these bytes.
    fn framed(&self, handle: Handle) -> Option<Bytes> {
        let from = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        let to = from.checked_add(handle.framed_len())?;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

impl Sstable {
    /// Caches the blocks around the child `at` of an index block, which was read from storage, as far as their bytes are in
    /// memory and the cache has space.
    pub(crate) fn keep_neighbours(&self, index: &IndexBlock, at: usize) {
        if self.residence().is_kept() {
            return;
        }
        let around = index.child(at).and_then(|handle| self.file().around(handle.offset));
        let Some((offset, bytes)) = around else { return };
        let around = Around { offset, bytes };
        let (mut blocks, mut kept_bytes) = (0, 0);
        let behind = (at + 1..index.len()).map_while(|n| Some((index.child(n)?, n)));
        let before = (0..at).rev().map_while(|n| Some((index.child(n)?, n)));
        let there = |(handle, _): (Handle, usize)| Some((handle, around.framed(handle)?));
        for (handle, framed) in behind.map_while(there).chain(before.map_while(there)) {
            debug_assert_eq!(framed.len(), handle.framed_len(), "a framed block is whole");
            let Some(bytes) = self.keep_neighbour(handle, &framed) else {
                return;
            };
            (blocks, kept_bytes) = (blocks + 1, kept_bytes + bytes);
            if blocks >= BLOCKS_MAX || kept_bytes >= BYTES_MAX {
                return;
            }
        }
    }

    /// The bytes that a neighbour takes in the cache, 0 if it was there; `None` when there is no space.
    fn keep_neighbour(&self, handle: Handle, framed: &Bytes) -> Option<usize> {
        let key = self.cache_key(handle);
        if self.cache().contains(&key) {
            return Some(0);
        }
        let has_space = |content: &Bytes| self.cache().has_space(&key, content.len() + size_of::<CachedBlock>());
        if !has_space(framed) {
            return None;
        }
        self.check_handle(handle).ok()?;
        let content = self.open_content(handle, framed).ok()?;
        if !has_space(&content) {
            return None;
        }
        // A slice of the chunk would retain the whole chunk.
        let content = if content.as_ptr() == framed.as_ptr() {
            Bytes::copy_from_slice(&content)
        } else {
            content
        };
        let block = self.parse::<Block>(handle, content).ok()?;
        let bytes = block.bytes();
        self.cache().insert_ahead(key, block.cached(), bytes);
        Some(bytes)
    }
}
