//! Files in memory and cells for tests.

use crate::{Cache, Cursor, Properties, Result, Sstable, SstableMeta, SstableWriter, Step, WriteOptions};
use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, ReadFile, Storage, StorageError};
use stele_types::{CellKey, CellKind, FamilyId, FileId, SeqNo, Timestamp};

pub(super) type Cells = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) const FILE: FileId = FileId(0x0000_0002_0000_0007);

const PATH: &str = "test.sst";

/// A file on a device without space.
pub(super) struct Full;

#[async_trait]
impl AppendFile for Full {
    async fn append(&mut self, _: &[Bytes]) -> stele_storage::Result<()> {
        Err(StorageError::NoSpace {
            path: "full.sst".to_owned(),
        })
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        0
    }
}

/// A file in memory that can simulate a slow device.
pub(super) struct Memory {
    bytes: Bytes,
    /// Whether `try_read_at` returns bytes.
    resident: bool,
    /// Whether it continues to return bytes.
    pub(super) reads_from_memory: AtomicBool,
    /// Position of a byte that the device cannot read; past the end for none.
    pub(super) bad: AtomicU64,
    /// Bytes of a chunk that a read brings into memory, as of a remote file; 0 for none.
    pub(super) chunk_bytes: AtomicU64,
    /// Offset and length of each `read_at`.
    pub(super) reads: Mutex<Vec<(u64, usize)>>,
}

impl Memory {
    pub(super) fn new(bytes: impl Into<Bytes>, resident: bool) -> Arc<Memory> {
        Arc::new(Memory {
            bytes: bytes.into(),
            resident,
            reads_from_memory: AtomicBool::new(true),
            bad: AtomicU64::new(u64::MAX),
            chunk_bytes: AtomicU64::new(0),
            reads: Mutex::default(),
        })
    }

    fn slice(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        let end = offset as usize + len;
        if end > self.bytes.len() {
            let len_now = self.bytes.len() as u64;
            let path = self.path().to_owned();
            return Err(StorageError::OutOfBounds {
                path,
                offset,
                wanted: len as u64,
                len: len_now,
            });
        }
        let bad = self.bad.load(Ordering::Relaxed);
        if (offset..end as u64).contains(&bad) {
            return Err(StorageError::Unreadable {
                path: self.path().to_owned(),
                offset: bad,
                message: "a bad sector".to_owned(),
            });
        }
        Ok(self.bytes.slice(offset as usize..end))
    }
}

#[async_trait]
impl ReadFile for Memory {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        self.reads.lock().expect("one thread").push((offset, len));
        self.slice(offset, len)
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<stele_storage::Result<Bytes>> {
        self.resident.then(|| self.slice(offset, len))
    }

    fn reads_from_memory(&self) -> bool {
        self.reads_from_memory.load(Ordering::Relaxed)
    }

    /// Only the chunk of the last read is in memory.
    fn around(&self, offset: u64) -> Option<(u64, Bytes)> {
        let chunk_bytes = self.chunk_bytes.load(Ordering::Relaxed);
        let last = self.reads.lock().expect("one thread").last().copied();
        let number = offset.checked_div(chunk_bytes)?;
        let (from, to) = (number * chunk_bytes, ((number + 1) * chunk_bytes).min(self.len()));
        let is_in_memory = last.is_some_and(|(read, _)| read / chunk_bytes == number);
        is_in_memory.then(|| (from, self.bytes.slice(from as usize..to as usize)))
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn path(&self) -> &str {
        PATH
    }
}

pub(super) fn options() -> WriteOptions {
    WriteOptions {
        created_by: "stele test".to_owned(),
        ..WriteOptions::new(FILE)
    }
}

pub(super) fn new_writer(options: WriteOptions) -> (SstableWriter, Arc<MemoryStorage>) {
    let storage = MemoryStorage::new();
    let file = block_on(storage.create(PATH)).expect("an empty storage");
    (SstableWriter::new(file, options), storage)
}

pub(super) fn content(storage: &MemoryStorage) -> Bytes {
    block_on(storage.read_all(PATH)).expect("memory does not fail")
}

pub(super) fn write(cells: &Cells, options: WriteOptions) -> (Vec<u8>, SstableMeta) {
    let (mut writer, storage) = new_writer(options);
    for (key, value) in cells {
        writer.add(key, value).expect("sorted and well-formed");
        if writer.wants_flush() {
            block_on(writer.flush()).expect("memory does not fail");
        }
    }
    let meta = block_on(writer.finish()).expect("memory does not fail");
    (content(&storage).to_vec(), meta)
}

pub(super) fn open(file: Arc<Memory>, cache_bytes: usize) -> Result<Arc<Sstable>> {
    block_on(Sstable::open(file, FILE, Arc::new(Cache::new(cache_bytes))))
}

/// Awaits the pending part of an operation.
pub(super) fn complete(cursor: &mut Cursor, step: Result<Step>) -> Result<Step> {
    match step? {
        Step::Pending => block_on(cursor.load()),
        step => Ok(step),
    }
}

/// Every cell, front to back.
pub(super) fn read_all(cursor: &mut Cursor) -> Result<Cells> {
    let mut cells = Cells::new();
    let mut step = cursor.seek_first();
    while let Step::Ready = complete(cursor, step)? {
        cells.insert(cursor.key().to_vec(), cursor.value().to_vec());
        step = cursor.advance();
    }
    Ok(cells)
}

pub(super) fn key(row: &[u8], qualifier: &[u8], timestamp: i64, seq: u64, kind: CellKind) -> Vec<u8> {
    let family = FamilyId(if kind == CellKind::DeleteRow { 0 } else { 3 });
    let (timestamp, seq) = (Timestamp(timestamp), SeqNo(seq));
    CellKey {
        row: row.into(),
        family,
        qualifier: qualifier.into(),
        timestamp,
        seq,
        kind,
    }
    .encode()
}

/// `rows` rows named `row00000`… with `columns` cells each.
pub(super) fn grid(rows: usize, columns: usize, value_bytes: usize) -> Cells {
    let mut cells = Cells::new();
    for row in 0..rows {
        for column in 0..columns {
            let name = format!("row{row:05}");
            let seq = (row * columns + column) as u64;
            let key = key(
                name.as_bytes(),
                format!("q{column}").as_bytes(),
                1_000,
                seq,
                CellKind::Put,
            );
            let noise = (seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
            cells.insert(key, noise.into_iter().cycle().take(value_bytes).collect());
        }
    }
    cells
}

/// The properties that the writer should have computed from the cells.
pub(super) fn rows_of(cells: &Cells) -> std::collections::BTreeSet<Vec<u8>> {
    let prefix = |key: &[u8]| stele_types::key::row_prefix_len(key).map(|len| key[..len].to_vec());
    cells.keys().filter_map(|key| prefix(key)).collect()
}

pub(super) fn check_properties(properties: &Properties, cells: &Cells) {
    assert_eq!(properties.cells as usize, cells.len());
    assert_eq!(properties.rows as usize, rows_of(cells).len());
    assert_eq!(Some(&properties.smallest_key), cells.keys().next());
    assert_eq!(
        Some(&properties.largest_key[..]),
        cells.keys().next_back().map(Vec::as_slice)
    );
    assert_eq!(
        properties.raw_key_bytes as usize,
        cells.keys().map(Vec::len).sum::<usize>()
    );
    assert_eq!(
        properties.raw_value_bytes as usize,
        cells.values().map(Vec::len).sum::<usize>()
    );
    let decoded = || cells.keys().filter_map(|key| CellKey::decode(key));
    let holding = || decoded().filter(|c| !c.kind.is_delete()).map(|c| c.timestamp.0);
    assert_eq!(properties.timestamp_min, holding().min());
    assert_eq!(properties.timestamp_max, holding().max());
    assert_eq!(Some(properties.seq_min), decoded().map(|c| c.seq.0).min());
    assert_eq!(Some(properties.seq_max), decoded().map(|c| c.seq.0).max());
    for kind in (1..=8).filter_map(CellKind::from_byte) {
        let count = decoded().filter(|c| c.kind == kind).count();
        assert_eq!(properties.count(kind), count as u64);
    }
    let deletes = decoded().filter(|c| c.kind.is_delete()).count();
    assert_eq!(properties.deletes(), deletes as u64);
}
