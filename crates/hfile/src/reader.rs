//! An open file.

use crate::block::{BlockKind, HEADER_BYTES, Header};
use crate::encoding::BlockLayout;
use crate::error::{Decoded, HFileError, Malformed, Result};
use crate::index::{self, IndexEntry, LEVELS_MAX};
use crate::info::FileInfo;
use crate::key::row_of;
use crate::memory::BlockMemory;
use crate::plain::Layout;
use crate::trailer::{Trailer, tail_of};
use bytes::Bytes;
use std::sync::Arc;
use stele_memory::Reservation;
use stele_storage::ReadFile;

/// A file info has a dozen entries. Its decoded form takes far more memory than its bytes if they are many and empty.
const INFO_BYTES_MAX: usize = 256 << 10;

/// An open file: its trailer, the root of its index, and its file info.
pub struct HFile {
    file: Arc<dyn ReadFile>,
    /// For blocks that are read.
    memory: BlockMemory,
    trailer: Trailer,
    info: FileInfo,
    root: Vec<IndexEntry>,
    /// For the last two.
    _reservation: Reservation,
}

impl HFile {
    /// Opens a file. Its blocks take memory of `memory` when they are read; the root of the index and the file info as long
    /// as it is open.
    pub async fn open(file: Arc<dyn ReadFile>, memory: &BlockMemory) -> Result<Arc<HFile>> {
        let path = file.path().to_owned();
        let tail = tail_of(file.len());
        let bytes = file.read_at(tail.start, (tail.end - tail.start) as usize).await?;
        let trailer = Trailer::decode(&path, &bytes, file.len())?;
        let mut reader = BlockReader {
            file: &*file,
            trailer: &trailer,
            memory,
            reservation: memory.empty(),
        };
        let (content, after_root) = reader.read(trailer.open_offset, BlockKind::RootIndex).await?;
        let entries = trailer.index_entries;
        reader.take(index::root_memory(&content, entries)).await?;
        let root = index::root(&content, entries).map_err(|malformed| malformed.at(&path, trailer.open_offset))?;
        // That of meta blocks.
        let (_, after_meta) = reader.read(after_root, BlockKind::RootIndex).await?;
        let (content, _) = reader.read(after_meta, BlockKind::FileInfo).await?;
        if content.len() > INFO_BYTES_MAX {
            let malformed = Malformed(format!("a file info of {} bytes", content.len()).into());
            return Err(malformed.at(&path, after_meta));
        }
        let info = FileInfo::decode(&content).map_err(|malformed| malformed.at(&path, after_meta))?;
        let reservation = reader.reservation;
        Ok(Arc::new(HFile {
            file,
            memory: memory.clone(),
            trailer,
            info,
            root,
            _reservation: reservation,
        }))
    }

    /// Cells of the file.
    pub fn entries(&self) -> u64 {
        self.trailer.entries
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &str {
        self.file.path()
    }

    /// The row of its last cell; `None` if it has no cell.
    pub fn last_row(&self) -> Result<Option<&[u8]>> {
        if self.trailer.data_blocks.is_none() {
            return Ok(None);
        }
        let row = match self.info.last_key() {
            Some(key) => row_of(key),
            None => Malformed::new("cells, but no last key"),
        };
        row.map(Some).map_err(|malformed| self.corrupt(malformed))
    }

    pub(crate) fn corrupt(&self, malformed: Malformed) -> HFileError {
        malformed.at(self.path(), self.trailer.offset)
    }

    pub(crate) fn file(&self) -> &dyn ReadFile {
        &*self.file
    }

    pub(crate) fn memory(&self) -> &BlockMemory {
        &self.memory
    }

    pub(crate) fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    pub(crate) fn info(&self) -> &FileInfo {
        &self.info
    }

    pub(crate) fn layout(&self) -> BlockLayout {
        BlockLayout {
            cells: Layout {
                tags: self.info.has_tags(),
                sequences: self.info.has_sequences(),
            },
            compressed_tags: self.info.has_compressed_tags(),
        }
    }

    /// Data blocks that the index names, as far as `most` of them.
    pub(crate) async fn index(&self, most: usize) -> Result<Vec<IndexEntry>> {
        let levels = self.trailer.index_levels;
        if levels > LEVELS_MAX {
            return Err(self.corrupt(Malformed(format!("an index of {levels} levels").into())));
        }
        let mut level: Vec<IndexEntry> = self.root.iter().take(most).cloned().collect();
        for depth in 1..levels {
            let kind = match depth + 1 == levels {
                true => BlockKind::LeafIndex,
                false => BlockKind::IntermediateIndex,
            };
            let mut below = Vec::new();
            for entry in level {
                let mut reader = BlockReader {
                    file: &*self.file,
                    trailer: &self.trailer,
                    memory: &self.memory,
                    reservation: self.memory.empty(),
                };
                let (content, _) = reader.read(entry.offset, kind).await?;
                let entries = index::inner(&content, most - below.len());
                below.extend(entries.map_err(|malformed| malformed.at(self.path(), entry.offset))?);
                if below.len() >= most {
                    break;
                }
            }
            level = below;
        }
        Ok(level)
    }
}

/// Reads single blocks.
struct BlockReader<'a> {
    file: &'a dyn ReadFile,
    trailer: &'a Trailer,
    memory: &'a BlockMemory,
    /// For all blocks that it has read.
    reservation: Reservation,
}

impl BlockReader<'_> {
    /// The content of the block at `offset`, and where it ends.
    async fn read(&mut self, offset: u64, kind: BlockKind) -> Result<(Bytes, u64)> {
        let file = self.file;
        let path = file.path();
        let at = |malformed: Malformed| malformed.at(path, offset);
        self.check_place(offset, HEADER_BYTES).map_err(at)?;
        let header = self.file.read_at(offset, HEADER_BYTES).await?;
        let header = Header::decode(&header).map_err(at)?;
        if header.kind != kind {
            let detail = format!(
                "a block of kind {:?} where one of kind {kind:?} is expected",
                header.kind
            );
            return Err(at(Malformed(detail.into())));
        }
        self.check_place(offset, header.block_bytes()).map_err(at)?;
        self.take(header.block_bytes() + header.content_bytes).await?;
        let block = self.file.read_at(offset, header.block_bytes()).await?;
        let content = header.content(&block, self.trailer.codec).map_err(at)?;
        Ok((content, offset + header.block_bytes() as u64))
    }

    /// Takes memory.
    async fn take(&mut self, bytes: usize) -> Result<()> {
        let (memory, file) = (self.memory, self.file);
        memory.grow(&mut self.reservation, file.path(), bytes).await
    }

    fn check_place(&self, offset: u64, bytes: usize) -> Decoded<()> {
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.trailer.offset => Ok(()),
            _ => Malformed::new("a block behind the end of all blocks"),
        }
    }
}
