//! The cells of one file, as mutations of the table.
//!
//! An open file takes a descriptor, the root of its index, a piece and a block. So the file of a load that waits for its
//! turn is not open: see [`Later`].

use crate::failure::Failure;
use crate::mutations::Converter;
use crate::selection::FamilySearch;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult, SortedCells};
use stele_hfile::{BlockMemory, CellBlock, HFile, HFileError, Scan};
use stele_storage::foreign::ForeignFiles;
use stele_types::{ErrorKind, Mutation, TableSchema, Timestamp};
use stele_wire::tags;

/// Cells that are converted in one step: some of the usual blocks have as many.
const CELLS_AT_ONCE: usize = 256;

/// The cells of a file.
pub(super) struct HFileCells {
    scan: Scan,
    schema: Arc<TableSchema>,
    search: FamilySearch,
    /// Given out already, but for the cells that are left in it: its memory is that of the cells.
    block: Option<CellBlock>,
}

/// The cells of a file that is opened when they are wanted.
pub(super) struct Later {
    pub(super) files: ForeignFiles,
    pub(super) memory: BlockMemory,
    pub(super) url: String,
    /// Bytes that are read in one piece.
    pub(super) piece_bytes: usize,
    pub(super) schema: Arc<TableSchema>,
    /// The cells, once they were wanted.
    pub(super) opened: Option<HFileCells>,
}

impl HFileCells {
    /// Of an open file, which is read in pieces of about this many bytes.
    pub(super) fn new(file: &Arc<HFile>, piece_bytes: usize, schema: Arc<TableSchema>) -> Self {
        HFileCells {
            scan: file.scan(piece_bytes),
            schema,
            search: FamilySearch::default(),
            block: None,
        }
    }

    /// The row of the first cell; `None` if there is none.
    pub(super) async fn first_row(mut self) -> ServiceResult<Option<Bytes>> {
        let first = self.read().await?;
        // A copy: the row is a slice of a block, of which the memory is given back.
        let first = first.iter().flatten().next();
        Ok(first.map(|(row, _)| Bytes::copy_from_slice(row)))
    }

    async fn read(&mut self) -> ServiceResult<Option<Vec<(Bytes, Mutation)>>> {
        loop {
            if let Some(block) = &mut self.block {
                let cells = convert(&self.schema, &mut self.search, block)?;
                if !cells.is_empty() {
                    return Ok(Some(cells));
                }
            }
            self.block = self.scan.next_block(self.block.take()).await.map_err(failed)?;
            if self.block.is_none() {
                return Ok(None);
            }
        }
    }
}

#[async_trait]
impl SortedCells for Later {
    async fn next(&mut self) -> ServiceResult<Option<Vec<(Bytes, Mutation)>>> {
        if let Some(cells) = &mut self.opened {
            return cells.read().await;
        }
        let opened = self.files.open(&self.url).await;
        let file = opened.map_err(|error| ServiceError::new(error.kind(), error.to_string()))?;
        let file = HFile::open(file, &self.memory).await.map_err(failed)?;
        let cells = HFileCells::new(&file, self.piece_bytes, self.schema.clone());
        self.opened.insert(cells).read().await
    }
}

/// The next cells of a block; none at its end.
fn convert(
    schema: &TableSchema,
    search: &mut FamilySearch,
    block: &mut CellBlock,
) -> ServiceResult<Vec<(Bytes, Mutation)>> {
    let converter = Converter {
        schema,
        nonce_group: None,
        // Each cell has its own time.
        now: Timestamp::MIN,
        memory: None,
    };
    let mut cells = Vec::new();
    while cells.len() < CELLS_AT_ONCE {
        let Some((cell, bytes)) = block.next_cell().map_err(failed)? else {
            break;
        };
        let tags = tags::read(bytes).map_err(|error| refused(error.into()))?;
        if let Some(kind) = tags.foreign {
            return Err(refused(Failure::not_served(format!(
                "a cell with a tag of type {kind}"
            ))));
        }
        cells.push(converter.loaded(cell, tags.lifetime_ms, search).map_err(refused)?);
    }
    Ok(cells)
}

/// The error of a file for a caller.
pub(super) fn failed(error: HFileError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}

/// The error of a cell that cannot be loaded.
fn refused(failure: Failure) -> ServiceError {
    ServiceError::new(ErrorKind::InvalidArgument, failure.message.into_owned())
}
