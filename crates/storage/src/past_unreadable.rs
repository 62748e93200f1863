//! Reads files past unreadable bytes: for repairs and rescues, never for serving.
//!
//! Unreadable bytes are replaced by [`FILLER`] and recorded. They fail every checksum, so decoders find damage there,
//! and the data around it can be saved. A file that cannot be opened for such damage can be read as one of nothing else.

use crate::{ReadFile, Result, Storage, StorageError, check_range};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Replaces unreadable bytes. Not zero, because logs take zeros for their end.
pub const FILLER: u8 = 0xee;

/// Bytes that are given up together: a page, the smallest unit of a file system's reads.
const SECTOR_BYTES: u64 = 4 << 10;

/// A file read past its unreadable bytes.
pub struct PastUnreadable {
    file: Arc<dyn ReadFile>,
    /// The unreadable ranges so far: sorted, and apart.
    unreadable: Mutex<Vec<Range<u64>>>,
}

/// Opens a file for such reads.
///
/// # Errors
/// Those of [`Storage::open`]: a file that cannot be opened at all has nothing to read past.
pub async fn open(storage: &dyn Storage, path: &str) -> Result<Arc<PastUnreadable>> {
    Ok(Arc::new(PastUnreadable {
        file: storage.open(path).await?,
        unreadable: Mutex::default(),
    }))
}

/// The same, but a file that [`is_lost`] counts as one without a readable byte.
///
/// # Errors
/// Those of [`Storage::open`] and [`Storage::list`].
pub async fn open_or_lost(storage: &dyn Storage, path: &str) -> Result<Arc<PastUnreadable>> {
    match open(storage, path).await {
        Err(error) if is_lost(&error, path) => {}
        opened => return opened,
    }
    let listed = storage.list(path).await?;
    let info = listed.into_iter().find(|info| info.path == path);
    let info = info.ok_or_else(|| StorageError::NotFound { path: path.to_owned() })?;
    // Callers see the loss by its bytes. So a file without content has one, too.
    let len = info.len.max(1);
    let all = 0..len;
    Ok(Arc::new(PastUnreadable {
        file: Arc::new(LostFile { path: info.path, len }),
        unreadable: Mutex::new(vec![all]),
    }))
}

/// Whether the file at `path`, whose opening gave this error, is lost as a whole. An encrypted file is when its header is
/// damaged or unreadable. A lost data key, or a lost part of a file, has another path: it can be restored.
pub fn is_lost(error: &StorageError, path: &str) -> bool {
    match error {
        StorageError::Lost { path: lost, .. } | StorageError::Unreadable { path: lost, .. } => lost == path,
        _ => false,
    }
}

/// A file that is lost as a whole.
struct LostFile {
    path: String,
    len: u64,
}

#[async_trait]
impl ReadFile for LostFile {
    async fn read_at(&self, _: u64, _: usize) -> Result<Bytes> {
        Err(StorageError::Lost {
            path: self.path.clone(),
            detail: "the file cannot be opened",
        })
    }

    fn try_read_at(&self, _: u64, _: usize) -> Option<Result<Bytes>> {
        None
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &str {
        &self.path
    }
}

impl PastUnreadable {
    /// Reads the whole file, with [`FILLER`] where it cannot be read.
    pub async fn read_all(&self) -> Result<Bytes> {
        self.read_at(0, usize::try_from(self.len()).unwrap_or(usize::MAX)).await
    }

    /// The unreadable ranges that the reads so far have met, sorted.
    pub fn unreadable(&self) -> Vec<Range<u64>> {
        self.unreadable.lock().clone()
    }

    /// Number of unreadable bytes that the reads so far have met.
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
        debug_assert!(
            merged.is_sorted_by(|a, b| a.end < b.start),
            "unreadable parts are sorted and apart"
        );
        *parts = merged;
    }

    /// The end of the stretch that begins at `at`, limited to `end`, and whether it is known to be unreadable.
    fn stretch(&self, at: u64, end: u64) -> (u64, bool) {
        let parts = self.unreadable.lock();
        match parts.iter().find(|part| at < part.end) {
            Some(part) if part.start <= at => (part.end.min(end), true),
            Some(part) => (part.start.min(end), false),
            None => (end, false),
        }
    }

    /// The part of the file in the sector of the device that contains this byte.
    fn sector_of(&self, at: u64) -> Range<u64> {
        let before = self.file.before_content();
        let start = at.saturating_add(before) / SECTOR_BYTES * SECTOR_BYTES;
        let end = start.saturating_add(SECTOR_BYTES);
        let sector = start.saturating_sub(before)..end.saturating_sub(before).min(self.len());
        assert!(sector.contains(&at), "a byte lies in its sector");
        sector
    }

    /// Reads a range; stretches between unreadable sectors take one read each. An unreadable sector is tried once: a
    /// device may take seconds to fail, and a repair reads a file several times.
    async fn read_past(&self, range: Range<u64>) -> Result<Bytes> {
        let mut content = BytesMut::new();
        let mut at = range.start;
        while at < range.end {
            let (end, is_lost) = self.stretch(at, range.end);
            assert!(
                at < end && end <= range.end,
                "every step makes progress within the range"
            );
            let len = usize::try_from(end - at).unwrap_or(usize::MAX);
            if is_lost {
                content.resize(content.len() + len, FILLER);
                at = end;
                continue;
            }
            match self.file.read_at(at, len).await {
                Ok(bytes) if len as u64 == range.end - range.start => return Ok(bytes),
                Ok(bytes) => {
                    content.extend_from_slice(&bytes);
                    at = end;
                }
                // This terminates: no part of the stretch was known to be unreadable before.
                Err(StorageError::Unreadable { offset, .. }) => self.note(self.sector_of(offset.clamp(at, end - 1))),
                Err(error) => return Err(error),
            }
        }
        debug_assert_eq!(
            content.len() as u64,
            range.end - range.start,
            "a read gives a byte or the filler for every byte"
        );
        Ok(content.freeze())
    }
}

#[async_trait]
impl ReadFile for PastUnreadable {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_range(self.path(), offset, len, self.len())?;
        self.read_past(offset..offset + len as u64).await
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
    use std::sync::atomic::{AtomicU64, Ordering};
    use stele_types::ErrorKind;

    /// Counts the reads of one byte.
    struct Counted {
        file: Arc<dyn ReadFile>,
        byte: u64,
        asked: AtomicU64,
    }

    #[async_trait]
    impl ReadFile for Counted {
        async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
            if (offset..offset + len as u64).contains(&self.byte) {
                self.asked.fetch_add(1, Ordering::Relaxed);
            }
            self.file.read_at(offset, len).await
        }

        fn try_read_at(&self, _: u64, _: usize) -> Option<Result<Bytes>> {
            None
        }

        fn len(&self) -> u64 {
            self.file.len()
        }

        fn path(&self) -> &str {
            self.file.path()
        }
    }

    #[tokio::test]
    async fn a_bad_sector_is_tried_once() {
        let storage = MemoryStorage::new();
        let content = Bytes::from(vec![7; 40_000]);
        storage.put_if_absent("f", content.clone()).await.unwrap();
        storage.make_unreadable("f", 10_000..10_001);
        let counted = Arc::new(Counted {
            file: storage.open("f").await.unwrap(),
            byte: 10_000,
            asked: AtomicU64::new(0),
        });
        let file = PastUnreadable {
            file: counted.clone(),
            unreadable: Mutex::default(),
        };
        for (offset, len) in [(9_000, 20_000), (0, 40_000), (10_000, 1), (11_000, 20_000), (40_000, 0)] {
            let read = file.read_at(offset, len).await.unwrap();
            let bytes = (offset..).zip(&read);
            let wrong = bytes.filter(|(at, byte)| **byte != if (8_192..12_288).contains(at) { FILLER } else { 7 });
            assert_eq!((read.len(), wrong.count()), (len, 0), "{len} bytes from {offset}");
        }
        assert_eq!(counted.asked.load(Ordering::Relaxed), 1);
        assert_eq!(file.unreadable_bytes(), 4_096);
    }

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
