//! An encrypted file being read.

use crate::cipher::NONCE_BYTES;
use crate::header::HEADER_BYTES;
use crate::keyring::RingKey;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::{ReadFile, Result, StorageError, check_range};

const HEADER: u64 = HEADER_BYTES as u64;

/// Decrypts bytes that are read.
pub(crate) struct EncryptedRead {
    below: Arc<dyn ReadFile>,
    key: Arc<RingKey>,
    nonce: [u8; NONCE_BYTES],
    /// Bytes of content.
    len: u64,
}

impl EncryptedRead {
    /// Of a file with a header.
    pub(crate) fn new(below: Arc<dyn ReadFile>, key: Arc<RingKey>, nonce: [u8; NONCE_BYTES]) -> Self {
        let len = below.len().saturating_sub(HEADER);
        EncryptedRead { below, key, nonce, len }
    }

    fn decrypted(&self, offset: u64, bytes: Bytes) -> Bytes {
        // Bytes of a read from the disk belong to nobody else; those of a cache are copied.
        match bytes.try_into_mut() {
            Ok(mut own) => {
                self.key.content.apply(&self.nonce, offset, &mut own);
                own.freeze()
            }
            Err(shared) => {
                let mut own = shared.to_vec();
                self.key.content.apply(&self.nonce, offset, &mut own);
                own.into()
            }
        }
    }

    /// An error of the file below, with offsets in the content.
    fn in_content(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::OutOfBounds {
                path,
                offset,
                wanted,
                len,
            } => StorageError::OutOfBounds {
                path,
                offset: offset.saturating_sub(HEADER),
                wanted,
                len: len.saturating_sub(HEADER),
            },
            StorageError::Unreadable { path, offset, message } => StorageError::Unreadable {
                path,
                offset: offset.saturating_sub(HEADER),
                message,
            },
            other => other,
        }
    }
}

#[async_trait]
impl ReadFile for EncryptedRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_range(self.path(), offset, len, self.len)?;
        // The file below may end before the place of the content.
        if len == 0 {
            return Ok(Bytes::new());
        }
        let read = self.below.read_at(offset + HEADER, len).await;
        let bytes = read.map_err(|error| self.in_content(error))?;
        Ok(self.decrypted(offset, bytes))
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        if let Err(error) = check_range(self.path(), offset, len, self.len) {
            return Some(Err(error));
        }
        if len == 0 {
            return Some(Ok(Bytes::new()));
        }
        let read = self.below.try_read_at(offset + HEADER, len)?;
        Some(match read {
            Ok(bytes) => Ok(self.decrypted(offset, bytes)),
            Err(error) => Err(self.in_content(error)),
        })
    }

    fn try_read_into(&self, offset: u64, bytes: &mut [u8]) -> Option<Result<()>> {
        if let Err(error) = check_range(self.path(), offset, bytes.len(), self.len) {
            return Some(Err(error));
        }
        if bytes.is_empty() {
            return Some(Ok(()));
        }
        let read = self.below.try_read_into(offset + HEADER, bytes)?;
        if read.is_ok() {
            self.key.content.apply(&self.nonce, offset, bytes);
        }
        Some(read.map_err(|error| self.in_content(error)))
    }

    fn reads_from_memory(&self) -> bool {
        self.below.reads_from_memory()
    }

    fn around(&self, offset: u64) -> Option<(u64, Bytes)> {
        let (start, bytes) = self.below.around(offset.checked_add(HEADER)?)?;
        // The first chunk has the header, too.
        let skipped = HEADER.saturating_sub(start);
        let bytes = bytes.slice(usize::try_from(skipped).ok()?.min(bytes.len())..);
        let start = (start + skipped).saturating_sub(HEADER);
        Some((start, self.decrypted(start, bytes)))
    }

    fn request_end(&self, offset: u64) -> Option<u64> {
        let end = self.below.request_end(offset.checked_add(HEADER)?)?;
        Some(end.saturating_sub(HEADER))
    }

    fn before_content(&self) -> u64 {
        self.below.before_content() + HEADER
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reading_cost(&self) -> u64 {
        self.below.reading_cost()
    }

    fn path(&self) -> &str {
        self.below.path()
    }
}
