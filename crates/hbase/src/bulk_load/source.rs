//! The cells of one file, as mutations of the table.

use crate::failure::Failure;
use crate::mutations::Converter;
use crate::selection::FamilySearch;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult, SortedCells};
use stele_hfile::{CellBlock, HFile, HFileError, Scan};
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
    /// Read to learn the first row.
    first: Option<Vec<(Bytes, Mutation)>>,
}

impl HFileCells {
    /// Of an open file, which is read in pieces of about this many bytes.
    pub(super) fn new(file: &Arc<HFile>, piece_bytes: usize, schema: Arc<TableSchema>) -> Self {
        HFileCells {
            scan: file.scan(piece_bytes),
            schema,
            search: FamilySearch::default(),
            block: None,
            first: None,
        }
    }

    /// The first row; `None` if there is none. Before the first cells are taken.
    pub(super) async fn first_row(&mut self) -> ServiceResult<Option<Bytes>> {
        self.first = self.read().await?;
        let cells = self.first.iter().flatten();
        Ok(cells.map(|(row, _)| row.clone()).next())
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
impl SortedCells for HFileCells {
    async fn next(&mut self) -> ServiceResult<Option<Vec<(Bytes, Mutation)>>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.read().await,
        }
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
