//! Copies a value file record by record, under its own number or another one.
//!
//! Checksums of records cover the number of their file. Every record is checked under the old number and gets the checksum of
//! the new one; its payload and its place stay. References to its records get the same checksums
//! ([`ValueRef::renumbered`]), so neither needs the other.
//!
//! A record may have a hundred megabytes. It passes in pieces, so a copy takes the memory of one piece.

use super::file::check_header;
use super::{HEADER_BYTES, LENGTH_BYTES, TAIL_BYTES, ValueRef, encode_header, record_len, u32_at};
use crate::error::Result;
use bytes::Bytes;
use crc32fast::Hasher;
use std::sync::Arc;
use stele_sstable::SstableError;
use stele_storage::{AppendFile, ReadFile};
use stele_types::FileId;

/// Bytes per read and write.
const PIECE_BYTES: usize = 1 << 20;

/// The checksum of a record under another file number: `len` is that of the payload. CRC-32 is linear, and covers
/// the number first, so the rest need not be read.
fn renumbered_checksum(crc: u32, len: u32, from: FileId, to: FileId) -> u32 {
    // Offset, length, payload, compression.
    let rest = 8 + LENGTH_BYTES as u64 + u64::from(len) + 1;
    let moved = |file: FileId| {
        let mut first = Hasher::new();
        first.update(&file.0.to_le_bytes());
        first.combine(&Hasher::new_with_initial_len(0, rest));
        first.finalize()
    };
    crc ^ moved(from) ^ moved(to)
}

impl ValueRef {
    /// The reference to the same record of a copy of its file under another number.
    #[must_use]
    pub fn renumbered(self, to: FileId) -> ValueRef {
        ValueRef {
            file: to,
            crc: renumbered_checksum(self.crc, self.payload_len, self.file, to),
            ..self
        }
    }
}

/// Copies the file `from` to an empty one that is written under `to`. Fails with `Corruption` if any record is damaged. The
/// caller syncs the copy, or deletes it after an error.
pub async fn copy_as(source: &Arc<dyn ReadFile>, from: FileId, to: FileId, target: &mut dyn AppendFile) -> Result<()> {
    assert!(target.is_empty(), "a copy is written from the start of its file");
    check_header(&**source, from).await?;
    let mut copy = Copy {
        source,
        window: Bytes::new(),
        at: HEADER_BYTES as u64,
        target,
        queued: vec![Bytes::copy_from_slice(&encode_header(to))],
        queued_bytes: HEADER_BYTES,
    };
    while copy.at < source.len() {
        copy.record(from, to).await?;
    }
    assert_eq!(copy.at, source.len(), "records end where their file does");
    copy.flush().await?;
    assert_eq!(copy.target.len(), source.len(), "a copy is as long as its source");
    Ok(())
}

struct Copy<'a> {
    source: &'a Arc<dyn ReadFile>,
    /// Bytes of the source from `at` on.
    window: Bytes,
    at: u64,
    target: &'a mut dyn AppendFile,
    queued: Vec<Bytes>,
    queued_bytes: usize,
}

impl Copy<'_> {
    async fn record(&mut self, from: FileId, to: FileId) -> Result<()> {
        let begins = self.at;
        let corruption = |detail: &str| SstableError::corruption(self.source.path(), begins, detail);
        let left = self.source.len() - begins;
        let head = match left < LENGTH_BYTES as u64 {
            true => return Err(corruption("the file ends in a record's length").into()),
            false => self.exactly(LENGTH_BYTES).await?,
        };
        let len = record_len(&head).filter(|len| *len as u64 <= left);
        let corruption = |detail: &str| SstableError::corruption(self.source.path(), begins, detail);
        let Some(len) = len else {
            return Err(corruption("no record begins here").into());
        };
        let mut covered = Hasher::new();
        covered.update(&from.0.to_le_bytes());
        covered.update(&begins.to_le_bytes());
        covered.update(&head);
        self.add(head).await?;
        let payload_len = len - LENGTH_BYTES - TAIL_BYTES;
        let mut rest = payload_len + 1;
        while rest > 0 {
            let piece = self.at_most(rest).await?;
            rest -= piece.len();
            covered.update(&piece);
            self.add(piece).await?;
        }
        let crc = self.exactly(TAIL_BYTES - 1).await?;
        let found = u32_at(&crc, 0).unwrap_or_default();
        let computed = covered.finalize();
        if found != computed {
            let detail = format!("a record of checksum {found:08x}, computed {computed:08x}");
            return Err(SstableError::corruption(self.source.path(), begins, detail).into());
        }
        let crc = renumbered_checksum(found, payload_len as u32, from, to);
        self.add(Bytes::copy_from_slice(&crc.to_le_bytes())).await
    }

    /// The next bytes of the source; the caller knows that there are as many.
    async fn exactly(&mut self, len: usize) -> Result<Bytes> {
        if self.window.len() < len {
            let left = usize::try_from(self.source.len() - self.at).unwrap_or(usize::MAX);
            self.window = self.source.read_at(self.at, left.min(PIECE_BYTES).max(len)).await?;
        }
        assert!(
            self.window.len() >= len,
            "a read returns as many bytes as were asked for"
        );
        self.at += len as u64;
        Ok(self.window.split_to(len))
    }

    /// Some of the next bytes of the source, one at least.
    async fn at_most(&mut self, len: usize) -> Result<Bytes> {
        match self.window.len() {
            0 => self.exactly(len.min(PIECE_BYTES)).await,
            there => self.exactly(len.min(there)).await,
        }
    }

    async fn add(&mut self, bytes: Bytes) -> Result<()> {
        self.queued_bytes += bytes.len();
        self.queued.push(bytes);
        match self.queued_bytes >= PIECE_BYTES {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<()> {
        self.target.append(&self.queued).await?;
        self.queued.clear();
        self.queued_bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::file::{ValueFile, check};
    use crate::values::writer::ValueWriter;
    use stele_storage::Storage;
    use stele_storage::memory::MemoryStorage;
    use stele_types::{Compression, ErrorKind};

    const FROM: FileId = FileId(3 << 32 | 8);
    const TO: FileId = FileId(7 << 32 | 1);

    async fn copied(content: Bytes, to: FileId) -> Result<Bytes> {
        let storage = MemoryStorage::new();
        storage.put_if_absent("from", content).await.unwrap();
        let source = storage.open("from").await.unwrap();
        let mut target = storage.create("to").await.unwrap();
        copy_as(&source, FROM, to, &mut *target).await?;
        Ok(storage.read_all("to").await.unwrap())
    }

    async fn written() -> (Bytes, Vec<(ValueRef, Bytes)>) {
        let storage = MemoryStorage::new();
        let file = storage.create("file").await.unwrap();
        let mut writer = ValueWriter::new(file, FROM, Compression::Lz4, 1);
        let values = [0, 1, 40_000, PIECE_BYTES - 9, PIECE_BYTES, 3 * PIECE_BYTES + 1];
        let values = values.map(|len| Bytes::from_iter((0..len).map(|n| (n * n % 251) as u8)));
        let mut references = Vec::new();
        for value in values {
            references.push((writer.add(&value), value));
            writer.flush().await.unwrap();
        }
        writer.finish().await.unwrap();
        (storage.read_all("file").await.unwrap(), references)
    }

    #[tokio::test]
    async fn a_copy_is_read_by_references_of_its_number() {
        let (content, references) = written().await;
        assert!(
            copied(content.clone(), FROM).await.unwrap() == content,
            "its own number changes nothing"
        );
        let other = copied(content.clone(), TO).await.unwrap();
        assert_eq!(other.len(), content.len());
        let storage = MemoryStorage::new();
        storage.put_if_absent("to", other).await.unwrap();
        let file = storage.open("to").await.unwrap();
        let checked = check(&*file, TO, |_| {}, |_, _, _| {}).await.unwrap();
        assert_eq!((checked.records, checked.findings.len()), (references.len() as u64, 0));
        let values = ValueFile::open(file, TO).await.unwrap();
        for (reference, value) in references {
            assert_eq!(reference.renumbered(FROM), reference);
            assert_eq!(values.read(reference.renumbered(TO)).await.unwrap(), value);
        }
    }

    #[tokio::test]
    async fn damage_anywhere_ends_a_copy() {
        let (content, _) = written().await;
        for at in [
            0,
            12,
            17,
            HEADER_BYTES,
            HEADER_BYTES + 4,
            content.len() / 2,
            content.len() - 1,
        ] {
            let mut damaged = content.to_vec();
            damaged[at] ^= 1;
            let error = copied(damaged.into(), TO).await.expect_err("a changed byte is found");
            assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
        }
        for cut in [1, 3, 8, 30] {
            let short = content.slice(..content.len() - cut);
            assert!(copied(short, TO).await.is_err(), "{cut} bytes less");
        }
    }
}
