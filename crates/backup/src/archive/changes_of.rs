//! Reads the changes of tables in a part, piece by piece.
//!
//! Each piece has memory of the pool while it is used.

use super::format::{CHANGES_BYTES, Part, TableChange};
use super::store::Archive;
use crate::error::{BackupError, Result};
use std::time::Duration;
use stele_env::Env;
use stele_memory::{Consumer, Pool, Reservation};

/// Bytes in memory for each byte of a file: its bytes, and the decoded changes with their lists of tablets.
const MEMORY_FACTOR: usize = 3;
/// Longest wait for memory: another restore, and the archiver, hold theirs for one request.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The memory for changes that are read.
pub(crate) struct ChangesMemory {
    env: Env,
    consumer: Consumer,
}

/// Some changes of a part, in their order, with their memory.
pub(crate) struct SomeChanges {
    pub(crate) changes: Vec<TableChange>,
    _memory: Reservation,
}

/// The changes of a part that are still to be read.
pub(crate) struct ChangesOf<'a> {
    archive: &'a Archive,
    memory: &'a ChangesMemory,
    part: &'a Part,
    next: usize,
}

impl ChangesMemory {
    pub(crate) fn new(env: Env, pool: &Pool) -> ChangesMemory {
        ChangesMemory {
            env,
            consumer: pool.of(stele_memory::Part::Archive),
        }
    }

    /// Waits for the memory of a file. A file that needs all of it gets all of it.
    async fn reserve(&self, len: usize) -> Result<Reservation> {
        let bytes = len.saturating_mul(MEMORY_FACTOR);
        let reserved = self.consumer.reserve(&self.env, bytes, WAIT_MAX).await;
        reserved.map_err(|_| {
            let message = format!(
                "there is no memory for {bytes} bytes of archived changes of tables: give the order again, or start the server with more memory"
            );
            BackupError::TooMuch(message)
        })
    }
}

impl<'a> ChangesOf<'a> {
    pub(crate) fn new(archive: &'a Archive, memory: &'a ChangesMemory, part: &'a Part) -> Self {
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
        let memory = self.memory.reserve(usize::try_from(len).unwrap_or(usize::MAX)).await?;
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
