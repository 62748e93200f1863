//! Reads a piece of log back from an archive, some bytes at a time.
//!
//! Invariant: the bytes of a piece are known to be those that were archived only when all of them were read. Groups of log have checksums of their own.

use super::format::Part;
use super::store::{Archive, damaged};
use crate::error::{BackupError, Result};
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::{ReadFile, StorageError};

/// A piece that is being read.
pub struct PieceReader {
    file: Arc<dyn ReadFile>,
    path: String,
    at: u64,
    len: u64,
    crc: u32,
    found: crc32fast::Hasher,
}

impl Archive {
    /// Opens a piece, of which about `first` bytes are read first.
    pub async fn open_piece(&self, part: &Part, index: usize, first: usize) -> Result<PieceReader> {
        let path = part.piece_path(index);
        let Some(piece) = part.pieces.get(index) else {
            return Err(damaged(&path, "the part has no such piece"));
        };
        let first = 0..piece.len.min(first as u64);
        let file = match self.storage().open_known(&path, piece.len, first).await {
            Err(StorageError::NotFound { .. }) => return Err(damaged(&path, "the piece is missing")),
            file => file.map_err(BackupError::Archive)?,
        };
        if file.len() != piece.len {
            return Err(changed(&path));
        }
        Ok(PieceReader {
            file,
            path,
            at: 0,
            len: piece.len,
            crc: piece.crc,
            found: crc32fast::Hasher::new(),
        })
    }
}

impl PieceReader {
    /// Its path in the archive.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.len - self.at
    }

    /// The next bytes, at most this many. Fails at the end of the piece if its checksum is not the one of the part.
    pub async fn next(&mut self, bytes_max: usize) -> Result<Bytes> {
        let len = self.left().min(bytes_max as u64);
        let bytes = self.file.read_at(self.at, len as usize).await;
        let bytes = bytes.map_err(BackupError::Archive)?;
        self.found.update(&bytes);
        self.at += len;
        match self.left() > 0 || self.found.clone().finalize() == self.crc {
            true => Ok(bytes),
            false => Err(changed(&self.path)),
        }
    }
}

fn changed(path: &str) -> BackupError {
    damaged(path, "its bytes are not those that were archived")
}
