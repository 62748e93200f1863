//! Loads files with cache priority into the cache ahead of their readers.
//!
//! A file is *kept* when its locality group is configured to be in memory. Its blocks enter the part of the cache
//! reserved for such files, and the whole file is read once in advance ([`Sstable::warm`]). Blocks that do not fit are
//! read on demand and cached like blocks of other files.

use crate::block::Block;
use crate::check::Window;
use crate::damage::is_damage;
use crate::error::Result;
use crate::reader::{BlockKind, Sstable};
use bytes::Bytes;
use std::sync::Arc;

/// Free capacity for kept blocks below this counts as none. The blocks of a file spread over the cache's shards, and
/// some are full before others.
const SPACE_MIN_BYTES: usize = 256 << 10;

impl Sstable {
    /// Sets whether the file's blocks have priority in the cache.
    pub fn keep(&self, kept: bool) {
        self.residence().set_kept(kept);
    }

    /// Whether the file has priority and was not loaded yet.
    pub fn wants_warming(&self) -> bool {
        self.residence().wants_warming()
    }

    /// Loads the blocks of a kept file into the cache while they fit. Returns true when all did. It is tried once: a
    /// part that does not fit, or is damaged, is left to its readers.
    pub async fn warm(self: &Arc<Self>) -> Result<bool> {
        if !self.residence().begin_warming() {
            return Ok(false);
        }
        match self.read_all_blocks().await {
            Err(error) if is_damage(&error) => Ok(false),
            done => done,
        }
    }

    async fn read_all_blocks(self: &Arc<Self>) -> Result<bool> {
        let mut window = Window::default();
        for top_at in 0..self.top().len() {
            let index = self.index_block(top_at).await?;
            for at in 0..index.len() {
                let handle = self.child(top_at, &index, at)?;
                if self.cache().retained_space() < SPACE_MIN_BYTES.max(handle.len as usize) {
                    return Ok(false);
                }
                let content = window.block(self, handle).await?;
                // A slice of the window would retain the whole window.
                let content = if window.holds(&content) {
                    Bytes::copy_from_slice(&content)
                } else {
                    content
                };
                let block: Block = self.parse(handle, content)?;
                self.cache_block(handle, block.cached());
            }
        }
        Ok(true)
    }
}
