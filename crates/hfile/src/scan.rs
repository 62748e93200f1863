//! Reads all cells of a file in order.
//!
//! Data blocks follow each other, with blocks of the index and of bloom filters in between. The scan walks over all of
//! them by their headers, from the first data block to the last, and reads the file in large pieces.

use crate::block::{BlockKind, HEADER_BYTES, Header};
use crate::encoding::EncodedBlock;
use crate::error::{Decoded, Malformed, Result};
use crate::key::row_of;
use crate::plain::PlainCells;
use crate::reader::HFile;
use bytes::Bytes;
use std::ops::RangeInclusive;
use std::sync::Arc;
use stele_memory::Reservation;
use stele_wire::cell::Cell;

/// Bytes of the file that are read in one piece: a block of the usual size at least, and sixteen of them at most.
const PIECE_BYTES: RangeInclusive<usize> = 64 << 10..=1 << 20;

/// A reading of all cells, block by block.
pub struct Scan {
    file: Arc<HFile>,
    /// Where the next block begins.
    offset: u64,
    /// A part of the file, and where it begins. With its reservation, which cells outlive that are slices of it.
    piece: (u64, Bytes),
    piece_bytes: usize,
    piece_memory: Reservation,
    /// Cells so far.
    cells: u64,
    /// The row of the last one.
    last_row: Bytes,
    is_over: bool,
}

/// The cells of one block; each is slices of one piece of memory.
pub struct CellBlock {
    path: String,
    offset: u64,
    cells: PlainCells,
    read: u64,
    last_row: Bytes,
    /// For the block as long as its cells are in use. A caller that keeps cells longer keeps this, too.
    _memory: Reservation,
}

impl CellBlock {
    /// The next cell with its tags; `None` at the end of the block. Not an iterator: an error ends the block.
    pub fn next_cell(&mut self) -> Result<Option<(Cell, Bytes)>> {
        let cell = self.cells.next().transpose();
        let cell = cell.map_err(|malformed| malformed.at(&self.path, self.offset))?;
        if let Some((cell, _)) = &cell {
            self.read += 1;
            self.last_row.clone_from(&cell.row);
        }
        Ok(cell)
    }
}

impl HFile {
    /// A reading of all cells, which reads about this many bytes of the file in one piece.
    pub fn scan(self: &Arc<Self>, piece_bytes: usize) -> Scan {
        Scan::new(Arc::clone(self), piece_bytes)
    }
}

impl Scan {
    /// Reads about this many bytes in one piece.
    pub(crate) fn new(file: Arc<HFile>, piece_bytes: usize) -> Self {
        Scan {
            offset: file.trailer().data_blocks.map_or(0, |(first, _)| first),
            piece: (0, Bytes::new()),
            piece_bytes: piece_bytes.clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end()),
            piece_memory: file.memory().empty(),
            cells: 0,
            last_row: Bytes::new(),
            is_over: false,
            file,
        }
    }

    /// The next block with cells, after all cells of the one before were read: it is given back as `before`. `None` at the
    /// end, when the number of cells and the last key are as the file says.
    pub async fn next_block(&mut self, before: Option<CellBlock>) -> Result<Option<CellBlock>> {
        if let Some(before) = before {
            self.cells += before.read;
            self.last_row = before.last_row;
        }
        while let Some((offset, header)) = self.next_header().await? {
            let is_data = matches!(header.kind, BlockKind::Data | BlockKind::EncodedData);
            if is_data {
                return self.read_block(offset, header).await.map(Some);
            }
        }
        if !std::mem::replace(&mut self.is_over, true) {
            self.check_end().map_err(|malformed| self.file.corrupt(malformed))?;
        }
        Ok(None)
    }

    /// The header of the next block and its place; `None` behind the last data block.
    async fn next_header(&mut self) -> Result<Option<(u64, Header)>> {
        let Some((_, last)) = self.file.trailer().data_blocks else {
            return Ok(None);
        };
        let offset = self.offset;
        if offset > last {
            return Ok(None);
        }
        let header = self.bytes(offset, HEADER_BYTES).await?;
        let header = Header::decode(&header).map_err(|malformed| malformed.at(self.file.path(), offset))?;
        self.offset = offset + header.block_bytes() as u64;
        Ok(Some((offset, header)))
    }

    async fn read_block(&mut self, offset: u64, header: Header) -> Result<CellBlock> {
        let file = Arc::clone(&self.file);
        let mut memory = file.memory().empty();
        let path = file.path();
        // The block is in the piece, or is read by itself.
        let bytes = header.block_bytes() + header.content_bytes;
        file.memory().grow(&mut memory, path, bytes).await?;
        let block = self.bytes(offset, header.block_bytes()).await?;
        let content = header.content(&block, self.file.trailer().codec);
        let content = content.map_err(|malformed| malformed.at(path, offset))?;
        let encoded = EncodedBlock::new(header.kind, &content).map_err(|malformed| malformed.at(path, offset))?;
        file.memory().grow(&mut memory, path, encoded.decoded_bytes).await?;
        let decoded = encoded.decode(self.file.layout());
        let (cells, layout) = decoded.map_err(|malformed| malformed.at(path, offset))?;
        Ok(CellBlock {
            path: path.to_owned(),
            offset,
            cells: PlainCells::new(cells, layout),
            read: 0,
            last_row: self.last_row.clone(),
            _memory: memory,
        })
    }

    /// Bytes of the file within the blocks.
    async fn bytes(&mut self, offset: u64, len: usize) -> Result<Bytes> {
        let end = self.file.trailer().offset;
        if offset.checked_add(len as u64).is_none_or(|of_range| of_range > end) {
            let malformed = Malformed("a block behind the end of all blocks".into());
            return Err(malformed.at(self.file.path(), offset));
        }
        let (from, piece) = &self.piece;
        let within = offset.checked_sub(*from).map(|at| at as usize);
        if let Some(at) = within.filter(|at| at.checked_add(len).is_some_and(|end| end <= piece.len())) {
            return Ok(piece.slice(at..at + len));
        }
        if len > self.piece_bytes {
            return Ok(self.file.file().read_at(offset, len).await?);
        }
        // Its memory is counted once: cells of the piece before are in use together with their own block's reservation.
        if self.piece_memory.counted() == 0 {
            let (memory, path) = (self.file.memory(), self.file.path());
            memory.grow(&mut self.piece_memory, path, self.piece_bytes).await?;
        }
        let bytes = (end - offset).min(self.piece_bytes as u64) as usize;
        let piece = self.file.file().read_at(offset, bytes).await?;
        let found = piece.slice(..len);
        self.piece = (offset, piece);
        Ok(found)
    }

    fn check_end(&self) -> Decoded<()> {
        let expected = self.file.entries();
        if self.cells != expected {
            return Malformed::new(format!("{} cells, the trailer says {expected}", self.cells));
        }
        let last = self.file.info().last_key().filter(|_| expected > 0);
        match last.map(|key| row_of(key)).transpose()? {
            Some(row) if *row != self.last_row => Malformed::new("the last cell is not that of the file info"),
            _ => Ok(()),
        }
    }
}
