//! Reads the changes of tables in a part, piece by piece.
//!
//! Each piece has memory of the pool while it is used.

use super::format::{CHANGES_BYTES, Part, TableChange};
use super::memory::RestoreMemory;
use super::store::Archive;
use crate::error::Result;
use stele_memory::Reservation;

/// Some changes of a part, in their order, with their memory.
pub(crate) struct SomeChanges {
    pub(crate) changes: Vec<TableChange>,
    _memory: Reservation,
}

/// The changes of a part that are still to be read.
pub(crate) struct ChangesOf<'a> {
    archive: &'a Archive,
    memory: &'a RestoreMemory,
    part: &'a Part,
    next: usize,
}

impl<'a> ChangesOf<'a> {
    pub(crate) fn new(archive: &'a Archive, memory: &'a RestoreMemory, part: &'a Part) -> Self {
        ChangesOf {
            archive,
            memory,
            part,
            next: 0,
        }
    }

    /// The next changes; `None` if there are no more.
    pub(crate) async fn next(&mut self) -> Result<Option<SomeChanges>> {
        let index = self.next;
        self.next += 1;
        let piece = self.part.change_pieces.get(index);
        if piece.is_none() && (index > 0 || self.part.changes.is_empty()) {
            return Ok(None);
        }
        let len = piece.map_or(CHANGES_BYTES as u64, |piece| piece.len);
        let memory = self.memory.of_changes(usize::try_from(len).unwrap_or(usize::MAX));
        let changes = match piece {
            Some(_) => self.archive.changes_piece(self.part, index).await?.changes,
            None => self.part.changes.clone(),
        };
        Ok(Some(SomeChanges {
            changes,
            _memory: memory,
        }))
    }
}
