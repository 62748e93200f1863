//! Files whose blocks are kept in memory.
//!
//! A file is *kept* when its locality group is to be in memory: whatever of it is read goes to the part of the cache for
//! such blocks, and somebody reads all of it once, ahead of its readers ([`Sstable::warm`]). What the cache has no room for
//! is read when it is asked for, and cached like blocks of other files.

use crate::block::Block;
use crate::check::Window;
use crate::damage::is_damage;
use crate::error::Result;
use crate::reader::{BlockKind, Sstable};
use bytes::Bytes;
use std::sync::Arc;

/// Of the room for kept blocks a part this small is none: the blocks of a file spread over the cache's shards, and some
/// are full before others.
const SPACE_MIN_BYTES: usize = 256 << 10;

impl Sstable {
    /// Says whether the file's blocks are to be kept in memory before those of others.
    pub fn keep(&self, kept: bool) {
        self.residence().set_kept(kept);
    }

    /// Whether the file is to be kept in memory, and nobody has read it for that yet.
    pub fn wants_warming(&self) -> bool {
        self.residence().wants_warming()
    }

    /// Reads the blocks of a file that is to be kept into the cache, as long as there is room for them there; true when
    /// that was all of them. It is tried once: a part that does not fit, or is damaged, is left to its readers.
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
                // Not a slice of the window, which would stay in memory as a whole.
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
