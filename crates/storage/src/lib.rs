//! Files behind one trait.
//!
//! The engine needs little of a storage, and states all its assumptions here:
//!
//! * Paths are relative, `/`-separated, of `[A-Za-z0-9._-]` components. Directories are implied, and no path is both a
//!   file and a directory. A first component of `LOCK` or `tmp` is reserved for backends.
//! * A file is written once, front to back, by one writer ([`AppendFile`]), or put whole and atomically
//!   ([`Storage::put_if_absent`]). It never changes afterwards; it is only deleted.
//! * Bytes survive a crash of the machine once `sync` (or the put) returned `Ok`. Before that any prefix of the written
//!   bytes may remain, with any suffix of it torn. The directory entry of a file is durable after its first `sync`.
//! * After a failed `sync` nothing is known about the bytes since the last good one, because the page cache may have
//!   dropped them ("fsyncgate"). The writer must not be used again. After a failed `append` the file takes no more
//!   bytes, but the bytes appended before can still be synced.
//! * `put_if_absent` is a compare-and-swap: of several racing puts to one path exactly one succeeds. When it fails with
//!   an error other than `AlreadyExists` or `NoSpace`, the file may exist or not.
//! * A file that [`grows`] may be appended to and synced in turns. Every other file is finished by its first `sync`,
//!   and a backend may refuse later appends.
//! * A `delete` that returned `Ok` survives a crash: the file does not come back, as it may after a `discard`.
//! * Bytes that a reader sees need not be durable when the file is still being written, or was left by a killed
//!   process. A reader that acts on such bytes first makes them durable.
//!
//! Backends: [`local`], [`memory`], and [`faulty`], which wraps memory with a model of written and synced bytes, torn
//! writes, injected errors and latency. `stele-encryption` has one that encrypts the files of any other. Object stores and HDFS are in crates of their own, `stele-objects` and
//! `stele-hdfs`, over [`remote`]. [`conformance`] is one test suite for all of them.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod faulty;
pub mod foreign;
mod layer;
pub mod local;
pub mod memory;
pub mod past_unreadable;
pub mod remote;
pub mod servers;
mod writer;

pub use layer::Layer;

use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use stele_types::{ErrorKind, TableId};

/// Result of a storage operation.
pub type Result<T> = std::result::Result<T, StorageError>;

/// A failure, with its path.
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
    /// The storage is full (ENOSPC, EDQUOT) or its free space is reserved.
    #[error("{path}: no space left")]
    NoSpace {
        /// Relative path.
        path: String,
    },
    /// A read past the end, or of fewer bytes than the file must have.
    #[error("{path}: wanted bytes {offset}..{end}, the file has {len}", end = offset.saturating_add(*wanted))]
    OutOfBounds {
        /// Relative path.
        path: String,
        /// First byte requested.
        offset: u64,
        /// Bytes requested.
        wanted: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// The device cannot read bytes that it accepted earlier (EIO). While that lasts they are as lost as if
    /// overwritten.
    #[error("{path}: the device cannot read the bytes at offset {offset}: {message}")]
    Unreadable {
        /// Relative path.
        path: String,
        /// The first of the requested ones.
        offset: u64,
        /// The system's error text.
        message: String,
    },
    /// A part of the file is gone.
    #[error("{path}: {detail}")]
    Lost {
        /// Relative path, of the part.
        path: String,
        /// Description of the loss.
        detail: &'static str,
    },
    /// The path breaks the rules above.
    #[error("{path}: not a valid storage path")]
    InvalidPath {
        /// The path as given.
        path: String,
    },
    /// Another process holds the data root.
    #[error("{path}: the data directory is in use by {holder}")]
    Locked {
        /// The data root.
        path: String,
        /// The holder, as far as the lock file tells: `process 4711`.
        holder: String,
    },
    /// Another process has taken over this data. This process has lost it for good and must end.
    #[error("{path}: refused, because this process was replaced by {by}")]
    Fenced {
        /// Relative path.
        path: String,
        /// The new owner.
        by: String,
    },
    /// The storage refuses requests of this machine, whose clock is wrong. This one did not happen. The same may succeed
    /// later.
    #[error("{path}: {operation}: {message}")]
    WrongTime {
        /// Relative path.
        path: String,
        /// The refused operation.
        operation: &'static str,
        /// The cause.
        message: String,
    },
    /// Any other failure of the storage.
    #[error("{path}: {operation}: {message}")]
    Io {
        /// Relative path.
        path: String,
        /// The failed operation.
        operation: &'static str,
        /// The system's error text.
        message: String,
    },
}

impl StorageError {
    /// The same error for the file at `path` instead of a part of it: when a part is missing, the file is.
    #[must_use]
    pub fn of_whole(self, path: &str) -> StorageError {
        match self {
            StorageError::NotFound { .. } => StorageError::NotFound { path: path.to_owned() },
            other => other,
        }
    }

    /// The class of the failure for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StorageError::NotFound { .. } => ErrorKind::NotFound,
            StorageError::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            StorageError::NoSpace { .. } => ErrorKind::ResourceExhausted,
            StorageError::OutOfBounds { .. } | StorageError::Unreadable { .. } | StorageError::Lost { .. } => {
                ErrorKind::Corruption
            }
            StorageError::InvalidPath { .. } | StorageError::Io { .. } => ErrorKind::Internal,
            StorageError::Locked { .. } => ErrorKind::FailedPrecondition,
            // The new owner has all acknowledged writes, and takes further ones.
            StorageError::Fenced { .. } => ErrorKind::Unavailable,
            // Not `Unavailable`, after which the router repeats a call many times: the request itself was repeated before.
            StorageError::WrongTime { .. } => ErrorKind::Busy,
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

/// A storage backend. Object-safe: the engine holds `Arc<dyn Storage>`.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// Creates a new file for writing front to back. `AlreadyExists` when the path is taken.
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>>;

    /// The same for a file with rows of one table. A storage that encrypts has a key for each table.
    async fn create_of_table(&self, path: &str, table: TableId) -> Result<Box<dyn AppendFile>> {
        let _ = table;
        self.create(path).await
    }

    /// Opens a file for reading. For a file still being written, reads see at least the bytes synced before the open.
    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>>;

    /// The same for a caller that knows the file's length and the first range it will read. Where opening and reading
    /// are separate requests, this is one request for both. A file of another length is opened all the same.
    async fn open_known(&self, path: &str, len: u64, first: Range<u64>) -> Result<Arc<dyn ReadFile>> {
        let _ = (len, first);
        self.open(path).await
    }

    /// Creates a whole file, atomically and durably. `AlreadyExists` when the path is taken. After any other error but
    /// `NoSpace`, the file may exist or not.
    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()>;

    /// All files whose path begins with `prefix` (a byte prefix), sorted by path.
    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>>;

    /// The names of the directories directly below a path that ends with a slash, sorted. A deleted file may leave its directory behind.
    /// `None` where that takes as long as to list the files.
    async fn directories(&self, path: &str) -> Result<Option<Vec<String>>> {
        let _ = path;
        Ok(None)
    }

    /// Opens the wanted files whose path begins with `prefix`, sorted by path. `None` where that takes as many requests as to list
    /// them and to open each. No file may be appended to meanwhile.
    async fn open_listed(
        &self,
        prefix: &str,
        wants: &(dyn for<'a> Fn(&'a str) -> bool + Sync),
    ) -> Result<Option<Vec<Arc<dyn ReadFile>>>> {
        let _ = (prefix, wants);
        Ok(None)
    }

    /// Deletes a file durably; `Ok` when it is gone already. Open readers keep working.
    async fn delete(&self, path: &str) -> Result<()>;

    /// Deletes several files as [`Storage::delete`] does each. After an error any of them may be gone, durably or not;
    /// the call may be repeated with all of them.
    async fn delete_all(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            self.delete(path).await?;
        }
        Ok(())
    }

    /// Deletes a file that does no harm when power loss brings it back, and therefore waits for no device. `Ok` when it
    /// is gone already. A later `delete` of it is durable nevertheless.
    async fn discard(&self, path: &str) -> Result<()> {
        self.delete(path).await
    }

    /// Discards several files as [`Storage::discard`] does each. After an error any of them may be gone.
    async fn discard_all(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            self.discard(path).await?;
        }
        Ok(())
    }

    /// Makes the whole content of an existing file survive power loss. Recovery needs it: after the process was killed,
    /// a file shows bytes that were written but never synced. Never fails with `NoSpace`, which would mean that there
    /// is no file.
    async fn sync_file(&self, path: &str) -> Result<()>;

    /// Takes over the files of earlier processes. `true`: none of those can write any more, and every readable byte is
    /// durable. `false`: one of them may still be running. Every inherited file must then be written to, so that such a
    /// process notices.
    async fn inherit(&self) -> Result<bool> {
        Ok(false)
    }

    /// Bytes that can still be written; `None` where there is no such limit.
    async fn free_bytes(&self) -> Result<Option<u64>>;

    /// Whether appended bytes survive the death of the process before they are synced, as in the page cache.
    fn keeps_appends(&self) -> bool {
        true
    }

    /// The number of this owner, larger than those of all previous owners. `None` where the backend admits only one
    /// owner at a time and does not number them.
    fn owner_epoch(&self) -> Option<u64> {
        None
    }

    /// Fails with `Fenced` when another process has become the owner. Files in a listing made before an `Ok` of this
    /// are of this owner or an earlier one. It must be called between a listing and the deletion of files that seem
    /// unused, which might otherwise include files of the new owner. Every later owner sees the files that were put
    /// before an `Ok` of this. It must also be called between a put and actions that rely on it, such as deleting the
    /// file that it replaces.
    async fn confirm_owner(&self) -> Result<()> {
        Ok(())
    }

    /// The storage that has the bytes as they are stored, where this one shows others: one that encrypts. For copies of
    /// files that this one cannot open.
    fn stored(&self) -> Option<&dyn Storage> {
        None
    }

    /// The whole file. Convenience over `open`.
    async fn read_all(&self, path: &str) -> Result<Bytes> {
        let file = self.open(path).await?;
        file.read_at(0, usize::try_from(file.len()).unwrap_or(usize::MAX)).await
    }
}

/// A file being written.
#[async_trait]
pub trait AppendFile: Send + 'static {
    /// Appends the slices in order. On an error, or when the future is dropped, any prefix of them may have been written
    /// and the file takes no more bytes.
    async fn append(&mut self, slices: &[Bytes]) -> Result<()>;

    /// Appends the slices if that is possible on the calling thread without waiting for the device. Otherwise it
    /// returns `None` and has no effect, and the caller uses [`AppendFile::append`]. The rules of `append` hold.
    fn try_append(&mut self, slices: &[&[u8]]) -> Option<Result<()>> {
        let _ = slices;
        None
    }

    /// Returns when all bytes appended so far survive power loss. After an error, or when the future is dropped, the
    /// file must not be used any more.
    async fn sync(&mut self) -> Result<()>;

    /// Bytes successfully appended so far.
    fn len(&self) -> u64;

    /// Bytes of a file that takes as long to read back as this one. More than its length where the file consists of
    /// many small objects. Code that bounds the time of recovery counts this.
    fn reading_cost(&self) -> u64 {
        self.len()
    }

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

    /// The same bytes if they can be read without blocking (memory, page cache), else `None`.
    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>>;

    /// The same into a buffer of the caller, all of which is filled. For callers that do not retain the bytes, and read
    /// often. The content of `bytes` is defined only after `Some(Ok(()))`.
    fn try_read_into(&self, offset: u64, bytes: &mut [u8]) -> Option<Result<()>> {
        let read = self.try_read_at(offset, bytes.len())?;
        Some(read.map(|read| bytes.copy_from_slice(&read)))
    }

    /// Whether bytes read without blocking will usually be readable without blocking again, as from the system's page
    /// cache. False where they come from a buffer of a recent read nearby, which the next read replaces.
    fn reads_from_memory(&self) -> bool {
        false
    }

    /// The bytes in memory around an offset in the file, with the offset of the first: where reads fetch more than was asked for,
    /// those of the fetch. This does not count as a use of them.
    fn around(&self, _offset: u64) -> Option<(u64, Bytes)> {
        None
    }

    /// The end of the range from an offset in the file that one request reads, for files that consist of many objects: a read
    /// across it is joined from several. `None` where that makes no difference.
    fn request_end(&self, _offset: u64) -> Option<u64> {
        None
    }

    /// Bytes of the stored file before the first one that is read here, such as a header of encryption. Sectors of a device are
    /// aligned in the stored file.
    fn before_content(&self) -> u64 {
        0
    }

    /// Bytes in the file when it was opened.
    fn len(&self) -> u64;

    /// See [`AppendFile::reading_cost`].
    fn reading_cost(&self) -> u64 {
        self.len()
    }

    /// Whether the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path it was opened by.
    fn path(&self) -> &str;
}

/// Whether a file of this path grows after its first `sync`: the commit log and the coordination log. An object store
/// stores such a file as many objects, and every other file as a single object.
pub fn grows(path: &str) -> bool {
    path.starts_with("log/") || path.starts_with("coord/log-")
}

/// Longest path. All known file systems take 4,096 bytes including the data root, and 255 in one component.
pub const PATH_BYTES_MAX: usize = 255;

/// First components that are reserved for backends: the lock file, the directory of unfinished puts and the list of
/// files whose sync failed.
pub(crate) const RESERVED_LOCK: &str = "LOCK";
pub(crate) const RESERVED_TMP: &str = "tmp";
pub(crate) const RESERVED_UNSYNCED: &str = "UNSYNCED";

/// The range `offset..offset + len` within a file of `file_len` bytes, or `OutOfBounds`.
pub fn check_range(path: &str, offset: u64, len: usize, file_len: u64) -> Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= file_len => Ok(()),
        _ => Err(StorageError::OutOfBounds {
            path: path.to_owned(),
            offset,
            wanted: len as u64,
            len: file_len,
        }),
    }
}

/// Checks the path rules above.
pub fn check_path(path: &str) -> Result<()> {
    let component = |c: &str| {
        !c.is_empty()
            && c != "."
            && c != ".."
            && c.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    let reserved = matches!(
        path.split('/').next(),
        Some(RESERVED_LOCK | RESERVED_TMP | RESERVED_UNSYNCED)
    );
    if path.len() <= PATH_BYTES_MAX && !reserved && path.split('/').all(component) {
        Ok(())
    } else {
        Err(StorageError::InvalidPath { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let long = "a".repeat(PATH_BYTES_MAX + 1);
        for bad in [
            "", "/a", "a/", "a//b", ".", "a/../b", "LOCK", "UNSYNCED", "tmp/x", "tmp", "a b", "a\0", &long,
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a/b-1/C_2.sst", "tmpx", "a/tmp", "..a", &long[1..]] {
            assert!(check_path(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn ranges_do_not_overflow() {
        assert!(check_range("f", 3, 4, 7).is_ok());
        assert!(check_range("f", 7, 0, 7).is_ok());
        for (offset, len) in [(3, 5), (8, 0), (u64::MAX, 1), (1, usize::MAX)] {
            let error = check_range("f", offset, len, 7).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains("the file has 7"), "{error}");
        }
    }
}
