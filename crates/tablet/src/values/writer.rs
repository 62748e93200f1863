//! Writes a value file front to back.
//!
//! `add` is synchronous and only queues: an uncompressed value is not copied on its way to storage. The caller writes with
//! `flush` when [`ValueWriter::wants_flush`] says so.

use super::{HEADER_BYTES, ValueRef, encode_header, frame};
use crate::error::Result;
use bytes::Bytes;
use stele_sstable::compress::Compressor;
use stele_storage::{AppendFile, StorageError};
use stele_types::limits::VALUE_BYTES_MAX;
use stele_types::{Compression, FileId};

/// Queued bytes at which the caller should write.
const FLUSH_BYTES: usize = 1 << 20;
/// Values above this are stored as they are. Compressing one takes as much memory again, and a thread for long: 4 MiB are
/// some 10 ms of LZ4.
const COMPRESSED_BYTES_MAX: usize = 4 << 20;

/// A value file being written. Dropping it before `finish` leaves a file that nobody must refer to; the caller deletes it.
pub struct ValueWriter {
    file: Box<dyn AppendFile>,
    id: FileId,
    compression: Compression,
    compressor: Compressor,
    /// Where the next record begins: bytes written and queued.
    offset: u64,
    queued: Vec<Bytes>,
    queued_bytes: usize,
    /// After a failed write the content of the file is unknown: every later call fails the same way.
    failure: Option<StorageError>,
}

impl ValueWriter {
    /// A writer over an empty file.
    pub fn new(file: Box<dyn AppendFile>, id: FileId, compression: Compression, zstd_level: u8) -> Self {
        ValueWriter {
            file,
            id,
            compression,
            compressor: Compressor::new(compression, zstd_level),
            offset: HEADER_BYTES as u64,
            queued: vec![Bytes::copy_from_slice(&encode_header(id))],
            queued_bytes: HEADER_BYTES,
            failure: None,
        }
    }

    /// The file's id.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Bytes the file has by now, queued ones included.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Queues a value; where it will be.
    pub fn add(&mut self, value: &Bytes) -> ValueRef {
        assert!(value.len() <= VALUE_BYTES_MAX, "a value that is written can be read");
        let compressed = match value.len() <= COMPRESSED_BYTES_MAX {
            true => self.compressor.compress(value).map(Bytes::from),
            false => None,
        };
        let (payload, compression) = match compressed {
            Some(payload) => (payload, self.compression),
            None => (value.clone(), Compression::None),
        };
        let (len, tail, crc) = frame(self.id, self.offset, &payload, compression as u8);
        let reference = ValueRef {
            file: self.id,
            offset: self.offset,
            payload_len: payload.len() as u32,
            value_len: value.len() as u32,
            crc,
        };
        self.offset += reference.record_len() as u64;
        self.queued_bytes += reference.record_len();
        self.queued
            .extend([Bytes::copy_from_slice(&len), payload, Bytes::copy_from_slice(&tail)]);
        reference
    }

    /// Whether enough is queued that the caller should `flush`.
    pub fn wants_flush(&self) -> bool {
        self.queued_bytes >= FLUSH_BYTES
    }

    /// Writes the queue to the file. It is durable only after `finish`.
    pub async fn flush(&mut self) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        // Set before the write, so that a flush whose future is dropped half-way counts as failed too.
        self.failure = Some(StorageError::Io {
            path: String::new(),
            operation: "append",
            message: "an earlier write was interrupted".to_owned(),
        });
        debug_assert_eq!(
            self.queued.iter().map(Bytes::len).sum::<usize>(),
            self.queued_bytes,
            "what is queued is counted"
        );
        let written = self.file.append(&self.queued).await;
        self.failure = written.as_ref().err().cloned();
        written?;
        self.queued.clear();
        self.queued_bytes = 0;
        Ok(())
    }

    /// Completes the file and makes it durable; its bytes.
    pub async fn finish(mut self) -> Result<u64> {
        self.flush().await?;
        self.file.sync().await?;
        assert_eq!(self.file.len(), self.offset, "somebody else wrote to this value file");
        Ok(self.offset)
    }
}
