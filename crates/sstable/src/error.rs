//! Errors of sstables.

use stele_storage::StorageError;
use stele_types::ErrorKind;

/// Result of an sstable operation.
pub type Result<T> = std::result::Result<T, SstableError>;

/// A violation of the byte table. The caller that knows file and offset makes it an [`SstableError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail} (at byte {at} of the block)")]
pub struct DecodeError {
    /// Position within the decoded bytes.
    pub at: usize,
    /// Expected and found values.
    pub detail: String,
}

impl DecodeError {
    #[cold]
    /// At a position within the decoded bytes.
    pub fn new(at: usize, detail: impl Into<String>) -> Self {
        DecodeError {
            at,
            detail: detail.into(),
        }
    }
}

/// A failure of an sstable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SstableError {
    /// The file's bytes differ from the written ones.
    #[error("{file}: corrupt at offset {offset}: {detail}")]
    Corruption {
        /// The path of the file.
        file: String,
        /// Where in the file the damaged part begins.
        offset: u64,
        /// Expected and found values.
        detail: String,
    },
    /// The file has a format version that this program does not read.
    #[error("{file}: format version {found}, this program reads only version {supported}")]
    UnknownVersion {
        /// The path of the file.
        file: String,
        /// The file's version.
        found: u32,
        /// The version that this program reads.
        supported: u32,
    },
    /// Keys must be added in strictly increasing order.
    #[error("cell key {key} was added after {previous}")]
    OutOfOrder {
        /// The key, in hexadecimal.
        key: String,
        /// The one before it, in hexadecimal.
        previous: String,
    },
    /// A key or value that the format cannot hold.
    #[error("cannot store cell: {detail}")]
    InvalidCell {
        /// The violated rule.
        detail: String,
    },
    /// A file without cells is not written.
    #[error("an sstable needs at least one cell")]
    Empty,
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl SstableError {
    /// The class of the failure for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SstableError::Corruption { .. } => ErrorKind::Corruption,
            SstableError::UnknownVersion { .. } => ErrorKind::Unimplemented,
            SstableError::OutOfOrder { .. } | SstableError::Empty => ErrorKind::Internal,
            SstableError::InvalidCell { .. } => ErrorKind::InvalidArgument,
            SstableError::Storage(e) => e.kind(),
        }
    }

    /// The error for stored bytes that differ from the written ones, starting at this offset of the file.
    #[cold]
    pub fn corruption(file: &str, offset: u64, detail: impl ToString) -> Self {
        SstableError::Corruption {
            file: file.to_owned(),
            offset,
            detail: detail.to_string(),
        }
    }
}
