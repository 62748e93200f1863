//! Copies a whole file block by block, under its own number or another one.
//!
//! Checksums of blocks cover the number of their file ([`crate::frame`]), so a file cannot simply get another name. Every
//! block is checked under the old number and sealed under the new one. All other bytes stay the same, and so do offsets and
//! the length of the file.
//!
//! Invariant: the blocks that are copied follow each other without gaps from the start of the file to its footer.

use crate::block::BlockCursor;
use crate::check::Window;
use crate::error::{Result, SstableError};
use crate::footer::{FOOTER_BYTES, Footer};
use crate::frame::{self, Handle};
use crate::limits::BLOCK_TARGET_BYTES_DEFAULT;
use crate::reader::{Sstable, Tail};
use crate::writer::{SstableWriter, WriteOptions};
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::AppendFile;
use stele_types::FileId;
use stele_types::schema::Compression;

/// Bytes per write.
const WRITE_BYTES: usize = 1 << 20;

/// A file that is written block by block.
struct Target<'a> {
    file: &'a mut dyn AppendFile,
    id: FileId,
    /// Where the next block begins.
    at: u64,
    queued: Vec<Bytes>,
    queued_bytes: usize,
}

impl Target<'_> {
    async fn add(&mut self, bytes: Bytes) -> Result<()> {
        self.at += bytes.len() as u64;
        self.queued_bytes += bytes.len();
        self.queued.push(bytes);
        if self.queued_bytes >= WRITE_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        self.file.append(&self.queued).await?;
        self.queued.clear();
        self.queued_bytes = 0;
        Ok(())
    }
}

impl Sstable {
    /// Copies the file to an empty one that is written under `id`. Fails with `Corruption` if any block is damaged. The caller
    /// syncs the copy, or deletes it after an error.
    pub async fn copy_as(self: &Arc<Self>, id: FileId, to: &mut dyn AppendFile) -> Result<()> {
        assert!(to.is_empty(), "a copy is written from the start of its file");
        let mut target = Target {
            file: to,
            id,
            at: 0,
            queued: Vec::new(),
            queued_bytes: 0,
        };
        let mut window = Window::default();
        let mut others = self.other_blocks().await?;
        for top_at in 0..self.top().len() {
            let index = self.index_block(top_at).await?;
            others.extend(self.top().child(top_at));
            for at in 0..index.len() {
                let handle = self.child(top_at, &index, at)?;
                self.copy_block(handle, &mut window, &mut target).await?;
            }
        }
        others.sort_by_key(|handle| handle.offset);
        for handle in others {
            self.copy_block(handle, &mut window, &mut target).await?;
        }
        let tail = Tail::read(self.file()).await?;
        let footer = footer_under(&tail, id);
        if target.at + footer.len() as u64 != self.file_bytes() {
            return Err(self.gap(target.at));
        }
        target.add(footer).await?;
        target.flush().await?;
        assert_eq!(target.file.len(), self.file_bytes(), "a copy is as long as its source");
        assert_eq!(target.at, target.file.len(), "all blocks of a copy are written");
        Ok(())
    }

    /// The blocks behind the data blocks, but for index blocks of the first level.
    async fn other_blocks(&self) -> Result<Vec<Handle>> {
        let footer = Tail::read(self.file()).await?.footer;
        let mut others = vec![footer.top_index, footer.properties];
        others.extend(footer.filter);
        others.extend(self.properties().dictionary());
        Ok(others)
    }

    async fn copy_block(&self, handle: Handle, window: &mut Window, target: &mut Target<'_>) -> Result<()> {
        if handle.offset != target.at {
            return Err(self.gap(target.at));
        }
        let framed = window.framed(self, handle).await?;
        self.check_framed(handle, &framed)?;
        assert_eq!(
            framed.len(),
            handle.framed_len(),
            "a framed block is as long as its handle says"
        );
        let framed = match target.id == self.file_id() {
            true => framed,
            false => frame::renumber(target.id, handle.offset, &framed),
        };
        target.add(framed).await
    }

    fn gap(&self, at: u64) -> SstableError {
        SstableError::corruption(self.path(), at, "the blocks of the file do not follow each other")
    }

    /// Options with which a file like this one is written under another number.
    pub fn options_of_copy(&self, id: FileId) -> WriteOptions {
        let said = self.properties();
        let compression = u8::try_from(said.compression).ok().and_then(Compression::from_byte);
        WriteOptions {
            compression: compression.unwrap_or(Compression::Lz4),
            zstd_level: u8::try_from(said.zstd_level.max(1)).unwrap_or(1),
            dictionary_bytes: said.dictionary_bytes as usize,
            block_bytes: match said.block_bytes {
                0 => BLOCK_TARGET_BYTES_DEFAULT,
                bytes => bytes as usize,
            },
            filter_bits_per_row: said.filter_bits_per_row,
            created_by: said.created_by.clone(),
            created_micros: said.created_micros,
            ..WriteOptions::new(id)
        }
    }

    /// Writes all cells to another file. `value_of` gets the key and the value of each, and returns another value for those
    /// that change. Fails with `Corruption` if any block is damaged.
    pub async fn rewrite(
        self: &Arc<Self>,
        writer: &mut SstableWriter,
        mut value_of: impl FnMut(&[u8], &[u8]) -> Option<Vec<u8>> + Send,
    ) -> Result<()> {
        let mut window = Window::default();
        for top_at in 0..self.top().len() {
            let index = self.index_block(top_at).await?;
            for at in 0..index.len() {
                let handle = self.child(top_at, &index, at)?;
                let content = window.block(self, handle).await?;
                self.rewrite_block((handle, content), writer, &mut value_of)?;
                if writer.wants_flush() {
                    writer.flush().await?;
                }
            }
        }
        Ok(())
    }

    fn rewrite_block(
        &self,
        (handle, content): (Handle, Bytes),
        writer: &mut SstableWriter,
        value_of: &mut impl FnMut(&[u8], &[u8]) -> Option<Vec<u8>>,
    ) -> Result<()> {
        let mut cells = BlockCursor::default();
        cells.set_block(self.parse(handle, content)?);
        let mut more = cells.seek_first();
        while more.map_err(|e| self.corruption_at(handle, &e))? {
            match value_of(cells.key(), cells.value()) {
                None => writer.add(cells.key(), cells.value())?,
                Some(changed) => writer.add(cells.key(), &changed)?,
            }
            more = cells.advance();
        }
        Ok(())
    }
}

/// The footer of the file under another number.
fn footer_under(tail: &Tail, id: FileId) -> Bytes {
    let footer = Footer {
        file: id,
        ..tail.footer
    };
    let encoded = footer.encode();
    assert_eq!(encoded.len(), FOOTER_BYTES, "a footer has one length");
    Bytes::from(encoded)
}
