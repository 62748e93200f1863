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

impl Sstable {
    /// Caches the blocks around the child `at` of an index block, which was read from storage, as far as their bytes are in
    /// memory and the cache has space.
    pub(crate) fn keep_neighbours(&self, index: &IndexBlock, at: usize) {
        if self.residence().is_kept() {
            return;
        }
        let around = index.child(at).and_then(|handle| self.file().around(handle.offset));
        let Some((offset, chunk)) = around else { return };
        let (mut blocks, mut kept_bytes) = (0, 0);
        let there = |n: usize| {
            let handle = index.child(n)?;
            Some((handle, handle.within(offset, &chunk)?))
        };
        let behind = (at + 1..index.len()).map_while(there);
        let before = (0..at).rev().map_while(there);
        for (handle, framed) in behind.chain(before) {
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
        let block = self.parse::<Block>(handle, Self::apart(content, framed)).ok()?;
        let bytes = block.bytes();
        self.cache().insert_ahead(key, block.cached(), bytes);
        Some(bytes)
    }
}
