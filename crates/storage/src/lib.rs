//! Files behind one trait.
//!
//! The engine needs little of a medium, and says here exactly what it assumes of it:
//!
//! * paths are relative, `/`-separated, of `[A-Za-z0-9._-]` components; directories are implied;
//! * a file is written once, front to back, by one writer ([`AppendFile`]), or put whole and atomically
//!   ([`Storage::put_if_absent`]); it never changes afterwards, it is only deleted;
//! * bytes survive a crash of the machine once `sync` (or the put) returned `Ok`; before that any prefix of what was
//!   written, with any suffix of it torn, may remain. The directory entry of a file is durable after its first `sync`;
//! * after a failed `sync` nothing is known about the bytes since the last good one, and the writer must not be used
//!   again (the page cache may have dropped them: "fsyncgate");
//! * `put_if_absent` is a compare-and-swap: of several racing puts to one path exactly one succeeds.
//!
//! Backends: [`local`], [`memory`], and [`faulty`], which wraps memory with a model of written-versus-synced bytes,
//! torn writes, injected errors and latency. [`conformance`] is one suite over all of them.

pub mod conformance;
pub mod faulty;
pub mod local;
pub mod memory;

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_types::ErrorKind;

/// Result of a storage operation.
pub type Result<T> = std::result::Result<T, StorageError>;

/// What went wrong, with the path it went wrong on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No such file.
    #[error("{path}: no such file")]
    NotFound {
        /// Relative path.
        path: String,
    },
    /// The path is taken.
    #[error("{path}: exists already")]
    AlreadyExists {
        /// Relative path.
        path: String,
    },
    /// The medium is full (ENOSPC, EDQUOT) or kept free on purpose.
    #[error("{path}: no space left")]
    NoSpace {
        /// Relative path.
        path: String,
    },
    /// A read past the end, or of fewer bytes than the file must have.
    #[error("{path}: wanted bytes {offset}..{end}, the file has {len}", end = offset + wanted)]
    OutOfBounds {
        /// Relative path.
        path: String,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes there.
        len: u64,
    },
    /// The path breaks the rules above.
    #[error("{path}: not a valid storage path")]
    InvalidPath {
        /// As given.
        path: String,
    },
    /// Another process holds the data root.
    #[error("{path} is locked by another process")]
    Locked {
        /// The data root.
        path: String,
    },
    /// Any other failure of the medium.
    #[error("{path}: {operation}: {message}")]
    Io {
        /// Relative path.
        path: String,
        /// What was attempted.
        operation: &'static str,
        /// The system's words.
        message: String,
    },
}

impl StorageError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StorageError::NotFound { .. } => ErrorKind::NotFound,
            StorageError::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            StorageError::NoSpace { .. } => ErrorKind::ResourceExhausted,
            StorageError::OutOfBounds { .. } => ErrorKind::Corruption,
            StorageError::InvalidPath { .. } | StorageError::Io { .. } => ErrorKind::Internal,
            StorageError::Locked { .. } => ErrorKind::FailedPrecondition,
        }
    }
}

/// One file in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Relative path.
    pub path: String,
    /// Bytes.
    pub len: u64,
}

/// A medium. Object-safe: the engine holds `Arc<dyn Storage>`.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// Makes a new file for writing front to back. `AlreadyExists` when the path is taken.
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>>;

    /// Opens a file for reading. For a file still being written, reads see at least what was synced before the open.
    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>>;

    /// Makes a whole file, atomically and durably. `AlreadyExists` when the path is taken.
    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()>;

    /// All files whose path begins with `prefix` (a byte prefix), sorted by path.
    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>>;

    /// Deletes a file; `Ok` when it is gone already. Open readers keep working.
    async fn delete(&self, path: &str) -> Result<()>;

    /// Bytes that can still be written, or `None` where there is no such limit.
    async fn free_bytes(&self) -> Result<Option<u64>>;

    /// The whole file. Convenience over `open`.
    async fn read_all(&self, path: &str) -> Result<Bytes> {
        let file = self.open(path).await?;
        file.read_at(0, usize::try_from(file.len()).unwrap_or(usize::MAX)).await
    }
}

/// A file being written.
#[async_trait]
pub trait AppendFile: Send + 'static {
    /// Appends the slices in order. On an error any prefix of them may have been written.
    async fn append(&mut self, slices: &[Bytes]) -> Result<()>;

    /// Returns when everything appended so far survives power loss.
    async fn sync(&mut self) -> Result<()>;

    /// Bytes appended so far.
    fn len(&self) -> u64;

    /// Whether nothing was appended yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A file being read; any number of concurrent reads.
#[async_trait]
pub trait ReadFile: Send + Sync + 'static {
    /// Exactly `len` bytes from `offset`; `OutOfBounds` when the file is shorter.
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes>;

    /// The same bytes when they can be had without blocking (memory, page cache), else `None`.
    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>>;

    /// Bytes in the file when it was opened.
    fn len(&self) -> u64;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path it was opened by.
    fn path(&self) -> &str;
}

/// Checks the path rules above.
pub fn check_path(path: &str) -> Result<()> {
    let component = |c: &str| {
        !c.is_empty()
            && c != "."
            && c != ".."
            && c.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    if path.len() <= 512 && path.split('/').all(component) {
        Ok(())
    } else {
        Err(StorageError::InvalidPath { path: path.to_owned() })
    }
}
