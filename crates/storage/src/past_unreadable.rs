//! Reads on past what the device cannot read: for repairs and rescues, never for serving.
//!
//! What cannot be read is given as [`FILLER`] and remembered. No checksum takes it for what was written, so decoders find
//! damage there, and what lies around it can be saved.

use crate::{ReadFile, Result, Storage, StorageError, check_range};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Stands for bytes that cannot be read. Not zero: logs take zeros for the end of what was written.
pub const FILLER: u8 = 0xee;

/// Bytes that are given up at once: a page, less than which no file system reads.
const SECTOR_BYTES: u64 = 4 << 10;

/// A file read past what the device cannot read.
pub struct PastUnreadable {
    file: Arc<dyn ReadFile>,
    /// What could not be read so far: sorted, apart.
    unreadable: Mutex<Vec<Range<u64>>>,
}

/// Opens a file for this.
///
/// # Errors
/// Those of [`Storage::open`]: a file that cannot be opened at all has nothing to read past.
pub async fn open(storage: &dyn Storage, path: &str) -> Result<Arc<PastUnreadable>> {
    Ok(Arc::new(PastUnreadable {
        file: storage.open(path).await?,
        unreadable: Mutex::default(),
    }))
}

impl PastUnreadable {
    /// Tries all of the file; the whole of it with [`FILLER`] where it cannot be read.
    pub async fn read_all(&self) -> Result<Bytes> {
        self.read_at(0, usize::try_from(self.len()).unwrap_or(usize::MAX)).await
    }

    /// What could not be read in the reads so far, sorted.
    pub fn unreadable(&self) -> Vec<Range<u64>> {
        self.unreadable.lock().clone()
    }

    /// Bytes that could not be read in the reads so far.
    pub fn unreadable_bytes(&self) -> u64 {
        self.unreadable.lock().iter().map(|part| part.end - part.start).sum()
    }

    fn note(&self, part: Range<u64>) {
        let mut parts = self.unreadable.lock();
        parts.push(part);
        parts.sort_by_key(|part| part.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(parts.len());
        for part in parts.drain(..) {
            match merged.last_mut().filter(|last| part.start <= last.end) {
                Some(last) => last.end = last.end.max(part.end),
                None => merged.push(part),
            }
        }
        *parts = merged;
    }

    /// The same bytes sector by sector.
    async fn piecewise(&self, range: Range<u64>) -> Result<Bytes> {
        let mut content = BytesMut::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at / SECTOR_BYTES + 1).saturating_mul(SECTOR_BYTES).min(range.end);
            let len = usize::try_from(end - at).unwrap_or(usize::MAX);
            match self.file.read_at(at, len).await {
                Ok(bytes) => content.extend_from_slice(&bytes),
                Err(StorageError::Unreadable { .. }) => {
                    self.note(at..end);
                    content.resize(content.len() + len, FILLER);
                }
                Err(error) => return Err(error),
            }
            at = end;
        }
        Ok(content.freeze())
    }
}

#[async_trait]
impl ReadFile for PastUnreadable {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        match self.file.read_at(offset, len).await {
            Err(StorageError::Unreadable { .. }) => {
                check_range(self.path(), offset, len, self.len())?;
                self.piecewise(offset..offset + len as u64).await
            }
            other => other,
        }
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        match self.file.try_read_at(offset, len) {
            Some(Err(StorageError::Unreadable { .. })) => None,
            other => other,
        }
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStorage;
    use stele_types::ErrorKind;

    #[tokio::test]
    async fn what_cannot_be_read_is_filled_and_remembered() {
        let storage = MemoryStorage::new();
        let content: Vec<u8> = (0..40_000u32).map(|at| (at % 200) as u8).collect();
        storage.put_if_absent("f", Bytes::from(content.clone())).await.unwrap();
        storage.make_unreadable("f", 10_000..10_001);
        storage.make_unreadable("f", 12_288..12_289);
        storage.make_unreadable("f", 39_999..40_000);
        let plain = storage.open("f").await.unwrap();
        let error = plain.read_at(9_000, 2_000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("f: the device cannot read"), "{error}");
        assert_eq!(plain.read_at(0, 10_000).await.unwrap(), content[..10_000]);

        let file = open(&*storage, "f").await.unwrap();
        assert_eq!(file.read_at(0, 8_000).await.unwrap(), content[..8_000]);
        assert_eq!(file.unreadable_bytes(), 0, "nothing was met yet");
        // Twice, in parts that overlap.
        file.read_at(9_000, 2_000).await.unwrap();
        let read = file.read_all().await.unwrap();
        let expected = (0u32..).zip(&content).map(|(at, byte)| match at {
            8_192..16_384 | 36_864.. => FILLER,
            _ => *byte,
        });
        let expected: Vec<u8> = expected.collect();
        assert!(read == expected, "other bytes");
        assert_eq!(file.unreadable(), [8_192..16_384, 36_864..40_000]);
        assert_eq!(file.unreadable_bytes(), 8_192 + 3_136);
        let past = file.read_at(39_000, 2_000).await.unwrap_err();
        assert!(matches!(past, StorageError::OutOfBounds { .. }), "{past}");
    }
}
