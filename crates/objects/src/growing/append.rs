//! Writing: appends are buffered, and a sync is one put.

use super::join::Joiner;
use super::parts::part_key;
use crate::shared::Shared;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::{AppendFile, Result, StorageError};

pub(crate) struct GrowingAppend {
    shared: Arc<Shared>,
    path: String,
    /// Number of the next part. `None` while a put is under way, so that after a failure, or when the future was
    /// dropped, no part follows.
    next: Option<u32>,
    /// Appended, but not put yet.
    pending: Vec<Bytes>,
    pending_bytes: usize,
    /// Whether bytes since the last sync are in a part already.
    is_begun: bool,
    len: u64,
    joiner: Joiner,
}

/// Bytes that an append leaves in memory at most. A group of the log has a few MiB, and its sync follows immediately.
const PENDING_BYTES_MAX: usize = 16 << 20;

impl GrowingAppend {
    /// The writer of a file that has part 0 and nothing else.
    pub(super) fn new(shared: &Arc<Shared>, path: &str) -> GrowingAppend {
        GrowingAppend {
            shared: Arc::clone(shared),
            path: path.to_owned(),
            next: Some(1),
            pending: Vec::new(),
            pending_bytes: 0,
            is_begun: false,
            len: 0,
            joiner: Joiner::new(shared, path),
        }
    }

    fn refused(&self, operation: &'static str) -> StorageError {
        StorageError::Io {
            path: self.path.clone(),
            operation,
            message: "refused, because an earlier write of this file failed or was abandoned".to_owned(),
        }
    }

    /// Puts the pending bytes as the next part.
    async fn put(&mut self, operation: &'static str) -> Result<()> {
        let number = self.next.take().ok_or_else(|| self.refused(operation))?;
        assert!(number > 0, "part 0 has no content");
        assert!(self.pending_bytes > 0, "an empty part would seal the file");
        debug_assert_eq!(
            self.pending.iter().map(Bytes::len).sum::<usize>(),
            self.pending_bytes,
            "the buffered bytes are counted"
        );
        match self
            .shared
            .store
            .put_new(&part_key(&self.path, number), &self.pending)
            .await
        {
            Ok(()) => {}
            // Only a new owner creates parts of our files.
            Err(StorageError::AlreadyExists { .. }) => {
                return Err(self
                    .shared
                    .fence
                    .trip(&self.path, "a newer owner, which sealed the file".to_owned()));
            }
            // Readers see the bytes that are in a part.
            Err(StorageError::WrongTime { path, message, .. }) if self.is_begun => {
                return Err(StorageError::Io {
                    path,
                    operation,
                    message,
                });
            }
            Err(error) => return Err(error),
        }
        self.joiner.add(number, &self.pending, self.pending_bytes);
        self.pending.clear();
        self.pending_bytes = 0;
        self.next = number.checked_add(1);
        Ok(())
    }
}

#[async_trait]
impl AppendFile for GrowingAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.shared.fence.check(&self.path)?;
        if self.next.is_none() {
            return Err(self.refused("append"));
        }
        let bytes: usize = slices.iter().map(Bytes::len).sum();
        self.pending
            .extend(slices.iter().filter(|slice| !slice.is_empty()).cloned());
        self.pending_bytes += bytes;
        if self.pending_bytes > PENDING_BYTES_MAX {
            self.put("append").await?;
            assert_eq!(self.pending_bytes, 0, "a put leaves nothing behind");
            self.is_begun = true;
        }
        self.len += bytes as u64;
        assert!(
            self.pending_bytes as u64 <= self.len,
            "buffered bytes are part of the file"
        );
        assert!(
            self.pending_bytes <= PENDING_BYTES_MAX,
            "an append buffers a bounded number of bytes"
        );
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        self.shared.fence.check(&self.path)?;
        if self.next.is_none() {
            return Err(self.refused("sync"));
        }
        if self.pending_bytes > 0 {
            self.put("sync").await?;
        }
        self.is_begun = false;
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reading_cost(&self) -> u64 {
        let parts = self.next.map_or(0, |next| u64::from(next) - 1);
        let objects = parts - self.joiner.replaced().min(parts);
        let cost = self.len.max(objects * self.shared.part_cost());
        debug_assert!(cost >= self.len, "a reading transfers all bytes");
        cost
    }
}
